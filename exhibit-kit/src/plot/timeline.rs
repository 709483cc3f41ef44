//! What each device did when.

use super::card::{card, colours, column, ink, label, px, rows_plot, shortened, width};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::{cmp::Reverse, time::Duration};
use tch_parallel::{Error, Result};

/// Spans of time in lanes, with one lane per device or thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// What the chart shows; written above it.
    pub title: String,
    /// All kinds of spans, at most nine. The same list has the same colours. The legend names those that occur.
    pub categories: Vec<String>,
    /// The lanes, from top to bottom.
    pub lanes: Vec<Lane>,
}

/// What one device or thread did.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Written to the left (`cuda:0`).
    pub name: String,
    /// The spans, in any order. Those that overlap are drawn below each other; the lane of an idle device has none.
    pub spans: Vec<Span>,
}

/// One thing that took time.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// One of [`Timeline::categories`].
    pub category: String,
    /// When it began, counted from the same moment for all spans. The chart begins with the first span.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// Draws a timeline, as an SVG file, with time in milliseconds; a span is at least one pixel wide. [`Error::Argument`]
/// without any span, for one whose category is not in the list, and for more than nine categories.
pub fn timeline(chart: &Timeline) -> Result<String> {
    let colours = colours("categories", chart.categories.len())?.iter().copied();
    let kinds: Vec<_> = chart.categories.iter().map(String::as_str).zip(colours).collect();
    let spans = || chart.lanes.iter().flat_map(|lane| &lane.spans);
    let (Some(begin), Some(end)) = (spans().map(|s| s.start).min(), spans().map(Span::end).max())
    else {
        let expected = "at least one lane with a span";
        return Err(Error::argument("lanes", "a list without any span", expected));
    };
    let colour = |span: &Span| kinds.iter().find(|(name, _)| *name == span.category).map(|it| it.1);
    if let Some(other) = spans().find(|span| colour(span).is_none()) {
        let expected = format!("one of the chart's: {}", chart.categories.join(", "));
        let found = format!("{:?}", other.category);
        return Err(Error::argument("category of a span", found, &expected));
    }
    let end = milliseconds(end - begin).max(f64::MIN_POSITIVE);
    let names = column(chart.lanes.iter().map(|lane| lane.name.as_str()));
    let lanes: Vec<_> = chart.lanes.iter().map(|lane| (lane, rows(&lane.spans))).collect();
    let high: usize = lanes.iter().map(|(_, rows)| rows.len().max(1)).sum();
    let used = kinds.iter().copied().filter(|(name, _)| spans().any(|s| s.category == *name));
    card(&chart.title, used, px(48 + 34 * high as i32), |area| {
        let mut plot = rows_plot(area, [names + px(12), px(16)], (end, high), "time (ms)")?;
        let pixels = f64::from(plot.plotting_area().dim_in_pixel().0);
        let mut top = high as f64;
        for ((lane, rows), index) in lanes.iter().zip(0..) {
            let bottom = top - rows.len().max(1) as f64;
            let shade = BLACK.mix(if index % 2 == 0 { 0.05 } else { 0.0 });
            plot.draw_series([Rectangle::new([(0.0, top), (end, bottom)], shade.filled())])?;
            let at = (0.0, (top + bottom) / 2.0);
            let name = shortened(&lane.name, names);
            let name = Text::new(name, (-names - px(8), 0), label(HPos::Left));
            plot.draw_series([EmptyElement::at(at) + name])?;
            for row in rows {
                top -= 1.0;
                for (span, colour) in row.iter().filter_map(|span| Some((span, colour(span)?))) {
                    let from = milliseconds(span.start - begin);
                    // At least a pixel, however short it is, so that it can be seen.
                    let long = milliseconds(span.duration).max(end * f64::from(px(1)) / pixels);
                    let corners = [(from, top + 0.05), (from + long, top + 0.95)];
                    plot.draw_series([Rectangle::new(corners, colour.filled())])?;
                    if width(&span.category) <= (long / end * pixels) as i32 {
                        let middle = (from + long / 2.0, top + 0.5);
                        let ink = ink(colour);
                        let style = label(HPos::Center).color(&ink);
                        plot.draw_series([Text::new(span.category.clone(), middle, style)])?;
                    }
                }
            }
            top = bottom;
        }
        Ok(())
    })
}

impl Span {
    fn end(&self) -> Duration {
        self.start.saturating_add(self.duration)
    }
}

/// The spans in as few rows as they fit into without overlapping.
fn rows(spans: &[Span]) -> Vec<Vec<&Span>> {
    let mut in_order: Vec<_> = spans.iter().collect();
    in_order.sort_by_key(|span| (span.start, Reverse(span.duration)));
    let mut rows: Vec<Vec<&Span>> = Vec::new();
    for span in in_order {
        let free = |row: &&mut Vec<&Span>| row.last().is_none_or(|last| last.end() <= span.start);
        match rows.iter_mut().find(free) {
            Some(row) => row.push(span),
            None => rows.push(vec![span]),
        }
    }
    // The shortest are drawn last, over their neighbours, which would otherwise hide them.
    rows.iter_mut().for_each(|row| row.sort_by_key(|span| Reverse(span.duration)));
    rows
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
