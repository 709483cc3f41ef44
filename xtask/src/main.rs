//! The project's chores, as in cargo-xtask: `cargo xtask CHORE`. `cargo launch …` is short for `cargo xtask launch …`.

mod bench;
mod book;
mod build;
mod checkout;
mod command;
mod exercise;
mod files;
mod gpu;
mod launch;
mod lock;
mod package;
mod prelude;
mod program;
mod qemu;
mod release;
mod run;
mod setup;
mod soak;
mod test;
mod workspace;

use clap::Parser;
use prelude::*;
use setup::Level;
use std::process::ExitCode;

/// The project's chores: set-up, launching, tests, the book, benchmarks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Chore {
    /// Install libtorch in .libtorch. The other chores do this too if it is missing.
    Setup {
        #[command(flatten)]
        torch: Torch,
        #[command(flatten)]
        machine: Machine,
        /// Also download what the tests and CUDA need: PyTorch for Python, NCCL, CUDA's headers.
        /// Implied if there is a GPU.
        #[arg(long)]
        full: bool,
    },
    /// Build a program of the workspace and launch it: `cargo launch -n 2 ddp-mnist -- --epochs 3`.
    #[command(disable_help_flag = true)]
    Launch(Rest),
    /// Build a program of the workspace for what this machine has, with the feature `cuda` if it has
    /// a GPU, and run it without a launcher: `cargo xtask run dp-basic -- speedup`.
    Run(Rest),
    /// Build all programs. Passes arguments to `cargo build`, such as `--features cuda`.
    Build {
        #[command(flatten)]
        machine: Machine,
        #[command(flatten)]
        rest: Rest,
    },
    /// Build all programs and run all tests. Passes arguments to `cargo test`.
    Test {
        #[command(flatten)]
        machine: Machine,
        /// Examine this library on this machine's GPUs instead: parity with Python, errors, memory, step times.
        #[arg(long, conflicts_with = "args")]
        gpu: bool,
        #[command(flatten)]
        rest: Rest,
    },
    /// Prepare the examination of this library on a GPU.
    #[command(subcommand)]
    Gpu(gpu::Chore),
    /// Build all programs, provoke every fault of a job over several hosts many times, and print a
    /// table: `cargo xtask soak [--trials N] [LINE…]`. Requires root.
    #[command(disable_help_flag = true)]
    Soak(Rest),
    /// Build the book into book/book.
    Book {
        /// Open it in a browser.
        #[arg(long)]
        open: bool,
    },
    /// Check what you have written for one of the book's exercises, or list them: `cargo xtask exercise 7`.
    Exercise { number: Option<usize> },
    /// Package the crates, and train with a program that is built from the packages.
    Package(Torch),
    /// Compare the speed of Rust and Python on this machine.
    Bench {
        #[command(flatten)]
        torch: Torch,
        #[command(subcommand)]
        benchmark: bench::Benchmark,
    },
}

#[derive(Args)]
struct Torch {
    /// The release of PyTorch to build with. Releases other than the default are built in target/torch-VERSION.
    #[arg(long = "torch", value_name = "VERSION", default_value = Release::DEFAULT.torch, value_parser = Release::parser())]
    release: &'static Release,
}

#[derive(Args)]
struct Machine {
    /// Build for this kind of machine, with a compiler for it: Debian's g++-aarch64-linux-gnu. Its tests run in QEMU.
    #[arg(long, value_name = "TRIPLE", value_parser = [workspace::ARM])]
    target: Option<String>,
}

impl Machine {
    fn workspace(&self, torch: &Torch) -> Result<Workspace> {
        let workspace = Workspace::of(torch.release)?;
        let is_another = self.target.is_some() && env::consts::ARCH != "aarch64";
        Ok(if is_another { workspace.for_arm() } else { workspace })
    }
}

/// Arguments for another command.
#[derive(Args)]
struct Rest {
    #[command(flatten)]
    torch: Torch,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    let chore = parse(&env::args_os().collect::<Vec<_>>()).unwrap_or_else(|error| error.exit());
    match run(chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  caused by: {cause}"));
            ExitCode::FAILURE
        }
    }
}

