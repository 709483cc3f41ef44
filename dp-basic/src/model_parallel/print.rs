//! A step of a model in two parts, as text and as a picture.

use super::Trained;
use super::network::Step;
use super::spans::{Span, at_once, busy};
use anyhow::Result;
use report::plot;
use report::{Column, milliseconds, table, thousands};
use std::time::Duration;
use tch_parallel::{Devices, LogicalDevice};

/// Where things are, what they occupy, and who works when.
pub fn report(devices: &Devices, trained: &Trained, times: bool) -> String {
    let Trained { network, step, peaks } = trained;
    let mut text = format!(
        "module1 on {}, module2 on {}, labels on {}, loss on {}\n\n",
        network.module1.device,
        network.module2.device,
        LogicalDevice::of(&step.labels),
        LogicalDevice::of(&step.loss),
    );
    let whole = step_took(step);
    let mut columns =
        vec![Column::Left("device"), Column::Right("parameter bytes"), Column::Right("peak bytes")];
    if times {
        columns.extend([Column::Right("works ms"), Column::Right("of the step")]);
    }
    let rows = devices.iter().map(|device| {
        let parts = [&network.module1, &network.module2].into_iter();
        let bytes = parts.filter(|part| part.device == device).map(|part| part.parameter_bytes());
        let peak = peaks.iter().find(|(other, _)| *other == device).map_or(0, |(_, peak)| *peak);
        let busy = busy(&step.spans, device);
        let share = 100.0 * busy.as_secs_f64() / whole.as_secs_f64();
        vec![
            device.to_string(),
            thousands(bytes.sum()),
            thousands(peak),
            milliseconds(busy),
            format!("{share:.0} %"),
        ]
    });
    text += &table(&columns, &rows.collect::<Vec<_>>());

    text += "\n";
    let mut columns = vec![Column::Left("part"), Column::Left("device")];
    if times {
        columns.extend([Column::Right("begins at ms"), Column::Right("takes ms")]);
    }
    let row = |span: &Span| {
        vec![
            span.part.into(),
            span.device.to_string(),
            milliseconds(span.start),
            milliseconds(span.duration),
        ]
    };
    text += &table(&columns, &step.spans.iter().map(row).collect::<Vec<_>>());
    text += &format!("\ndevices at work at the same time: {}\n", at_once(&step.spans));
    text
}

/// From the beginning of the first part to the end of the last.
fn step_took(step: &Step) -> Duration {
    let ends = step.spans.iter().map(|span| span.start + span.duration);
    let begin = step.spans.first().map_or(Duration::ZERO, |span| span.start);
    ends.max().unwrap_or_default().saturating_sub(begin)
}

/// The step as a picture.
pub fn timeline(devices: &Devices, step: &Step) -> Result<String> {
    let mut categories: Vec<String> = Vec::new();
    for span in &step.spans {
        if !categories.iter().any(|category| category == span.part) {
            categories.push(span.part.into());
        }
    }
    let spans_of = |device| {
        let spans = step.spans.iter().filter(move |span| span.device == device);
        let plotted = spans.map(|span| plot::Span {
            category: span.part.into(),
            start: span.start,
            duration: span.duration,
        });
        plotted.collect()
    };
    let lanes = devices
        .iter()
        .map(|device| plot::Lane { name: device.to_string(), spans: spans_of(device) })
        .collect();
    let title = "A training step of a model in two parts".into();
    Ok(plot::timeline(&plot::Timeline { title, categories, lanes })?)
}
