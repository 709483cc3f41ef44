//! `cargo xtask test`: runs all tests, after building what they need.

use crate::{build::whole_workspace, prelude::*, qemu, setup};

/// The number of tests of a program that run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// Settings that save processor time and change no result. A program that loads libtorch fills 50 MiB with the list of
/// operators, which is faster with huge pages. Idle OpenMP threads sleep: several tests run at once, and a spinning
/// thread would take a core that another test needs.
const SAVINGS: [(&str, &str); 2] =
    [("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"), ("OMP_WAIT_POLICY", "PASSIVE")];

/// Of the workspace's own code: see its Cargo.toml.
const OPT_LEVEL: &str = "CARGO_PROFILE_RELEASE_OPT_LEVEL";

/// What runs on another kind of machine, unless the arguments say: the libraries' own tests and the exchange's. There
/// is no Python, and QEMU is several times slower. One test fails in it, which looks for a process that it has killed.
const ON_ARM: &str = "--lib --test exchange --test reducer -p c10d-sys -p tch-parallel-base -p tch-parallel-nn \
    -p tch-parallel-optim -p tch-parallel-data -p tch-parallel -- --skip a_killed_process_is_named";

/// Sets Python up, and builds and runs the tests. Of ours only what Cargo.toml names is optimised, since libtorch does
/// the computing.
pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<()> {
    let start = Instant::now();
    setup::ensure(workspace, setup::Level::Full)?;
    // Commands that a test starts inherit it, and so build nothing anew.
    let opt_level = env::var_os(OPT_LEVEL).unwrap_or_else(|| "0".into());
    let cargo = || {
        let mut cargo = workspace.cargo();
        cargo.env(OPT_LEVEL, &opt_level);
        cargo
    };
    let mut test = cargo();
    // One run shows every failure.
    test.args(["test", "--release", "--no-fail-fast"]);
    if workspace.is_for_arm {
        test.args(ON_ARM.split_whitespace().filter(|_| args.is_empty())).args(args);
        qemu::use_for(workspace, &mut test)?;
    } else {
        let of_cargo = args.iter().take_while(|arg| *arg != "--");
        let excluded = of_cargo.filter(|arg| arg.to_string_lossy().starts_with("--exclude="));
        let mut build = cargo();
        build.args(["build", "--release", "--workspace"]).args(excluded);
        // The last crate of a build is compiled alone, so one build takes less time than two.
        build.args(args.iter().all(|arg| arg == "--no-run").then_some("--all-targets"));
        command::run(&mut build)?;
        test.args(whole_workspace(args)).args(args);
    }
    if env::var_os(THREADS).is_none() {
        // One more than there are cores, because the tests' jobs spend part of their time waiting.
        test.env(THREADS, (thread::available_parallelism()?.get() + 1).to_string());
    }
    test.envs(SAVINGS.into_iter().filter(|(name, _)| env::var_os(name).is_none()));
    command::run(&mut test)?;
    let seconds = start.elapsed().as_secs();
    let done = if args.iter().any(|arg| arg == "--no-run") { "were built" } else { "passed" };
    println!("all tests {done} after {} min {} s", seconds / 60, seconds % 60);
    Ok(())
}