/// Reads the command line. A `--` right before the other command's arguments, which clap swallows, is put back.
fn parse(line: &[OsString]) -> Result<Chore, clap::Error> {
    let mut chore = Chore::try_parse_from(line)?;
    if let Chore::Launch(rest) | Chore::Build { rest, .. } | Chore::Test { rest, .. } = &mut chore {
        let before = line.len() - rest.args.len() - 1;
        if line[before] == "--" {
            rest.args.insert(0, "--".into());
        }
    }
    Ok(chore)
}

fn run(chore: Chore) -> Result<()> {
    match chore {
        Chore::Setup { torch, machine, full } => {
            let level = if full { Level::Full } else { Level::for_this_machine() };
            setup::run(&machine.workspace(&torch)?, level)
        }
        Chore::Launch(rest) => launch::run(&Workspace::of(rest.torch.release)?, &rest.args),
        Chore::Run(rest) => run::run(&Workspace::of(rest.torch.release)?, &rest.args),
        Chore::Build { machine, rest } => build::run(&machine.workspace(&rest.torch)?, &rest.args),
        Chore::Test { gpu: true, rest, .. } => gpu::test(&Workspace::of(rest.torch.release)?),
        Chore::Test { machine, rest, .. } => {
            test::run(&machine.workspace(&rest.torch)?, &rest.args)
        }
        Chore::Gpu(chore) => gpu::run(&chore),
        Chore::Soak(rest) => soak::run(&Workspace::of(rest.torch.release)?, &rest.args),
        Chore::Book { open } => book::run(open),
        Chore::Exercise { number } => exercise::run(&Workspace::of(Release::DEFAULT)?, number),
        Chore::Package(torch) => package::run(&Workspace::of(torch.release)?),
        Chore::Bench { torch, benchmark } => bench::run(&Workspace::of(torch.release)?, &benchmark),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(line: &[&str]) -> Rest {
        let line: Vec<_> = [&["xtask"], line].concat().into_iter().map(OsString::from).collect();
        match parse(&line).expect("the line is valid") {
            Chore::Launch(rest) | Chore::Run(rest) | Chore::Test { rest, .. } => rest,
            _ => panic!("neither launch, run nor test"),
        }
    }

    #[test]
    fn arguments_of_another_command_pass_through_whole() {
        let cases: [&[&str]; 6] = [
            &["-n", "2", "ddp-mnist", "--", "--epochs", "3"],
            &["-n", "2", "--", "cargo", "run", "--", "--epochs", "3"],
            &["--", "cargo", "run"],
            &["-p", "tests", "--", "--nocapture"],
            &["--", "--nocapture"],
            &[],
        ];
        for case in cases {
            for chore in [&["launch"] as &[_], &["test"], &["test", "--torch", "2.11.0"]] {
                assert_eq!(rest(&[chore, case].concat()).args, case);
            }
        }
        assert_eq!(rest(&["launch", "--help"]).args, ["--help"]);
        for case in [&["dp-basic", "--help"][..], &["dp-basic", "--", "trace", "--seed", "2"]] {
            assert_eq!(rest(&[&["run"], case].concat()).args, case);
        }
    }

    #[test]
    fn a_release_of_pytorch_is_chosen_before_the_other_commands_arguments() {
        let torch = |line: &[&str]| rest(line).torch.release.torch;
        assert_eq!(torch(&["test", "-p", "tests"]), Release::DEFAULT.torch);
        assert_eq!(torch(&["test", "--torch", "2.11.0", "-p", "tests"]), "2.11.0");
        assert_eq!(torch(&["launch", "--torch=2.12.1", "-n", "2", "ddp-mnist"]), "2.12.1");
        let unknown = ["xtask", "test", "--torch", "2.10.0"].map(OsString::from);
        let error = parse(&unknown).err().expect("there is no such release").to_string();
        assert!(error.contains("[possible values: 2.13.0, 2.12.1, 2.12.0, 2.11.0]"), "{error}");
    }
}
