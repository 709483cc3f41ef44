//! How a program says why it failed.

use crate::eprintln;
use std::error::Error;
use tch_parallel::distributed::record;

/// The variables by which launchers tell a process its rank: torchrun and `launch`, Open MPI, SLURM and MPICH.
const RANK_VARIABLES: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"];

/// Runs a program's `main` under [`record`], which leaves the reason of a failure for the launcher
/// and for the other ranks, and ends the process with its result: exit code 0, or 1 for an error,
/// which is printed to stderr with the rank it happened on and one line for each of its causes:
///
/// ```text
/// [rank 1] error: cannot open data/train-images-idx3-ubyte
///   caused by: No such file or directory (os error 2)
/// ```
///
/// ```
/// fn main() {
///     report::exit(train)
/// }
///
/// fn train() -> tch_parallel::Result<()> {
///     Ok(())
/// }
/// ```
pub fn exit<E: Into<Box<dyn Error + Send + Sync>>>(main: impl FnOnce() -> Result<(), E>) -> ! {
    let Err(error) = record(main) else { tch_parallel::exit(0) };
    let rank = RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    eprintln!("{}", report(&*error, rank.as_deref()));
    tch_parallel::exit(1)
}

fn report(error: &(dyn Error + 'static), rank: Option<&str>) -> String {
    let prefix = rank.map(|rank| format!("[rank {rank}] ")).unwrap_or_default();
    let mut above = error.to_string();
    let mut report = format!("{prefix}error: {above}");
    for cause in std::iter::successors(error.source(), |&cause| cause.source()) {
        let text = cause.to_string();
        // Many errors already quote their cause.
        if !above.contains(&text) {
            report += &format!("\n  caused by: {text}");
            above = text;
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn text_without_a_newline_arrives() {
        const ENDS: &str = "REPORT_TEST_ENDS";
        if std::env::var_os(ENDS).is_some() {
            print!("half a line");
            exit(|| Err(anyhow!("no data")));
        }
        let test = "exit::tests::text_without_a_newline_arrives";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", test, "--nocapture"]).env(ENDS, "1").env_remove("RANK");
        let ended = again.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let [stdout, stderr] = [ended.stdout, ended.stderr].map(text);
        assert_eq!(ended.status.code(), Some(1));
        assert!(stdout.ends_with("half a line"), "{stdout}");
        assert!(stderr.ends_with("error: no data\n"), "{stderr}");
    }

    #[test]
    fn an_error_comes_with_its_rank_and_the_causes_that_it_does_not_quote() {
        let error = anyhow!("gone").context("disk gone").context("no data");
        let report = report(&*error.context("cannot train: no data"), Some("1"));
        assert_eq!(report, "[rank 1] error: cannot train: no data\n  caused by: disk gone");
    }
}
