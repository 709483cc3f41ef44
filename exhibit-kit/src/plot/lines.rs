//! Curves over a common axis, linear or logarithmic.

use super::axes::Plot;
use super::canvas::{Canvas, LABEL, MARGIN, Mark, WIDTH, dot, points, tooltip};
use super::palette::{Colour, colours};
use super::range::Range;
use svg::node::element::Polyline;
use tch_parallel::{Error, Result};

/// Several curves in one coordinate system.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// What the chart shows; written above it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves. [`lines()`] draws at most nine over each other, in this order. They are dashed
    /// differently, so that a curve can still be seen if the next one covers it exactly.
    pub series: Vec<Series>,
}

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What the axis measures, with its unit (`time of a step (ms)`).
    pub title: String,
    /// How values become distances.
    pub scale: Scale,
}

/// How values become distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Equal differences have equal lengths.
    #[default]
    Linear,
    /// Equal ratios have equal lengths; for values above zero only.
    Log,
}

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend, or above the panel.
    pub name: String,
    /// `(x, y)`, joined in this order.
    pub points: Vec<(f64, f64)>,
}

/// The height of the area inside the axes.
const HEIGHT: f64 = 260.0;
/// A chart of at most this many points has a dot at each. More dots would hide the curves.
const DOTS: usize = 96;
/// Lengths of dashes and of the gaps between them.
const DASHES: [&str; 4] = ["none", "10 6", "3 5", "12 5 3 5"];

/// Draws curves, as an SVG file. The legend names them if there are several.
///
/// # Errors
/// [`Error::Argument`] if there is no series or more than nine, a series without a point,
/// a value that is not finite, or one not above zero on a logarithmic axis.
pub fn lines(chart: &Lines) -> Result<String> {
    let (x_range, y_range) = chart.ranges()?;
    let colours = colours("series", chart.series.len())?;
    let mut canvas = Canvas::new(&chart.title);
    if chart.series.len() > 1 {
        let names = chart.series.iter().map(|series| series.name.as_str());
        let marks = (0..).zip(colours).map(|(index, colour)| Mark::Stroke(stroke(index, colour)));
        canvas.legend(names.zip(marks));
    }
    canvas.y_title(&chart.y.title);
    let top = canvas.bottom + 12.0;
    let plot = Plot {
        left: MARGIN + 8.0 + LABEL.column(y_range.texts()),
        // Half of the text at the last tick reaches beyond the tick.
        right: WIDTH - MARGIN - LABEL.column(x_range.texts()) / 2.0,
        top,
        bottom: top + HEIGHT,
    };
    canvas.y_lines(plot, &y_range);
    canvas.y_labels(plot, &y_range);
    canvas.x_axis(plot, &x_range, &chart.x.title);
    let few = chart.points().count() <= DOTS;
    for ((index, series), colour) in chart.series.iter().enumerate().zip(colours) {
        let place = |&(x, y): &(f64, f64)| (plot.x(&x_range, x), plot.y(&y_range, y));
        let line = stroke(index, colour).set("points", points(series.points.iter().map(place)));
        canvas.add(line.add(tooltip(&series.name)));
        // A single point makes no line, and without a dot it would not be visible.
        if few || series.points.len() == 1 {
            for point in &series.points {
                let exact = format!("{}: {}, {}", series.name, point.0, point.1);
                canvas.add(dot(place(point), colour).add(tooltip(&exact)));
            }
        }
    }
    Ok(canvas.finish(&chart.description("")))
}

fn stroke(index: usize, colour: &Colour) -> Polyline {
    Polyline::new()
        .set("fill", "none")
        .set("stroke", colour.fill)
        .set("stroke-width", 2)
        .set("stroke-linejoin", "round")
        .set("stroke-dasharray", DASHES[index % DASHES.len()])
}

impl Lines {
    fn points(&self) -> impl Iterator<Item = &(f64, f64)> + Clone {
        self.series.iter().flat_map(|series| &series.points)
    }

    /// What the two axes show, unless the data makes no chart.
    pub(super) fn ranges(&self) -> Result<(Range, Range)> {
        self.check()?;
        let x = Range::around(self.points().map(|point| point.0), self.x.scale);
        Ok((x, Range::around(self.points().map(|point| point.1), self.y.scale)))
    }

    /// The chart in words; `form` says how its curves are drawn.
    pub(super) fn description(&self, form: &str) -> String {
        let names: Vec<_> = self.series.iter().map(|series| series.name.as_str()).collect();
        format!("{} over {}{form}: {}.", self.y.title, self.x.title, names.join(", "))
    }

    fn check(&self) -> Result<()> {
        if self.series.is_empty() {
            return Err(Error::argument("series", "empty", "a list of at least one"));
        }
        for Series { name, points } in &self.series {
            if points.is_empty() {
                let what = format!("series {name:?}");
                return Err(Error::argument(what, "without a point", "a list of at least one"));
            }
            for (index, point) in points.iter().enumerate() {
                for (axis, value, scale) in
                    [("x", point.0, self.x.scale), ("y", point.1, self.y.scale)]
                {
                    let what = || format!("{axis} of point {index} of series {name:?}");
                    if !value.is_finite() {
                        return Err(Error::argument(what(), value, "a finite number"));
                    }
                    if scale == Scale::Log && value <= 0.0 {
                        let expected = "above 0 on a logarithmic axis";
                        return Err(Error::argument(what(), value, expected));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
