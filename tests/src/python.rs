//! The Python originals of the programs. They run with the torch that the Rust programs are linked
//! with, because results can only be equal to the last bit if both sides use the same kernels.
//!
//! A job that starts a script of `tests/python`, or torchrun, forks it from a process that has already
//! imported PyTorch (`tests/python/forkserver.py`), because the import takes two seconds. Under a
//! launcher a script is a program like any other.

use crate::forked::{Forked, Server};
use crate::programs::{clean, workspace};
use crate::{Shared, prelude::*};

const ADVICE: &str = "run `cargo xtask test`, which sets Python up with all that the tests need";

/// PyTorch's launcher, a script next to the interpreter.
const TORCHRUN: &str = "torchrun";

/// `python tests/python/SCRIPT.py ARGUMENTS …`
pub fn python<'a>(script: &str, arguments: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    let mut command = venv_program(&interpreter()?);
    command.arg(scripts().join(script).with_extension("py")).args(arguments);
    // Otherwise gloo resolves the machine's host name, and may listen on another address than the Rust ranks.
    command.env("GLOO_SOCKET_IFNAME", "lo");
    Ok(command)
}

pub(crate) fn torchrun(flags: &[&str]) -> Result<Command> {
    let mut launcher = venv_program(&interpreter()?.with_file_name(TORCHRUN));
    launcher.arg("--no-python").args(flags);
    Ok(launcher)
}

/// A program of the virtual environment. It may write bytecode, because the set-up writes none: otherwise every import
/// of PyTorch would compile it again, for five seconds.
fn venv_program(program: &Path) -> Command {
    let mut command = clean(program);
    command.env_remove("PYTHONDONTWRITEBYTECODE");
    command
}

fn scripts() -> PathBuf {
    workspace().join("tests/python")
}

/// The Python of the virtual environment that contains libtorch.
fn interpreter() -> Result<Arc<PathBuf>> {
    static PYTHON: Shared<PathBuf> = Shared::new();
    PYTHON.get((), || {
        let libtorch = env::var_os("LIBTORCH").map(PathBuf::from);
        let libtorch = libtorch.with_context(|| format!("LIBTORCH is not set; {ADVICE}"))?;
        let real = libtorch
            .canonicalize()
            .with_context(|| format!("no libtorch at {}; {ADVICE}", libtorch.display()))?;
        // …/lib/python3.11/site-packages/torch belongs to …/bin/python.
        real.ancestors()
            .map(|directory| directory.join("bin/python"))
            .find(|python| python.exists())
            .with_context(|| format!("{} lies in no Python environment; {ADVICE}", real.display()))
    })
}

/// Forks the process that runs this script, or torchrun. None if the command was made neither by [`python`] nor by
/// [`torchrun`].
pub(crate) fn fork(command: &Command, outputs: [&Path; 2]) -> Result<Option<Forked>> {
    let program = Path::new(command.get_program());
    let mut arguments = command.get_args().map(|text| text.to_string_lossy().into_owned());
    let script = if program.ends_with(TORCHRUN) {
        Some(program.display().to_string())
    } else {
        arguments.next().filter(|script| Path::new(script).starts_with(scripts()))
    };
    let Some(script) = script else { return Ok(None) };
    server()?.fork(&script, &arguments.collect::<Vec<_>>(), command, outputs).map(Some)
}

/// `tests/python/forkserver.py`, which the first call starts.
fn server() -> Result<Arc<Server>> {
    static SERVER: Shared<Server> = Shared::new();
    SERVER.get((), || {
        let mut command = venv_program(&interpreter()?);
        command.arg(scripts().join("forkserver.py"));
        Server::start(command, format!("Python cannot import PyTorch; {ADVICE}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Job;

    #[test]
    fn a_script_that_fails_is_reported_with_its_exit_code_and_its_traceback() {
        let job = Job::new().unwrap();
        let run = |arguments: &[&str]| {
            job.run(python("lr_schedulers", arguments.iter().copied()).unwrap()).unwrap()
        };
        let failed = run(&["many", "SGD", "[0.1]", "{}"]).expect_code(1).unwrap();
        failed.expect_messages(&["Traceback"]).unwrap();
        let schedule = r#"{"StepLR": {"step_size": 1}}"#;
        let rates = run(&["2", "SGD", "[0.5]", schedule]).expect_success().unwrap();
        assert_eq!(rates.stdout, "[[[0.5, 0]], [[0.05, 0]]]\n");
    }

    #[test]
    fn a_script_is_a_member_of_its_job_and_ends_with_it() {
        let job = Job::new().unwrap();
        // It waits for a second rank, which never comes.
        let script = crate::programs::as_rank(python("ddp_mnist", []).unwrap(), 0, 2, 1);
        let mut process = job.start(script).unwrap();
        assert_eq!(job.processes().unwrap(), [process.pid()]);
        drop(job);
        assert!(process.has_ended().unwrap());
    }
}
