//! A traced step as text.

use super::Settings;
use super::step::Traced;
use anyhow::Result;
use report::plot;
use report::{Column, milliseconds, table, thousands};
use tch_parallel::LogicalDevice;
use tch_parallel::data_parallel::{Event, Step};

/// The step, part by part, and what was copied in all.
pub fn report(settings: &Settings, traced: &Traced, times: bool) -> String {
    let Settings { devices, output_device, batch } = settings;
    let parameters = thousands(traced.parameters);
    let mut text = format!(
        "{parameters} parameters on {devices}, a batch of {batch}, outputs on {output_device}\n\n"
    );
    text += &events(&traced.events, times);
    if traced.events.iter().filter(|event| event.step == Step::Loss).count() > 1 {
        text += "(The second loss is its gradient with respect to what was gathered.)\n";
    }
    text += "\n";
    text += &totals(&traced.events);
    text += "\n";
    for device in devices.iter().filter(|device| !has_work(&traced.events, *device)) {
        text += &format!("{device} is idle: there are fewer chunks than devices\n");
    }
    text += &format!("loss {:.4}\n", traced.loss);
    text
}

fn events(events: &[Event], times: bool) -> String {
    let mut columns = vec![
        Column::Left("step"),
        Column::Left("device"),
        Column::Left("shapes"),
        Column::Right("bytes copied"),
    ];
    if times {
        columns.extend([Column::Right("begins at ms"), Column::Right("takes ms")]);
    }
    let row = |event: &Event| {
        let shapes: Vec<_> = event.shapes.iter().map(|shape| format!("{shape:?}")).collect();
        let mut row = vec![
            event.step.to_string(),
            event.device.to_string(),
            shapes.join(" "),
            thousands(event.bytes_copied),
        ];
        row.extend([event.start, event.duration].map(milliseconds));
        row
    };
    table(&columns, &events.iter().map(row).collect::<Vec<_>>())
}

/// A line for each step that copies something.
fn totals(events: &[Event]) -> String {
    let mut rows = Vec::new();
    let mut all = 0;
    for step in Step::ALL {
        let copied = |event: &&Event| event.step == step && event.bytes_copied > 0;
        let bytes: Vec<_> = events.iter().filter(copied).map(|event| event.bytes_copied).collect();
        let sum = bytes.iter().sum::<usize>();
        all += sum;
        if sum > 0 {
            let each: Vec<_> = bytes.into_iter().map(thousands).collect();
            rows.push(vec![step.to_string(), thousands(sum), each.join(" + ")]);
        }
    }
    rows.push(vec!["all".into(), thousands(all)]);
    table(&[Column::Left("copied by"), Column::Right("bytes"), Column::Left("part by part")], &rows)
}

fn has_work(events: &[Event], device: LogicalDevice) -> bool {
    events.iter().any(|event| event.step == Step::ParallelApply && event.device == device)
}

/// The step as a picture, a lane for each device.
pub fn timeline(settings: &Settings, traced: &Traced) -> Result<String> {
    let spans_of = |device| {
        let events = traced.events.iter().filter(move |event| event.device == device);
        let spans = events.map(|event| plot::Span {
            category: event.step.to_string(),
            start: event.start,
            duration: event.duration,
        });
        spans.collect()
    };
    let lanes = settings
        .devices
        .iter()
        .map(|device| plot::Lane { name: device.to_string(), spans: spans_of(device) })
        .collect();
    Ok(plot::timeline(&plot::Timeline {
        title: format!("A training step of DataParallel, {} rows", settings.batch),
        categories: Step::ALL.iter().map(Step::to_string).collect(),
        lanes,
    })?)
}
