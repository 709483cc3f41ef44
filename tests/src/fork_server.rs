//! Ranks of a test, each forked from a copy of the test's program that has loaded libtorch. Loading it takes a fifth of
//! a second per rank, longer than most of the tests.

use crate::forked::{Forked, Server};
use crate::{Shared, prelude::*, programs::clean};
use fork::{Fork, fork, wait_any_nohang, waitpid};
use nix::sys::prctl::set_pdeathsig;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, write};
use std::{convert::Infallible, fs::File, io, process, thread};

/// A test that the server can run: [`run_by`](crate::run_by) registers each.
pub struct Test {
    /// The full path: program, modules, function.
    pub name: &'static str,
    pub run: fn(),
}

inventory::collect!(Test);

/// The wait status of a process that ends with code 1.
const FAILED: i32 = 256;

/// Prefixes of the variables that libtorch and its libraries read when they are loaded.
const READ_AT_LOAD: [&str; 7] = ["TORCH_", "ATEN_", "OMP_", "KMP_", "MKL_", "ONEDNN_", "LD_"];

/// The variable that makes a process the server.
const SERVES: &str = "TCH_PARALLEL_TEST_FORKS";

fn find(name: &str) -> Option<&'static Test> {
    let is_it = |test: &&Test| test.name.split_once("::").is_some_and(|(_, path)| path == name);
    inventory::iter::<Test>.into_iter().find(is_it)
}

/// A command that runs one test of this program in a process of its own. An error if there is no such test: the harness
/// would run nothing, and succeed.
pub fn this_test(name: &str) -> Result<Command> {
    find(name).with_context(|| format!("there is no test {name}"))?;
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    Ok(command)
}

/// Forks the process that runs a test. None for anything but the command of [`this_test`].
pub(crate) fn fork_test(command: &Command, outputs: [&Path; 2]) -> Result<Option<Forked>> {
    let is_read_at_load = |name: &str| READ_AT_LOAD.iter().any(|prefix| name.starts_with(prefix));
    let mut early = command.get_envs().filter_map(|(name, _)| name.to_str());
    if command.get_program() != env::current_exe()? || early.any(is_read_at_load) {
        return Ok(None);
    }
    let test = command.get_args().nth(1).and_then(|name| name.to_str());
    let Some(test) = test.filter(|name| find(name).is_some()) else { return Ok(None) };
    static SERVER: Shared<Server> = Shared::new();
    let server = SERVER.get((), || {
        let mut server = clean(&env::current_exe()?);
        server.args(command.get_args()).env(SERVES, "1");
        Server::start(server, format!("the copy of this program, started for {test}, cannot fork or has ended; stderr says why"))
    })?;
    server.fork(test, &[], command, outputs).map(Some)
}

/// In the server, forks a process for each request until the test program ends. Elsewhere does nothing.
pub fn serve_if_asked() -> Result<()> {
    if env::var_os(SERVES).is_none() {
        return Ok(());
    }
    for (number, request) in io::stdin().lines().enumerate() {
        while let Ok(Some(_)) = wait_any_nohang() {}
        // The harness's other thread waits, and only speaks once, after a minute, so the child finds no lock held.
        if let Fork::Child = fork()? {
            if let Err(error) = request.map_err(Into::into).and_then(|text| watch(number, &text)) {
                eprintln!("{error:#}");
                answer(json!({ "number": number, "status": FAILED }))?;
            }
            // Do not return to the harness: without its other thread, even a panic would end the process with success.
            // And do not run libtorch's destructors, which take a tenth of a second.
            kill(Pid::this(), Signal::SIGKILL)?;
        }
    }
    process::exit(0)
}

/// Forks the process, and waits for its end.
fn watch(number: usize, request: &str) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    let request = serde_json::from_str(request)?;
    match fork()? {
        Fork::Child => {
            let Err(error) = become_rank(&request);
            eprintln!("{error:#}");
            process::exit(1)
        }
        Fork::Parent(pid) => {
            answer(json!({ "number": number, "pid": pid }))?;
            answer(json!({ "number": number, "status": waitpid(pid)? }))
        }
    }
}

fn answer(answer: Value) -> Result<()> {
    // The test harness has begun a line. A single call, so that answers do not mix.
    write(io::stdout(), format!("\n{answer}\n").as_bytes())?;
    Ok(())
}

/// Makes this process what the test's command would be, and ends it.
fn become_rank(request: &Value) -> Result<Infallible> {
    set_pdeathsig(Signal::SIGKILL)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let output = |name: &str| File::options().write(true).open(text(&request[name]));
    dup2_stdin(File::open("/dev/null")?)?;
    dup2_stdout(output("stdout")?)?;
    dup2_stderr(output("stderr")?)?;
    env::set_current_dir(text(&request["directory"]))?;
    let test = find(&text(&request["script"])).context("no such test")?;
    let environment = request["environment"].as_object().context("no environment")?;
    let gone = env::vars().map(|(name, _)| (name, None));
    let gone = gone.filter(|(name, _)| !environment.contains_key(name));
    let set = environment.iter().map(|(name, value)| (name.clone(), Some(text(value))));
    temp_env::with_vars(gone.chain(set).collect::<Vec<_>>(), || {
        // A test has a thread of its own, with its name.
        let thread = thread::Builder::new().name(test.name.to_owned()).spawn(test.run);
        let code = thread.map_or(1, |thread| thread.join().map_or(101, |()| 0));
        process::exit(code)
    })
}
