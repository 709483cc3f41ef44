//! Amounts beside each other, each the sum of its parts.

use super::card::{bold, card, colours, column, label, px, rows_plot, shortened};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::fmt::Display;
use tch_parallel::{Error, Result};
use tch_parallel_base::check;

/// Bars in groups: each group (a method) has a bar per member (a device), stacked from parts (parameters, gradients …).
/// They are horizontal, so that names of any length can be read without turning one's head. With a single member and a
/// single part this is a plain bar chart: one bar per group, with the group's name.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What the chart shows; written above it.
    pub title: String,
    /// What the length of a bar means (`peak memory`); written below the axis, with the unit.
    pub axis: String,
    /// The unit of `values`.
    pub unit: Unit,
    /// The parts of a bar, from left to right; at most nine. The legend names them if there are several.
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
            parts: vec![axis.into()],
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
    /// Any other unit, shown as it is, beside the title of the axis (`images/s`); empty for a number without a unit.
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
                .unwrap_or((1.0, "bytes")),
        }
    }
}

/// Draws a bar chart, as an SVG file. The sum of each bar is written at its end.
///
/// # Errors
/// [`Error::Argument`] without groups, members or parts, for more than nine parts, for numbers of members or parts that
/// are not the chart's, for a value below zero, and for a value or sum that is not finite.
pub fn bars(chart: &Bars) -> Result<String> {
    chart.check()?;
    let colours = colours("parts", chart.parts.len())?.iter().copied();
    let rows = chart.rows();
    let sums = rows.iter().filter_map(|row| row.1).map(|bar| bar.iter().sum());
    let largest: f64 = sums.fold(0.0, f64::max);
    let (size, unit) = chart.unit.shown(largest);
    let end = if largest > 0.0 { largest / size } else { 1.0 };
    let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
    let axis = format!("{}{unit}", chart.axis);
    let names = column(rows.iter().filter(|row| row.1.is_some()).map(|row| row.0));
    let legend = chart.parts.iter().map(String::as_str).zip(colours.clone());
    let height = px(48 + 22 * rows.len() as i32);
    card(&chart.title, legend, height, |area| {
        // On the right, the sum of the longest bar needs room.
        let mut plot = rows_plot(area, [names + px(8), px(56)], (end, rows.len()), &axis)?;
        for ((name, parts), from_top) in rows.iter().zip(1..) {
            let low = (rows.len() - from_top) as f64;
            let beside = |x, offset, text, style| {
                EmptyElement::at((x, low + 0.5)) + Text::new(text, (offset, 0), style)
            };
            let Some(parts) = parts else {
                let name = shortened(name, px(400));
                plot.draw_series([beside(0.0, -names - px(8), name, bold(15))])?;
                continue;
            };
            let name = shortened(name, names.max(px(9)));
            plot.draw_series([beside(0.0, -px(8), name, label(HPos::Right))])?;
            let mut reached = 0.0;
            for (value, colour) in parts.iter().zip(colours.clone()) {
                let from = (reached, low + 0.09);
                reached += value / size;
                let bar = Rectangle::new([from, (reached, low + 0.91)], colour.filled());
                plot.draw_series([bar])?;
            }
            plot.draw_series([beside(reached, px(8), number(reached), label(HPos::Left))])?;
        }
        Ok(())
    })
}

impl Bars {
    /// The rows from top to bottom: a heading, or the name of a bar and its parts.
    fn rows(&self) -> Vec<(&str, Option<&[f64]>)> {
        let single = self.members.len() == 1;
        let headings = !single || self.groups.iter().any(|group| group.name.len() > 15);
        let mut rows = Vec::new();
        for group in &self.groups {
            rows.extend(headings.then_some((group.name.as_str(), None)));
            for (member, parts) in self.members.iter().zip(&group.values) {
                let name = match (single, headings) {
                    (true, true) => "",
                    (true, false) => &group.name,
                    (false, _) => member,
                };
                rows.push((name, Some(parts.as_slice())));
            }
        }
        rows
    }

    fn check(&self) -> Result<()> {
        let filled = |what, count: usize| check(count > 0, what, "empty", "a list of at least one");
        filled("groups", self.groups.len())?;
        filled("members", self.members.len())?;
        filled("parts", self.parts.len())?;
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
                check(sum.is_finite(), bar, format_args!("{sum} in sum"), "finite in sum")?;
            }
        }
        Ok(())
    }
}

fn same_count(what: impl Display, of: &str, found: usize, names: &[String]) -> Result<()> {
    let expected = format!("of {} (one for each {of}: {})", names.len(), names.join(", "));
    check(found == names.len(), what, format_args!("a list of {found}"), expected)
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
