//! The card that all charts are drawn on: title, legend, colours.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::{io, result};
use tch_parallel::{Error, Result};

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn<T = ()> = result::Result<T, DrawingAreaErrorKind<io::Error>>;
/// A part of the card with two linear axes.
pub(super) type Plot<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// plotters draws at whole numbers. With this many to a pixel, curves are smooth.
const UNITS: i32 = 4;

/// A length in the units of the card.
pub(super) const fn px(pixels: i32) -> i32 {
    pixels * UNITS
}

/// The width of every chart. A telephone of 370 pixels shrinks text of 15 to more than 12, which is legible.
const WIDTH: i32 = px(440);
const MARGIN: i32 = px(16);
/// The distance from one line of the title or the legend to the next.
const LINE: i32 = px(24);
/// How many letters of a title fit on a line.
const LETTERS: usize = 34;

/// The palette of Masataka Okabe and Kei Ito ("Color Universal Design", 2008), which colour-blind people
/// can tell apart, and a grey. Its black is a dark grey, which can be told from a black page as well.
const PALETTE: [RGBColor; 9] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x6b, 0x6b, 0x6b),
];

pub(super) fn colours(what: &str, count: usize) -> Result<&'static [RGBColor]> {
    PALETTE.get(..count).ok_or_else(|| {
        let expected = "at most nine, since more colours could not be told apart";
        Error::argument(what, format!("a list of {count}"), expected)
    })
}

/// Text of this size in pixels, whose vertical middle is at its position.
fn font(pixels: i32, place: HPos) -> TextStyle<'static> {
    // plotters writes a font's size divided by this into the file.
    let size = f64::from(px(pixels)) * 1.24;
    ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(place, VPos::Center))
}

pub(super) fn label(place: HPos) -> TextStyle<'static> {
    font(15, place)
}

pub(super) fn bold(pixels: i32) -> TextStyle<'static> {
    let style = font(pixels, HPos::Left);
    TextStyle { font: style.font.style(FontStyle::Bold), ..style }
}

/// The colour of text that is legible on `colour`, whatever the colour of the page.
pub(super) fn ink(RGBColor(red, green, blue): RGBColor) -> RGBColor {
    let dark = u32::from(red) * 3 + u32::from(green) * 6 + u32::from(blue) < 1100;
    if dark { WHITE } else { RGBColor(1, 1, 1) }
}

/// About how wide a label is.
pub(super) fn width(text: &str) -> i32 {
    text.chars().count() as i32 * px(9)
}

/// The width of a column that holds `names`, which may be shortened.
pub(super) fn column<'a>(names: impl IntoIterator<Item = &'a str>) -> i32 {
    names.into_iter().map(width).max().unwrap_or(0).min(px(180))
}

/// `text`, or as much of its beginning as fits into `width`.
pub(super) fn shortened(text: &str, room: i32) -> String {
    let letters = (room / px(9)).max(1) as usize;
    match text.chars().count() <= letters {
        true => text.into(),
        false => text.chars().take(letters - 1).chain(['…']).collect(),
    }
}

/// Lines at the ticks, and axes.
pub(super) fn faint() -> RGBAColor {
    BLACK.mix(0.2)
}

/// A tick's number, without the digits that rounding has left.
pub(super) fn tick(value: &f64) -> String {
    match value.abs() {
        0.0 | 1e-4..1e6 => ((value * 1e9).round() / 1e9).to_string(),
        _ => format!("{value:e}"),
    }
}

/// A plot of lengths from 0 to `end`, in `rows` of height 1 from below. `room` is the space left and right of it.
pub(super) fn rows_plot<'a, 'b>(
    area: &'a Area<'b>,
    room: [i32; 2],
    (end, rows): (f64, usize),
    axis: &str,
) -> Drawn<Plot<'a, 'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.x_label_area_size(px(48)).y_label_area_size(room[0]).margin_right(room[1]);
    let mut plot = chart.build_cartesian_2d(0.0..end, 0.0..rows as f64)?;
    let mut mesh = plot.configure_mesh();
    mesh.disable_y_mesh().disable_y_axis().label_style(label(HPos::Center));
    mesh.light_line_style(TRANSPARENT).bold_line_style(faint()).axis_style(faint());
    mesh.x_labels(5).x_label_formatter(&tick).x_desc(axis).draw()?;
    Ok(plot)
}

/// An SVG file: a title, a legend if it names more than one, and what `draw` draws into an area of this height.
pub(super) fn card<'n>(
    title: &str,
    legend: impl IntoIterator<Item = (&'n str, RGBColor)>,
    height: i32,
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String> {
    let mut svg = String::new();
    let title = textwrap::wrap(title, LETTERS);
    let legend = places(legend);
    let rows = legend.last().map_or(0, |last| last.1 + 1);
    let top = MARGIN + LINE * (title.len() as i32 + rows) + px(6);
    let height = top + height + MARGIN;
    let drawn = || -> Drawn {
        let card = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32));
        let card = card.into_drawing_area();
        card.fill(&WHITE)?;
        let middle = |line: i32| MARGIN + LINE / 2 + line * LINE;
        for (line, text) in (0..).zip(&title) {
            card.draw_text(text, &bold(18), (MARGIN, middle(line)))?;
        }
        for (x, row, name, colour) in legend {
            let (y, half) = (middle(title.len() as i32 + row), px(8));
            card.draw(&Rectangle::new([(x, y - half), (x + px(16), y + half)], colour.filled()))?;
            card.draw_text(&name, &label(HPos::Left), (x + px(23), y))?;
        }
        draw(&card.margin(top, MARGIN, MARGIN, MARGIN))?;
        card.present()
    };
    drawn().map_err(|error| Error::argument("the chart", error, "one that can be drawn"))?;
    // Black becomes the colour of the page's text, and the card that of the page.
    let size = |units: i32| format!("width=\"{}\" height=\"{}\"", WIDTH / units, height / units);
    Ok(svg
        .replacen(&size(1), &format!("role=\"img\" {}", size(UNITS)), 1)
        .replacen("<rect ", "<rect class=\"card\" ", 1)
        .replace("\"#000000\"", "\"currentColor\""))
}

/// Where each entry of the legend begins, its row, its text and its colour. None for a single name.
fn places<'n>(
    legend: impl IntoIterator<Item = (&'n str, RGBColor)>,
) -> Vec<(i32, i32, String, RGBColor)> {
    let (mut x, mut row) = (MARGIN, 0);
    let place = |(name, colour)| {
        let name = shortened(name, WIDTH - 2 * MARGIN - px(23));
        let wide = px(23) + width(&name);
        if x > MARGIN && x + wide > WIDTH - MARGIN {
            (x, row) = (MARGIN, row + 1);
        }
        x += wide + px(14);
        (x - wide - px(14), row, name, colour)
    };
    let places: Vec<_> = legend.into_iter().map(place).collect();
    if places.len() > 1 { places } else { Vec::new() }
}
