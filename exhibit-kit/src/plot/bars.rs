//! Amounts beside each other, each the sum of its parts.

use super::axes::Plot;
use super::canvas::{
    Anchor, COLUMN, Canvas, HEADING, LABEL, MARGIN, Mark, WIDTH, card, rectangle, tooltip,
};
use super::palette::colours;
use super::range::Range;
use std::fmt::Display;
use tch_parallel::{Error, Result};

/// Horizontal bars in groups: each group (a method) has one bar per member (a device), and each bar
/// is stacked from parts (parameters, gradients …).
///
/// The bars are horizontal so that names of any length, and the amount of each bar, can be read
/// without turning one's head. With a single member and a single part this is a plain bar chart:
/// one bar per group, with the group's name.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What the chart shows; written above it.
    pub title: String,
    /// What the length of a bar means (`peak memory`); written below the axis, with the unit.
    pub axis: String,
    /// The unit of `values`.
    pub unit: Unit,
    /// The parts of a bar, from left to right; at most nine. The legend names them if there are
    /// several.
    pub parts: Vec<String>,
    /// The bars of each group, from top to bottom. The name of a single one is not shown.
    pub members: Vec<String>,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
}

/// The bars that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Written above the bars, or to the left of a single bar if it is short enough.
    pub name: String,
    /// `values[member][part]`: finite and not below zero.
    pub values: Vec<Vec<f64>>,
}

impl Bars {
    /// A chart whose bars have a single part. A group has a name, and a value for each member.
    pub fn undivided(
        title: &str,
        axis: &str,
        unit: &str,
        part: &str,
        members: &[&str],
        groups: impl Iterator<Item = (String, Vec<f64>)>,
    ) -> Bars {
        let group = |(name, values): (String, Vec<f64>)| Group {
            name,
            values: values.into_iter().map(|value| vec![value]).collect(),
        };
        Bars {
            title: title.into(),
            axis: axis.into(),
            unit: Unit::Other(unit.into()),
            parts: vec![part.into()],
            members: members.iter().map(|member| member.to_string()).collect(),
            groups: groups.map(group).collect(),
        }
    }
}

/// The unit of values.
#[derive(Debug, Clone, PartialEq)]
pub enum Unit {
    /// Bytes, shown in KiB, MiB or GiB, as suits the longest bar.
    Bytes,
    /// Any other unit, shown as it is, beside the title of the axis (`images/s`); empty for a
    /// number without a unit.
    Other(String),
}

impl Unit {
    /// The unit that is shown: its size in the unit of the values, and its name.
    fn shown(&self, largest: f64) -> (f64, &str) {
        match self {
            Unit::Other(name) => (1.0, name),
            Unit::Bytes => [(30, "GiB"), (20, "MiB"), (10, "KiB")]
                .into_iter()
                .map(|(power, name)| (f64::from(1 << power), name))
                .find(|(size, _)| largest >= *size)
                .unwrap_or((1.0, self.counted())),
        }
    }

    fn counted(&self) -> &str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Other(name) => name,
        }
    }
}

/// Draws a bar chart, as an SVG file. The sum of each bar is written at its end.
///
/// # Errors
/// [`Error::Argument`] if there are no groups, members or parts, or more
/// than nine parts; if a group's number of members, or a member's number of parts, is not the
/// chart's; if a value is below zero; if a value or the sum of a bar is not finite.
pub fn bars(chart: &Bars) -> Result<String> {
    chart.check()?;
    let colours = colours("parts", chart.parts.len())?;
    let mut canvas = Canvas::new(&chart.title);
    if chart.parts.len() > 1 {
        let parts = chart.parts.iter().zip(colours);
        canvas.legend(parts.map(|(name, colour)| (name.as_str(), Mark::Area(colour.fill))));
    }
    let Layout { headings, bars, bottom } = chart.layout(canvas.bottom);

    let largest = bars.iter().map(Bar::sum).fold(0.0, f64::max);
    let (size, unit) = chart.unit.shown(largest);
    let range = Range::from_zero(largest / size);
    let sums: Vec<_> = bars.iter().map(|bar| number(bar.sum() / size)).collect();
    let names = LABEL.column(bars.iter().map(|bar| bar.name));
    let plot = Plot {
        left: MARGIN + names + 8.0,
        // Leaves room for the sum to the right of the longest bar.
        right: WIDTH - MARGIN - 8.0 - LABEL.column(sums.iter().map(String::as_str)),
        top: canvas.bottom,
        bottom,
    };
    let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
    let axis = format!("{}{unit}", chart.axis);
    canvas.x_axis(plot, &range, &axis);
    for (top, line) in headings {
        // Covers the grid lines, which would run through the text.
        canvas.add(card([MARGIN, top, WIDTH - 2.0 * MARGIN, ROW]));
        canvas.text((MARGIN, top + 16.0), Anchor::Start, HEADING, &line);
    }
    for (bar, sum) in bars.iter().zip(&sums) {
        let baseline = bar.top + BAR / 2.0 + 5.0;
        let name = LABEL.shorten(bar.name, names);
        canvas.text((plot.left - 8.0, baseline), Anchor::End, LABEL, &name);
        let mut end = 0.0;
        for ((value, part), colour) in bar.parts.iter().zip(&chart.parts).zip(colours) {
            let left = plot.x(&range, end);
            end += value / size;
            let width = plot.x(&range, end) - left;
            let exact = format!("{}, {part}: {value} {}", bar.path, chart.unit.counted());
            let area = [left, bar.top, width, BAR];
            canvas.add(rectangle(area).set("fill", colour.fill).add(tooltip(&exact)));
        }
        canvas.text((plot.x(&range, end) + 8.0, baseline), Anchor::Start, LABEL, sum);
    }
    let groups: Vec<_> = chart.groups.iter().map(|group| group.name.as_str()).collect();
    Ok(canvas.finish(&format!("Bar chart of {axis}: {}.", groups.join(", "))))
}

