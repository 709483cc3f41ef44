//! `cargo launch -n 2 ddp-mnist -- --epochs 3`: builds a program of the workspace, then becomes the launcher.

use crate::prelude::*;
use crate::program::Program;
use crate::run::become_program;
use crate::setup;

/// The launcher's package, whose program is `launch`.
pub(crate) const LAUNCHER: &str = "tch-parallel-launch";

/// The launcher's long options without a value. That of another may be the next argument, which is no program.
const SWITCHES: [&str; 6] =
    ["--standalone", "--no-python", "--use-env", "--pass-local-rank", "--help", "--version"];

/// Does the set-up if it is missing, builds the launcher and the program, and replaces this process with the launcher.
pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<()> {
    let mut build = workspace.cargo();
    build.args(["build", "--release", "--package", LAUNCHER]);
    let mut args = args.to_vec();

    if let Some(position) = program_position(&args) {
        let level = setup::Level::for_this_machine();
        setup::ensure_while_building(workspace, level, &mut build)?;
        if let Some(program) = Program::find(&args[position]) {
            let executable = program.add_to(&mut build, workspace);
            replace_program(&mut args, position, &executable);
        } else {
            ensure!(
                workspace.release == Release::DEFAULT,
                "--torch is for programs of this workspace, and {} is none",
                args[position].display()
            );
        }
    }

    command::run_quietly(&mut build)?;
    become_program(&workspace.release_executable("launch"), &args)
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

/// Replaces the package's name with its executable and drops the `--` after it, as `cargo run` does.
fn replace_program(args: &mut Vec<OsString>, position: usize, executable: &Path) {
    args[position] = executable.into();
    if args.get(position + 1).is_some_and(|next| next == "--") {
        args.remove(position + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

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
            let args = words(line);
            let found = program_position(&args)
                .map(|position| args[position].to_str().expect("it is UTF-8"));
            assert_eq!(found, program, "{line}");
        }
    }

    #[test]
    fn a_package_becomes_its_executable_and_the_separator_goes() {
        let executable = Path::new("/target/release/ddp-mnist");
        for (line, expected) in [
            ("-n 2 ddp-mnist -- --lr 1", "-n 2 /target/release/ddp-mnist --lr 1"),
            ("-n 2 ddp-mnist --lr 1", "-n 2 /target/release/ddp-mnist --lr 1"),
            ("-n 2 ddp-mnist -- -- x", "-n 2 /target/release/ddp-mnist -- x"),
            ("-n 2 ddp-mnist", "-n 2 /target/release/ddp-mnist"),
        ] {
            let mut args = words(line);
            replace_program(&mut args, 2, executable);
            assert_eq!(args, words(expected), "{line}");
        }
    }
}
