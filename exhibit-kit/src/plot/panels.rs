//! Curves over common axes, each in a panel of its own.

use super::card::{card, colours, faint, label, px, shortened};
use super::lines::{Lines, Stroke};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;
use std::ptr;
use tch_parallel::Result;

/// How many panels are beside each other. More would be too narrow for their names.
const COLUMNS: usize = 2;

/// Draws a small panel for each curve, as an SVG file, with the others faintly behind it, on the same axes: curves that
/// would hide each other can be seen. Fails as [`lines()`](super::lines()), but there may be more than nine series.
pub fn panels(chart: &Lines) -> Result<String> {
    let ranges = chart.ranges()?;
    let colour = colours("series", 1)?[0];
    let rows = chart.series.len().div_ceil(COLUMNS);
    let height = px(166) * rows as i32;
    card(&chart.title, [], height + 2 * px(24), |area| {
        area.draw_text(&chart.y, &label(HPos::Left), (0, px(12)))?;
        let (panels, below) = area.split_vertically(height + px(24));
        let middle = below.dim_in_pixel().0 as i32 / 2;
        below.draw_text(&chart.x, &label(HPos::Center), (middle, px(12)))?;
        let panels = panels.margin(px(24), 0, 0, 0).split_evenly((rows, COLUMNS));
        for (area, own) in panels.iter().zip(&chart.series) {
            let [thin, thick] = [px(1), px(3)].map(|width| width as u32);
            let others = chart.series.iter().filter(|other| !ptr::eq(*other, own));
            let others = others.map(|other| Stroke::unbroken(other, faint().stroke_width(thin)));
            // Over all others. A single point makes no line.
            let dots = own.points.len() == 1;
            let strong = Stroke { dots, ..Stroke::unbroken(own, colour.stroke_width(thick)) };
            let (wide, _) = area.dim_in_pixel();
            let name = shortened(&own.name, wide as i32);
            chart.draw(area, Some(&name), ranges.clone(), &mut others.chain([strong]))?;
        }
        Ok(())
    })
}