/// The distance from one row to the next, of bars and of lines of headings.
const ROW: f64 = 22.0;
/// The thickness of a bar.
const BAR: f64 = 18.0;
/// The space between groups that have headings.
const GAP: f64 = 8.0;

/// The positions of headings and bars.
struct Layout<'a> {
    /// Lines of text, and their tops.
    headings: Vec<(f64, String)>,
    bars: Vec<Bar<'a>>,
    bottom: f64,
}

struct Bar<'a> {
    /// The text to the left of the bar.
    name: &'a str,
    /// The names that identify the bar among all others.
    path: String,
    parts: &'a [f64],
    top: f64,
}

impl Bar<'_> {
    fn sum(&self) -> f64 {
        self.parts.iter().sum()
    }
}

impl Bars {
    fn layout(&self, top: f64) -> Layout<'_> {
        let mut layout = Layout { headings: Vec::new(), bars: Vec::new(), bottom: top };
        let single = self.members.len() == 1;
        let fits = |group: &Group| LABEL.width(&group.name) <= COLUMN;
        let headings = !single || !self.groups.iter().all(fits);
        for group in &self.groups {
            if headings {
                for line in HEADING.wrap(&group.name, WIDTH - 2.0 * MARGIN) {
                    layout.headings.push((layout.bottom, line));
                    layout.bottom += ROW;
                }
            }
            for (member, parts) in self.members.iter().zip(&group.values) {
                let name = match (single, headings) {
                    (true, true) => "",
                    (true, false) => group.name.as_str(),
                    (false, _) => member.as_str(),
                };
                let path = match single {
                    true => group.name.clone(),
                    false => format!("{}, {member}", group.name),
                };
                let top = layout.bottom + (ROW - BAR) / 2.0;
                layout.bars.push(Bar { name, path, parts, top });
                layout.bottom += ROW;
            }
            layout.bottom += if headings { GAP } else { 0.0 };
        }
        layout
    }

    fn check(&self) -> Result<()> {
        for (what, count) in [
            ("groups", self.groups.len()),
            ("members", self.members.len()),
            ("parts", self.parts.len()),
        ] {
            if count == 0 {
                return Err(Error::argument(what, "empty", "a list of at least one"));
            }
        }
        for group in &self.groups {
            let name = &group.name;
            same_count(format!("group {name:?}"), "member", group.values.len(), &self.members)?;
            for (member, parts) in self.members.iter().zip(&group.values) {
                let bar = format!("member {member:?} of group {name:?}");
                same_count(&bar, "part", parts.len(), &self.parts)?;
                let allowed = |value: &f64| value.is_finite() && *value >= 0.0;
                if let Some(value) = parts.iter().find(|value| !allowed(value)) {
                    return Err(Error::argument(bar, value, "a finite number not below 0"));
                }
                let sum: f64 = parts.iter().sum();
                if !sum.is_finite() {
                    return Err(Error::argument(bar, format!("{sum} in sum"), "finite in sum"));
                }
            }
        }
        Ok(())
    }
}

fn same_count(what: impl Display, of: &str, found: usize, names: &[String]) -> Result<()> {
    if found == names.len() {
        return Ok(());
    }
    let expected = format!("of {} (one for each {of}: {})", names.len(), names.join(", "));
    Err(Error::argument(what, format!("a list of {found}"), &expected))
}

/// `value`, which is not below zero, with three digits.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        0.001..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        100.0..1e6 => format!("{value:.0}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests;
