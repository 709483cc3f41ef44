//! The table that a benchmark prints.

use crate::prelude::*;

/// The results of both sides, round by round. The side that should do better comes first.
pub(super) type Sides = Vec<[f64; 2]>;

/// The medians of two sides, their ratio, and the project's target for it.
pub(super) struct Table(Vec<String>);

/// The unit in which a figure is printed.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    scale: f64,
    name: &'static str,
    /// Whether more is better.
    is_rate: bool,
}

pub(super) const SECONDS: Unit = Unit { scale: 1.0, name: "s", is_rate: false };
pub(super) const MILLISECONDS: Unit = Unit { scale: 1e3, name: "ms", is_rate: false };
pub(super) const MEGABYTES: Unit = Unit { scale: 1e-6, name: "MB", is_rate: false };
pub(super) const PER_SECOND: Unit = Unit { scale: 1.0, name: "/s", is_rate: true };

impl Table {
    pub(super) fn new(sides: [&str; 2]) -> Self {
        let [first, second] = sides;
        Self(vec![format!("{:<38}{first:>12}{second:>12}{:>7}  target", "", "ratio")])
    }

    /// Adds a figure of both sides, and the largest ratio that meets the target, or of rates the smallest.
    pub(super) fn row(&mut self, what: &str, figures: Sides, unit: Unit, target: f64) {
        let [first, second] =
            [0, 1].map(|side| median(figures.iter().map(|round| round[side]).collect()));
        let ratio = first / second;
        let (most, met) =
            if unit.is_rate { ("least", ratio >= target) } else { ("most", ratio <= target) };
        let verdict = if met { "met" } else { "missed" };
        let said = |figure: f64| format!("{:.2} {}", figure * unit.scale, unit.name);
        let (first, second) = (said(first), said(second));
        let target = format!("at {most} {target:.2}x: {verdict}");
        self.0.push(format!("{what:<38}{first:>12}{second:>12}{ratio:>6.2}x  {target}"));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

pub(super) fn machine(release: &Release) -> String {
    let cores = cores();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.unwrap_or("unknown processor").trim_start_matches([':', ' ', '\t']);
    format!("libtorch {}, {cores} cores, {model}", release.torch)
}

/// The number of cores that this process may use.
pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn median(mut figures: Vec<f64>) -> f64 {
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
        let mut table = Table::new(["Rust", "Python"]);
        table.row("the whole job", vec![[1.0, 7.0], [1.2, 6.0], [9.0, 8.0]], SECONDS, 0.2);
        table.row("memory", vec![[150e6, 600e6]], MEGABYTES, 0.35);
        table.row("a training step", vec![[0.0012, 0.001]], MILLISECONDS, 1.0);
        table.row("images", vec![[900.0, 300.0]], PER_SECOND, 2.0);
        let expected = [
            "                                              Rust      Python  ratio  target",
            "the whole job                               1.20 s      7.00 s  0.17x  at most 0.20x: met",
            "memory                                   150.00 MB   600.00 MB  0.25x  at most 0.35x: met",
            "a training step                            1.20 ms     1.00 ms  1.20x  at most 1.00x: missed",
            "images                                   900.00 /s   300.00 /s  3.00x  at least 2.00x: met",
        ];
        assert_eq!(table.to_string().lines().collect::<Vec<_>>(), expected);
    }
}
