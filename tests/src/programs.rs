//! The programs under test, as commands.

use crate::job::{Job, Process};
use crate::{prelude::*, python};
use std::sync::atomic::{AtomicU16, Ordering};
use std::{env, ffi::OsStr, net::TcpListener, process};

/// Prefixes and suffixes of the variables through which a launcher tells a program its rank. The
/// programs must not inherit any, since a launcher may have started the test itself.
const LAUNCHERS: [&str; 6] = ["TORCHELASTIC_", "PET_", "TCH_PARALLEL_", "OMPI_", "PMI_", "SLURM_"];
const RANKS: [&str; 5] = ["RANK", "WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"];

/// The programs that readers are told to start.
pub const PROGRAMS: [&str; 6] =
    ["async-update", "ddp-imagenet", "ddp-mnist", "dp-basic", "dp-custom-criterion", "scaling"];

/// For programs that give up on a training after ten minutes, since on some processors it takes longer.
pub const UNHURRIED: &str = "--timeout=86400";

pub fn workspace() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Not `..`, because this package may be a link in a twin of the checkout.
    tests.parent().unwrap_or(tests)
}

pub fn source(path: impl AsRef<Path>) -> Result<String> {
    let path = workspace().join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Pairs of sentences for dp-custom-criterion.
pub fn corpus() -> String {
    workspace().join("tests/data/pairs.txt").display().to_string()
}

/// The files below a folder that have one of these extensions, in order.
pub fn files_below(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_below(&path, extensions)?);
        } else if path.extension().and_then(OsStr::to_str).is_some_and(|e| extensions.contains(&e))
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The texts of the files below folders of the workspace that have this extension.
pub fn texts_below(folders: &str, extension: &str) -> Result<Vec<String>> {
    let files = |folder: &str| files_below(&workspace().join(folder), &[extension]);
    let files = folders.split_whitespace().map(files).collect::<Result<Vec<_>>>()?;
    files.concat().iter().map(source).collect()
}

/// The part of a text between two others.
pub fn between<'a>(text: &'a str, begin: &str, end: &str) -> Result<&'a str> {
    let found = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    let missing = || format!("there is no part between `{begin}` and `{end}` in {text}");
    found.map(|(part, _)| part).with_context(missing)
}

/// The difference between two texts with these names.
pub fn diff([from, to]: [&str; 2], texts: [&str; 2]) -> Result<String> {
    let job = Job::new()?;
    [from, to].iter().zip(texts).try_for_each(|(name, text)| fs::write(job.path(name), text))?;
    let arguments = ["-U", "1", "--label", from, "--label", to, from, to];
    // diff exits with 1 if it finds differences.
    Ok(job.run(Command::new("diff").args(arguments))?.expect_code(1)?.stdout)
}

/// The cargo that runs the tests, in the workspace.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    // The build scripts of some crates watch what describes the running package, and would compile
    // half of the programs anew.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo.current_dir(workspace());
    cargo
}

macro_rules! programs {
    ($($function:ident = $name:literal)+) => {$(
        pub fn $function<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Command> {
            program($name, arguments)
        }
    )+};
}
programs! {
    async_update = "async-update"
    ddp_imagenet = "ddp-imagenet"
    ddp_mnist = "ddp-mnist"
    dp_basic = "dp-basic"
    dp_custom_criterion = "dp-custom-criterion"
    launcher = "launch"
}

/// An example of the library, by its name.
pub fn example<'a>(name: &str, arguments: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    program(&format!("examples/{name}"), arguments)
}

/// `launch -n RANKS -- PROGRAM …`: the program, as ranks of one job on this machine.
pub fn launch(ranks: usize, program: &Command) -> Result<Command> {
    launch_with(&["-n", &ranks.to_string()], program)
}

/// `launch FLAGS … -- PROGRAM …`.
pub fn launch_with(flags: &[&str], program: &Command) -> Result<Command> {
    Ok(started_by(launcher(flags.iter().copied().chain(["--"]))?, program))
}

