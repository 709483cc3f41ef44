//! Curves over a common axis, linear or logarithmic.

use super::card::{Area, Drawn, card, colours, faint, label, px, tick};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::ops::Range;
use tch_parallel::Result;
use tch_parallel_base::check;

/// Several curves in one coordinate system.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// What the chart shows; written above it.
    pub title: String,
    /// What the horizontal axis measures, with its unit (`time of a step (ms)`).
    pub x: String,
    /// What the vertical axis measures, likewise.
    pub y: String,
    /// How values become distances, on both axes.
    pub scale: Scale,
    /// The curves, at most nine for [`lines()`]. Different dashes let a curve be seen that the next one covers.
    pub series: Vec<Series>,
}

/// How values become distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences have equal lengths.
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

pub(super) struct Stroke<'a> {
    pub(super) points: &'a [(f64, f64)],
    pub(super) style: ShapeStyle,
    /// The lengths of dashes and of the gaps between them, if it has any.
    pub(super) dashes: Option<(i32, i32)>,
    pub(super) dots: bool,
}

impl Stroke<'_> {
    pub(super) fn unbroken(series: &Series, style: ShapeStyle) -> Stroke<'_> {
        Stroke { points: &series.points, style, dashes: None, dots: false }
    }
}

/// A chart of at most this many points has a dot at each. More dots would hide the curves.
const DOTS: usize = 96;
const DASHES: [Option<(i32, i32)>; 4] =
    [None, Some((px(10), px(6))), Some((px(3), px(5))), Some((px(6), px(10)))];

/// Draws curves, as an SVG file. The legend names them if there are several.
///
/// # Errors
/// [`Error::Argument`](tch_parallel::Error::Argument) without series or points, for more than nine series, and for a
/// value that is not finite, or not above 0 on a logarithmic axis.
pub fn lines(chart: &Lines) -> Result<String> {
    let ranges = chart.ranges()?;
    let colours = colours("series", chart.series.len())?.iter().copied();
    let few = chart.points().count() <= DOTS;
    let strokes = chart.series.iter().zip(colours.clone()).zip(DASHES.into_iter().cycle());
    let strokes = strokes.map(|((series, colour), dashes)| Stroke {
        dashes,
        // A single point makes no line, and without a dot it would not be visible.
        dots: few || series.points.len() == 1,
        ..Stroke::unbroken(series, colour.stroke_width(px(2) as u32))
    });
    let legend = chart.series.iter().map(|series| series.name.as_str()).zip(colours.clone());
    card(&chart.title, legend, px(340), |area| chart.draw(area, None, ranges, &mut { strokes }))
}

impl Lines {
    /// A chart with a title, and a title for each of the two axes.
    pub fn new(title: &str, [x, y]: [&str; 2], scale: Scale, series: Vec<Series>) -> Lines {
        Lines { title: title.into(), x: x.into(), y: y.into(), scale, series }
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> + Clone {
        self.series.iter().flat_map(|series| &series.points)
    }

    /// What the two axes show, unless the data makes no chart.
    pub(super) fn ranges(&self) -> Result<[Range<f64>; 2]> {
        self.check()?;
        let x = around(self.points().map(|point| point.0), self.scale);
        Ok([x, around(self.points().map(|point| point.1), self.scale)])
    }

    /// Draws curves and the two axes into an area. One with a name has that in place of the axes' titles.
    pub(super) fn draw(
        &self,
        area: &Area<'_>,
        name: Option<&str>,
        ranges: [Range<f64>; 2],
        strokes: &mut dyn Iterator<Item = Stroke<'_>>,
    ) -> Drawn {
        match self.scale {
            Scale::Linear => self.draw_over(area, name, ranges, strokes),
            Scale::Log => self.draw_over(area, name, ranges.map(|it| it.log_scale()), strokes),
        }
    }

    fn draw_over<R: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>>(
        &self,
        area: &Area<'_>,
        name: Option<&str>,
        [x, y]: [R; 2],
        strokes: &mut dyn Iterator<Item = Stroke<'_>>,
    ) -> Drawn {
        area.draw_text(name.unwrap_or(&self.y), &label(HPos::Left), (0, px(12)))?;
        let (wide, high) = area.dim_in_pixel();
        let mut chart = ChartBuilder::on(area);
        chart.margin_top(px(30)).margin_right(px(16)).y_label_area_size(px(54));
        chart.x_label_area_size(px(if name.is_some() { 24 } else { 48 }));
        let mut plot = chart.build_cartesian_2d(x, y)?;
        let mut mesh = plot.configure_mesh();
        mesh.light_line_style(TRANSPARENT).bold_line_style(faint()).axis_style(faint());
        mesh.x_labels((wide as usize / px(60) as usize).max(2));
        mesh.y_labels((high as usize / px(50) as usize).max(2));
        mesh.x_desc(if name.is_some() { "" } else { &self.x }).label_style(label(HPos::Center));
        mesh.x_label_formatter(&tick).y_label_formatter(&tick).draw()?;
        for Stroke { points, style, dashes, dots } in strokes {
            let points = points.iter().copied();
            if let Some((dash, gap)) = dashes {
                plot.draw_series(DashedLineSeries::new(points.clone(), dash, gap, style))?;
            } else {
                plot.draw_series(LineSeries::new(points.clone(), style))?;
            }
            let dot = |point| Circle::new(point, px(4), style.filled());
            plot.draw_series(points.filter(|_| dots).map(dot))?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        check(!self.series.is_empty(), "series", "empty", "a list of at least one")?;
        for Series { name, points } in &self.series {
            let what = format_args!("series {name:?}");
            check(!points.is_empty(), what, "without a point", "a list of at least one")?;
            for (index, point) in points.iter().enumerate() {
                for (axis, value) in [("x", point.0), ("y", point.1)] {
                    let what = format_args!("{axis} of point {index} of series {name:?}");
                    check(value.is_finite(), what, value, "a finite number")?;
                    let fits = self.scale == Scale::Linear || value > 0.0;
                    check(fits, what, value, "above 0 on a logarithmic axis")?;
                }
            }
        }
        Ok(())
    }
}

/// From the least of `values` to the greatest, or around them if they are too close for different ticks.
fn around(values: impl Iterator<Item = f64> + Clone, scale: Scale) -> Range<f64> {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    let largest = low.abs().max(high.abs());
    match scale {
        _ if high - low > 1e-6 * largest => low..high,
        Scale::Log => low / 2.0..high * 2.0,
        Scale::Linear if largest == 0.0 => -1.0..1.0,
        Scale::Linear => low - largest / 10.0..high + largest / 10.0,
    }
}
