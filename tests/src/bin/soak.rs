//! Provokes every fault of the table many times, and prints how often the job did what it must.

use clap::{Parser, builder::PossibleValuesParser};
use std::process::ExitCode;
use tests::soak::{LINES, Line, Size, Trial};
use tests::{Hosts, prelude::*};

/// Provoke the faults of jobs over several hosts, many times each, and print a table of the results. Requires root.
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Args {
    /// Try each line N times [default: 36 or 20, as the table says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    trials: Option<u32>,
    /// Start with this trial, to repeat one that has failed
    #[arg(long, value_name = "K", default_value_t = 0)]
    first: u32,
    /// Directory for the output of the trials that fail
    #[arg(long, value_name = "DIR", default_value = "target/soak")]
    logs: PathBuf,
    /// Lines of the table [default: all]
    #[arg(value_parser = PossibleValuesParser::new(LINES.iter().map(|line| line.name)))]
    lines: Vec<String>,
}

#[derive(Default)]
struct Results {
    took: Vec<Duration>,
    held: u32,
    failed: u32,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    ensure!(Hosts::can_exist(), "cannot create hosts as network namespaces");
    fs::create_dir_all(&args.logs)
        .with_context(|| format!("cannot create {}", args.logs.display()))?;
    println!("| fault | goal | held | median | worst |\n|---|---|---|---|---|");
    let mut failed = 0;
    let is_named = |line: &&Line| args.lines.iter().any(|name| name == line.name);
    for line in LINES.iter().filter(|line| args.lines.is_empty() || is_named(line)) {
        let results = try_often(line, &args)?;
        failed += results.failed;
        println!("{}", results.row(line));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn try_often(line: &Line, args: &Args) -> Result<Results> {
    let mut results = Results::default();
    for number in args.first..args.first + args.trials.unwrap_or(line.trials) {
        let begin = Instant::now();
        let mut trial = Trial::new(number.into(), Size::FULL);
        let reason = match (line.trial)(&mut trial) {
            Ok(took) => {
                results.took.push(took);
                let late = line.limit.is_some_and(|limit| took >= limit);
                late.then(|| format!("it took {:.1} s", took.as_secs_f64()))
            }
            Err(error) => Some(format!("{error:#}")),
        };
        let name = line.name;
        let Some(reason) = reason else {
            results.held += 1;
            eprintln!("{name} {number}: held, {:.1} s", begin.elapsed().as_secs_f64());
            continue;
        };
        results.failed += 1;
        let log = args.logs.join(format!("{name}-{number}.log"));
        fs::write(&log, format!("{reason}\n\n{}", trial.log))?;
        let sentence = reason.lines().next().unwrap_or_default();
        eprintln!("{name} {number}: FAILED: {sentence} (see {})", log.display());
    }
    Ok(results)
}

impl Results {
    fn row(mut self, line: &Line) -> String {
        self.took.sort();
        let seconds = |took: Option<&Duration>| {
            took.map_or("–".to_owned(), |took| format!("{:.1} s", took.as_secs_f64()))
        };
        let (fault, goal) = (line.fault, line.goal);
        let (held, trials) = (self.held, self.held + self.failed);
        let median = seconds(self.took.get(self.took.len() / 2));
        let worst = seconds(self.took.last());
        format!("| {fault} | {goal} | {held} of {trials} | {median} | {worst} |")
    }
}
