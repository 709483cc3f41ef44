//! What each device did when.

use super::axes::Plot;
use super::canvas::{Anchor, Canvas, INK, LABEL, MARGIN, Mark, WIDTH, rectangle, tooltip};
use super::palette::{Colour, colours};
use super::range::Range;
use std::cmp::Reverse;
use std::time::Duration;
use tch_parallel::{Error, Result};

/// Spans of time in lanes, with one lane per device or thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// What the chart shows; written above it.
    pub title: String,
    /// All kinds of spans, at most nine. Their order decides the colours, so charts with the same
    /// list can be compared. The legend names those that occur.
    pub categories: Vec<String>,
    /// The lanes, from top to bottom.
    pub lanes: Vec<Lane>,
}

/// What one device or thread did.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Written to the left (`cuda:0`).
    pub name: String,
    /// The spans, in any order. Those that overlap are drawn below each other; the lane of an idle
    /// device has none.
    pub spans: Vec<Span>,
}

/// One thing that took time.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// One of [`Timeline::categories`].
    pub category: String,
    /// When it began, counted from the same moment for all spans. The chart begins with the first
    /// span.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// Draws a timeline, as an SVG file, with time in milliseconds.
///
/// A span is at least one pixel wide, however short it is, so that it can be seen.
///
/// # Errors
/// [`Error::Argument`] if there is no span at all, or one whose category is
/// not in the list, or if there are more than nine categories.
pub fn timeline(chart: &Timeline) -> Result<String> {
    let colours = colours("categories", chart.categories.len())?.iter().copied();
    let kinds: Vec<_> = chart.categories.iter().map(String::as_str).zip(colours).collect();
    let begin = chart.spans().map(|span| span.start).min();
    let extent = begin.zip(chart.spans().map(Span::end).max());
    let (begin, end) = extent.ok_or_else(|| {
        Error::argument("lanes", "a list without any span", "at least one lane with a span")
    })?;
    let range = Range::from_zero(milliseconds(end - begin));
    let mut canvas = Canvas::new(&chart.title);
    let used = kinds.iter().filter(|(name, _)| chart.spans().any(|span| span.category == *name));
    canvas.legend(used.map(|(name, colour)| (*name, Mark::Area(colour.fill))));

    let Layout { lanes, spans, bottom } = chart.layout(canvas.bottom);
    let column = LABEL.column(chart.lanes.iter().map(|lane| lane.name.as_str()));
    let plot = Plot {
        left: MARGIN + column + 12.0,
        // Half of the text at the last tick may reach beyond the tick.
        right: WIDTH - MARGIN - LABEL.column(range.texts()) / 2.0,
        top: canvas.bottom,
        bottom,
    };
    for (index, (name, [top, bottom])) in lanes.into_iter().enumerate() {
        let area = [MARGIN, top, plot.right - MARGIN, bottom - top];
        if index % 2 == 0 {
            canvas.add(rectangle(area).set("fill", INK).set("fill-opacity", SHADE));
        }
        let baseline = (top + bottom) / 2.0 + 5.0;
        canvas.text((MARGIN + 4.0, baseline), Anchor::Start, LABEL, &LABEL.shorten(name, column));
    }
    canvas.x_axis(plot, &range, "time (ms)");
    for (lane, span, top) in spans {
        let colour = span.colour(&kinds)?;
        let start = milliseconds(span.start - begin);
        let duration = milliseconds(span.duration);
        let left = plot.x(&range, start);
        let width = (plot.x(&range, start + duration) - left).max(1.0);
        let exact = format!("{lane}, {}: {duration:.3} ms, from {start:.3} ms", span.category);
        canvas
            .add(rectangle([left, top, width, SPAN]).set("fill", colour.fill).add(tooltip(&exact)));
        if LABEL.width(&span.category) + 6.0 <= width {
            let middle = (left + width / 2.0, top + SPAN / 2.0 + 5.0);
            canvas.text_in(colour.ink, middle, Anchor::Middle, LABEL, &span.category);
        }
    }
    let lanes: Vec<_> = chart.lanes.iter().map(|lane| lane.name.as_str()).collect();
    let length = milliseconds(end - begin);
    Ok(canvas.finish(&format!("Timeline of {} over {length:.3} ms.", lanes.join(", "))))
}

/// The height of a span.
const SPAN: f64 = 26.0;
/// The distance from one row of spans in a lane to the next.
const ROW: f64 = 28.0;
/// The space above and below the spans of a lane.
const PADDING: f64 = 6.0;
/// How strongly every other lane is shaded.
const SHADE: f64 = 0.05;

/// The positions of lanes and spans, from top to bottom.
struct Layout<'a> {
    /// The lanes' names, and their tops and bottoms.
    lanes: Vec<(&'a str, [f64; 2])>,
    /// For each span, the name of its lane, the span and its top.
    spans: Vec<(&'a str, &'a Span, f64)>,
    bottom: f64,
}

impl Timeline {
    fn spans(&self) -> impl Iterator<Item = &Span> {
        self.lanes.iter().flat_map(|lane| &lane.spans)
    }

    fn layout(&self, top: f64) -> Layout<'_> {
        let mut layout = Layout { lanes: Vec::new(), spans: Vec::new(), bottom: top };
        for Lane { name, spans } in &self.lanes {
            let top = layout.bottom;
            let rows = rows(spans);
            for (index, row) in rows.iter().enumerate() {
                let top = top + PADDING + index as f64 * ROW;
                layout.spans.extend(row.iter().map(|span| (name.as_str(), *span, top)));
            }
            let between = ROW - SPAN;
            layout.bottom += 2.0 * PADDING + rows.len().max(1) as f64 * ROW - between;
            layout.lanes.push((name, [top, layout.bottom]));
        }
        layout
    }
}

impl Span {
    fn end(&self) -> Duration {
        self.start.saturating_add(self.duration)
    }

    fn colour(&self, kinds: &[(&str, Colour)]) -> Result<Colour> {
        let kind = kinds.iter().find(|(name, _)| *name == self.category);
        kind.map(|(_, colour)| *colour).ok_or_else(|| {
            let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
            let expected = format!("one of the chart's: {}", names.join(", "));
            Error::argument("category of a span", format!("{:?}", self.category), &expected)
        })
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
    for row in &mut rows {
        // The shortest are drawn last, over their neighbours, which would otherwise hide them.
        row.sort_by_key(|span| Reverse(span.duration));
    }
    rows
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests;
