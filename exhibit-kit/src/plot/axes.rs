//! Axes on the card: lines at the ticks, labels that do not overlap, titles.

use super::canvas::{Anchor, Canvas, INK, LABEL, MARGIN, WIDTH, rounded};
use super::range::Range;
use svg::node::element::Line;

/// The area inside the axes.
#[derive(Clone, Copy)]
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Plot {
    pub(super) fn x(&self, range: &Range, value: f64) -> f64 {
        self.left + (self.right - self.left) * range.position(value)
    }

    pub(super) fn y(&self, range: &Range, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * range.position(value)
    }
}

impl Canvas {
    /// The axis along the lower edge of `plot`, its title below it, and a line up from each tick.
    pub(super) fn x_axis(&mut self, plot: Plot, range: &Range, title: &str) {
        self.x_lines(plot, range);
        self.x_labels(plot, range);
        self.x_title(plot, title);
    }

    /// A line up from each tick.
    pub(super) fn x_lines(&mut self, plot: Plot, range: &Range) {
        for (value, _) in &range.ticks {
            let x = plot.x(range, *value);
            self.grid_line((x, plot.top), (x, plot.bottom));
        }
    }

    /// The labels of the ticks, below `plot`.
    pub(super) fn x_labels(&mut self, plot: Plot, range: &Range) {
        let size = |text: &str| LABEL.width(text) + 8.0;
        for (x, text) in apart(&range.ticks, |value| plot.x(range, value), size) {
            self.text((x, plot.bottom + 19.0), Anchor::Middle, LABEL, text);
        }
    }

    /// The title of the axis, below the labels.
    pub(super) fn x_title(&mut self, plot: Plot, title: &str) {
        let middle = ((plot.left + plot.right) / 2.0).round();
        let title = LABEL.shorten(title, 2.0 * (middle - MARGIN).min(WIDTH - MARGIN - middle));
        self.text((middle, plot.bottom + 41.0), Anchor::Middle, LABEL, &title);
        self.bottom = plot.bottom + 46.0;
    }

    /// A line to the right of each tick.
    pub(super) fn y_lines(&mut self, plot: Plot, range: &Range) {
        for (value, _) in &range.ticks {
            let y = plot.y(range, *value);
            self.grid_line((plot.left, y), (plot.right, y));
        }
    }

    /// The labels of the ticks, to the left of `plot`.
    pub(super) fn y_labels(&mut self, plot: Plot, range: &Range) {
        let size = |_: &str| LABEL.line_height();
        for (y, text) in apart(&range.ticks, |value| plot.y(range, value), size) {
            self.text((plot.left - 8.0, y + 5.0), Anchor::End, LABEL, text);
        }
    }

    /// The title of the vertical axis, above all that is drawn from here on.
    pub(super) fn y_title(&mut self, title: &str) {
        let title = LABEL.shorten(title, WIDTH - 2.0 * MARGIN);
        self.text((MARGIN, self.bottom + 16.0), Anchor::Start, LABEL, &title);
        self.bottom += 22.0;
    }

    fn grid_line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let line = Line::new()
            .set("x1", rounded(from.0))
            .set("y1", rounded(from.1))
            .set("x2", rounded(to.0))
            .set("y2", rounded(to.1));
        self.add(line.set("stroke", INK).set("stroke-opacity", 0.15));
    }
}

/// The places and labels of all ticks, or of every second, third … if labels, each of a size along the
/// axis, would overlap.
fn apart(
    ticks: &[(f64, String)],
    place: impl Fn(f64) -> f64,
    size: impl Fn(&str) -> f64,
) -> impl Iterator<Item = (f64, &str)> {
    let are_apart = |stride: &usize| {
        let labels: Vec<_> = ticks.iter().step_by(*stride).collect();
        labels.windows(2).all(|pair| {
            let distance = (place(pair[1].0) - place(pair[0].0)).abs();
            distance >= (size(&pair[0].1) + size(&pair[1].1)) / 2.0
        })
    };
    let stride = (1..ticks.len()).find(are_apart).unwrap_or(ticks.len().max(1));
    ticks.iter().step_by(stride).map(move |(value, text)| (place(*value), text.as_str()))
}
