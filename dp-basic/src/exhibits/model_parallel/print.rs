//! A step of a model in two parts, as text.

use super::Trained;
use super::network::Network;
use crate::exhibits::spans::{Show, Span, at_once, busy};
use report::{Column, milliseconds, thousands};
use std::time::Duration;
use tch_parallel::{Devices, LogicalDevice};

/// Where things are, what they occupy, and who works when.
pub fn print(devices: &Devices, trained: &Trained, show: &Show) {
    let Trained { network: Network { module1, module2 }, step, peaks } = trained;
    println!(
        "module1 on {}, module2 on {}, labels on {}, loss on {}\n",
        module1.device,
        module2.device,
        LogicalDevice::of(&step.labels),
        LogicalDevice::of(&step.loss),
    );
    let rows = devices.iter().map(|device| {
        let parts = [module1, module2].into_iter().filter(|part| part.device == device);
        let busy = busy(&step.spans, device);
        let share = 100.0 * busy.as_secs_f64() / took(&step.spans).as_secs_f64();
        vec![
            device.to_string(),
            thousands(parts.map(|part| part.parameter_bytes()).sum()),
            thousands(peaks.get(&device).copied().unwrap_or(0)),
            milliseconds(busy),
            format!("{share:.0} %"),
        ]
    });
    println!("{}", show.table(&DEVICES, &rows.collect::<Vec<_>>()));
    let rows = step.spans.iter().map(|(device, span)| {
        let [start, duration] = [span.start, span.duration].map(milliseconds);
        vec![span.category.clone(), device.to_string(), start, duration]
    });
    print!("{}", show.table(&PARTS, &rows.collect::<Vec<_>>()));
    println!("\ndevices at work at the same time: {}", at_once(&step.spans));
}

const DEVICES: [Column; 5] = [
    Column::Left("device"),
    Column::Right("parameter bytes"),
    Column::Right("peak bytes"),
    Column::Right("works ms"),
    Column::Right("of the step"),
];

const PARTS: [Column; 4] = [
    Column::Left("part"),
    Column::Left("device"),
    Column::Right("begins at ms"),
    Column::Right("takes ms"),
];

/// From the beginning of the first part to the end of the last.
fn took(spans: &[Span]) -> Duration {
    let ends = spans.iter().map(|(_, span)| span.start + span.duration);
    let begin = spans.first().map_or(Duration::ZERO, |(_, span)| span.start);
    ends.max().unwrap_or_default().saturating_sub(begin)
}
