//! The mean way of w, beside that of momentum SGD.

use super::momentum::{Trajectory, explicit, mean};
use exhibit_kit::plot::{self, Axis, Lines, Scale, Series};
use tch_parallel::Result;

/// Draws for each number of workers the mean momentum of the queue, and explicit momentum 1 - 1/M.
pub fn svg(simulated: &[(usize, Vec<Trajectory>)]) -> Result<String> {
    let series = simulated.iter().flat_map(|(workers, groups)| {
        let measured = mean(groups);
        let theory = explicit(*workers, measured.len() - 1);
        let momentum = 1.0 - 1.0 / *workers as f64;
        [
            (format!("{workers} workers, no momentum"), measured),
            (format!("1 worker, momentum {momentum}"), theory),
        ]
        .map(|(name, w)| Series { name, points: (0..).map(f64::from).zip(w).collect() })
    });
    plot::lines(&Lines {
        title: "Asynchronous updates, in the mean".into(),
        x: Axis { title: "updates".into(), scale: Scale::Linear },
        y: Axis { title: "w".into(), scale: Scale::Linear },
        series: series.collect(),
    })
}