/// PyTorch's own launcher, starting any program as ranks of one job on this machine.
pub fn torchrun(ranks: usize, program: &Command) -> Result<Command> {
    torchrun_with(&["--standalone", &format!("--nproc-per-node={ranks}")], program)
}

/// `torchrun --no-python FLAGS … PROGRAM …`.
pub fn torchrun_with(flags: &[&str], program: &Command) -> Result<Command> {
    Ok(started_by(python::torchrun(flags)?, program))
}

/// Starts each program as one rank, in this order, without a launcher. Unlike a launcher, this
/// needs a port that all ranks know beforehand.
pub fn start_by_hand(
    job: &Job,
    programs: impl IntoIterator<Item = Result<Command>>,
) -> Result<Vec<Process>> {
    let programs = programs.into_iter().collect::<Result<Vec<_>>>()?;
    let (size, port) = (programs.len(), free_port()?);
    let start = |(rank, program)| job.start(as_rank(program, rank, size, port));
    programs.into_iter().enumerate().map(start).collect()
}

/// The program with the environment variables of a rank.
pub fn as_rank(mut program: Command, rank: usize, world_size: usize, port: u16) -> Command {
    program
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", world_size.to_string())
        .env("LOCAL_WORLD_SIZE", world_size.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string());
    program
}

/// A port on which nobody listens, and which Linux never hands out as an ephemeral port: it lies below the range for
/// outgoing connections and for listeners on port 0. Later calls return other ports.
pub fn free_port() -> Result<u16> {
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 10_000;
    static CALLS: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time have neighbouring numbers: each starts a hundred ports
    // after the one before it.
    let offset = u16::try_from(process::id() % 100)? * (PORTS / 100);
    let next = |_| FIRST + (offset + CALLS.fetch_add(1, Ordering::Relaxed)) % PORTS;
    let is_free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let free = (0..PORTS).map(next).find(is_free);
    free.with_context(|| format!("no port from {FIRST} on is free"))
}

/// A program of this workspace, found from the directory into which cargo has put the running test
/// or program, which is right for any profile and target directory.
pub fn program<'a>(name: &str, arguments: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    let running = env::current_exe()?;
    // A test lies in target/PROFILE/deps.
    let profile = running.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    let program = profile.context("a program lies in target/PROFILE")?.join(name);
    ensure!(program.exists(), "{} is not built; run `cargo xtask test`", program.display());
    let mut command = clean(&program);
    command.args(arguments);
    Ok(command)
}

/// A command whose numbers can be compared: with one thread per rank, as under a launcher, and
/// without an inherited rank.
pub fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let begins = LAUNCHERS.iter().any(|prefix| text.starts_with(prefix));
        if begins || RANKS.iter().any(|suffix| text.ends_with(*suffix)) {
            command.env_remove(&name);
        }
    }
    command.env("OMP_NUM_THREADS", "1");
    command
}

pub fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    shell
}

/// A shell with this script, in which `"$@"` stands for the command.
pub fn in_shell(script: &str, command: &Command) -> Command {
    let mut shell = shell(script);
    shell.arg("sh");
    started_by(shell, command)
}

/// The command in a directory whose subdirectory `disk` has room for 64 KiB. Only root may start it.
pub fn with_small_disk(command: &Command) -> Command {
    const MOUNT: &str = "mkdir disk && mount -t tmpfs -o size=64k small disk";
    in_shell(&format!(r#"exec unshare --mount sh -c '{MOUNT} && exec "$@"' sh "$@""#), command)
}

/// The launcher's command with the program's, environment included, at its end.
pub(crate) fn started_by(mut launcher: Command, program: &Command) -> Command {
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => launcher.env(name, value),
            None => launcher.env_remove(name),
        };
    }
    launcher.arg(program.get_program()).args(program.get_args());
    if let Some(directory) = program.get_current_dir() {
        launcher.current_dir(directory);
    }
    launcher
}
