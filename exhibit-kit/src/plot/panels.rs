//! Curves over common axes, each in a panel of its own.

use super::card::{card, colours, faint, px, shortened};
use super::lines::{Lines, Stroke};
use plotters::style::Color;
use std::ptr;
use tch_parallel::Result;

/// How many panels are beside each other. More would be too narrow for their names.
const COLUMNS: usize = 2;

/// Draws a small panel for each curve, as an SVG file. All panels have the same axes, and each shows
/// the other curves faintly behind its own. Where many curves would hide each other in one coordinate
/// system, each can be seen and compared here.
///
/// # Errors
/// Those of [`lines()`](super::lines()), but there may be more than nine series.
pub fn panels(chart: &Lines) -> Result<String> {
    let ranges = chart.ranges()?;
    let colour = colours("series", 1)?[0];
    let rows = chart.series.len().div_ceil(COLUMNS);
    let title = format!("{}: {}", chart.title, chart.y.title);
    card(&title, [], px(190) * rows as i32, |area| {
        for (area, own) in area.split_evenly((rows, COLUMNS)).iter().zip(&chart.series) {
            let others = chart.series.iter().filter(|other| !ptr::eq(*other, own));
            let others = others.map(|other| Stroke::unbroken(other, faint().into()));
            // Over all others. A single point makes no line.
            let dots = own.points.len() == 1;
            let strong =
                Stroke { dots, ..Stroke::unbroken(own, colour.stroke_width(px(3) as u32)) };
            let (wide, _) = area.dim_in_pixel();
            let name = shortened(&own.name, wide as i32);
            chart.draw(area, &name, ranges.clone(), &mut others.chain([strong]))?;
        }
        Ok(())
    })
}
