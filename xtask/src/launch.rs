//! `cargo launch -n 2 ddp-mnist -- --epochs 3`: builds a program of the workspace, then becomes the launcher.

use crate::run::{become_program, program_and_arguments};
use crate::{prelude::*, program::Program, setup};

/// The launcher's package, whose program is `launch`.
pub(crate) const LAUNCHER: &str = "tch-parallel-launch";

/// The launcher's long options without a value. That of another may be the next argument, which is no program.
const SWITCHES: [&str; 6] =
    ["--standalone", "--no-python", "--use-env", "--pass-local-rank", "--help", "--version"];

/// Does the set-up if it is missing, builds the launcher and the program, and replaces this process with the launcher.
pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<()> {
    let mut build = workspace.cargo();
    build.args(["build", "--release", "--package", LAUNCHER]);
    let mut line = args.to_vec();

    if let Some(position) = program_position(args) {
        setup::ensure_while_building(workspace, setup::Level::for_this_machine(), &mut build)?;
        let (program, rest) = program_and_arguments(&args[position..])?;
        if let Some(found) = Program::find(program) {
            let executable = OsString::from(found.add_to(&mut build, workspace));
            line = [&args[..position], &[executable], rest].concat();
        } else {
            ensure!(
                workspace.release == Release::DEFAULT,
                "--torch is for programs of this workspace, and {} is none",
                program.display()
            );
        }
    }

    command::run_quietly(&mut build)?;
    become_program(&workspace.release_executable("launch"), &line)
}

/// The position of the program: the first argument that is neither an option nor an option's value.
fn program_position(args: &[OsString]) -> Option<usize> {
    let mut position = 0;
    while position < args.len() {
        // Like torchrun, the launcher accepts `_` for `-` in long options.
        let arg = args[position].to_string_lossy().replace('_', "-");
        let stands_alone = SWITCHES.contains(&arg.as_str()) || arg.contains('=');
        position += match arg.as_str() {
            "--" => return (position + 1 < args.len()).then_some(position + 1),
            "-n" | "-t" | "-r" => 2,
            option if option.starts_with("--") && !stands_alone => 2,
            option if option.starts_with('-') => 1,
            _ => return Some(position),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_first_argument_that_is_not_an_option() {
        for (line, program) in [
            ("ddp-mnist", Some("ddp-mnist")),
            ("-n 2 ddp-mnist -- --epochs 3", Some("ddp-mnist")),
            ("-n2 ddp-mnist", Some("ddp-mnist")),
            ("--nproc-per-node=2 --tee 3 ./trainer -n 5", Some("./trainer")),
            (
                "--nnodes 2 --node-rank 1 --master-addr a --master-port 1 --max-restarts 3 prog",
                Some("prog"),
            ),
            ("--log-dir logs -r 1 -t 0:1,1:2 prog", Some("prog")),
            ("--standalone --nproc_per_node 2 --rdzv_id=x my_prog", Some("my_prog")),
            ("--rdzv-backend static --rdzv-endpoint a:1 --role x prog", Some("prog")),
            ("-n 2 --local-ranks-filter 0,1 prog", Some("prog")),
            ("-n 2 -- cargo run -p ddp-mnist", Some("cargo")),
            ("-n 2", None),
            ("--help", None),
            ("-n 2 --", None),
            ("", None),
        ] {
            let args: Vec<_> = line.split_whitespace().map(OsString::from).collect();
            let found = program_position(&args)
                .map(|position| args[position].to_str().expect("it is UTF-8"));
            assert_eq!(found, program, "{line}");
        }
    }
}
