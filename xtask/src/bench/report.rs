//! The table that a benchmark prints.

use std::fmt::Write as _;
use std::fs;
use std::thread;

use super::job::{Figures, Run};

/// Medians of both sides, their ratio, and what the project wants it to be.
pub(super) fn table(jobs: &Figures, steps: &Figures) -> String {
    let mut table =
        format!("{:<38}{:>12}{:>12}{:>7}  {}\n", "", "Rust", "Python", "ratio", "target");
    let mut row =
        |what: &str, figures: &Figures, figure: fn(&Run) -> f64, unit: (f64, &str), target: f64| {
            let rust = median(figures.rust.iter().map(figure).collect());
            let python = median(figures.python.iter().map(figure).collect());
            let (scale, unit) = unit;
            let (rust_said, python_said) = (rust * scale, python * scale);
            let ratio = rust / python;
            let verdict = if ratio <= target { "met" } else { "missed" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "{what:<38}{:>12}{:>12}{ratio:>6.2}x  at most {target:.2}x: {verdict}",
                format!("{rust_said:.2} {unit}"),
                format!("{python_said:.2} {unit}")
            );
        };
    row("the whole job", jobs, |run| run.wall, (1.0, "s"), 0.2);
    row("from the start to the first step", jobs, |run| run.first_step, (1.0, "s"), 0.15);
    row("peak memory of a rank", jobs, |run| run.peak_rss, (1e-6, "MB"), 0.35);
    row("a training step, data in memory", steps, |run| run.step, (1e3, "ms"), 1.0);
    table
}

/// What was run, and on what.
pub(super) fn setting(rounds: u32) -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("processor of unknown name");
    let model = model.trim_start_matches([':', ' ', '\t']);
    format!(
        "Medians of {rounds} rounds in turns. Fashion-MNIST (60,000 images), 2 ranks over gloo, 1 epoch, batch 128, libtorch 2.11.0.\n\
         Rust under launch, Python (torchvision, DataLoader with 2 workers) under torchrun.\n\
         Memory is that of the rank's own process: Python's loader processes are not counted.\n\
         {cores} cores, {model}"
    )
}

/// The middle one; of an even number, the mean of the middle two.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[middle],
        _ => (figures[middle - 1] + figures[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn the_table_compares_medians_with_targets() {
        let run = |wall, step| Run { wall, first_step: 0.2, peak_rss: 150e6, step };
        let mut jobs = Figures::default();
        for (rust, python) in [(1.0, 7.0), (1.2, 6.0), (9.0, 8.0)] {
            jobs.push((
                run(rust, 0.001),
                Run { first_step: 2.0, peak_rss: 600e6, ..run(python, 0.001) },
            ));
        }
        let mut steps = Figures::default();
        steps.push((run(1.0, 0.0012), run(1.0, 0.001)));
        let expected = [
            "                                              Rust      Python  ratio  target",
            "the whole job                               1.20 s      7.00 s  0.17x  at most 0.20x: met",
            "from the start to the first step            0.20 s      2.00 s  0.10x  at most 0.15x: met",
            "peak memory of a rank                    150.00 MB   600.00 MB  0.25x  at most 0.35x: met",
            "a training step, data in memory            1.20 ms     1.00 ms  1.20x  at most 1.00x: missed",
        ];
        assert_eq!(table(&jobs, &steps).lines().collect::<Vec<_>>(), expected);
    }
}
