//! Curves over common axes, each in a panel of its own.

use super::axes::Plot;
use super::canvas::{Anchor, Canvas, INK, LABEL, MARGIN, WIDTH, dot, points, tooltip};
use super::lines::{Lines, Series};
use super::palette::colours;
use std::ptr;
use svg::node::element::Polyline;
use tch_parallel::Result;

/// How many panels are beside each other. More would be too narrow for their names.
const COLUMNS: usize = 2;
/// The height of all panels together, without their names, if none is higher or lower than [`PANEL`].
const HEIGHT: f64 = 420.0;
/// The least and the greatest height of the area inside the axes of a panel.
const PANEL: [f64; 2] = [84.0, 140.0];
/// The space between a panel and its name.
const BELOW_NAME: f64 = 7.0;
/// How strongly the other curves are drawn.
const FAINT: f64 = 0.2;

/// Draws a small panel for each curve, as an SVG file. All panels have the same axes, and each shows
/// the other curves faintly behind its own. Where many curves would hide each other in one coordinate
/// system, each can be seen and compared here.
///
/// # Errors
/// Those of [`lines()`](super::lines()), but there may be more than nine series.
pub fn panels(chart: &Lines) -> Result<String> {
    let (x_range, y_range) = chart.ranges()?;
    let colour = &colours("series", 1)?[0];
    let mut canvas = Canvas::new(&chart.title);
    canvas.y_title(&chart.y.title);

    let x_labels = LABEL.column(x_range.texts());
    let left = MARGIN + 8.0 + LABEL.column(y_range.texts());
    // Half of the text at the last tick reaches beyond the tick.
    let right = WIDTH - MARGIN - x_labels / 2.0;
    // In the gap so does half of the text at the first tick of the next panel.
    let gap = x_labels + 8.0;
    let width = (right + gap - left) / COLUMNS as f64 - gap;
    let rows = chart.series.len().div_ceil(COLUMNS);
    let height = (HEIGHT / rows as f64).clamp(PANEL[0], PANEL[1]);
    let columns = (0..COLUMNS).map(|column| left + column as f64 * (width + gap));
    let columns: Vec<_> = columns.map(|left| (left, left + width)).collect();
    for (row, series) in chart.series.chunks(COLUMNS).enumerate() {
        let room = width + x_labels / 2.0;
        let names: Vec<_> = series.iter().map(|own| LABEL.wrap(&own.name, room)).collect();
        let lines = names.iter().map(Vec::len).max().unwrap_or(0) as f64;
        let top = canvas.bottom + lines * LABEL.line_height() + BELOW_NAME;
        for (column, own) in series.iter().enumerate() {
            let (left, right) = columns[column];
            let plot = Plot { left, right, top, bottom: top + height };
            for (line, words) in names[column].iter().rev().enumerate() {
                let baseline = top - BELOW_NAME - line as f64 * LABEL.line_height();
                canvas.text((left, baseline), Anchor::Start, LABEL, words);
            }
            canvas.x_lines(plot, &x_range);
            canvas.y_lines(plot, &y_range);
            if column == 0 {
                canvas.y_labels(plot, &y_range);
            }
            let is_lowest = (row + 1) * COLUMNS + column >= chart.series.len();
            if is_lowest {
                canvas.x_labels(plot, &x_range);
            }
            let place = |&(x, y): &(f64, f64)| (plot.x(&x_range, x), plot.y(&y_range, y));
            let curve = |series: &Series| {
                let stroke = Polyline::new().set("fill", "none").set("stroke-linejoin", "round");
                stroke.set("points", points(series.points.iter().map(place)))
            };
            for other in chart.series.iter().filter(|other| !ptr::eq(*other, own)) {
                canvas.add(curve(other).set("stroke", INK).set("stroke-opacity", FAINT));
            }
            // Over all others.
            let strong = curve(own).set("stroke", colour.fill).set("stroke-width", 3);
            canvas.add(strong.add(tooltip(&own.name)));
            // A single point makes no line.
            if let [point] = &own.points[..] {
                canvas.add(dot(place(point), colour));
            }
        }
        canvas.bottom = top + height + 8.0;
    }
    let bottom = canvas.bottom - 8.0;
    canvas.x_title(Plot { left, right, top: bottom, bottom }, &chart.x.title);
    Ok(canvas.finish(&chart.description(", a panel for each")))
}

#[cfg(test)]
mod tests;
