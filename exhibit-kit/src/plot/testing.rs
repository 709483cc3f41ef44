//! Reads from an SVG file what the tests of all charts check.

use super::canvas::{Font, WIDTH};
use roxmltree::{Document, Node};

/// The parts of a chart that carry its data.
pub(super) struct Drawing {
    /// Spans, and parts of bars: the rectangles that have a tooltip.
    pub(super) areas: Vec<Area>,
    /// All text on the card.
    pub(super) texts: Vec<String>,
    /// The corners of each curve, without those in the legend.
    pub(super) curves: Vec<Vec<(f64, f64)>>,
}

pub(super) struct Area {
    pub(super) tooltip: String,
    pub(super) fill: String,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
}

/// Reads a chart, which must be well-formed and must draw nothing beyond the edges of its card.
pub(super) fn read(svg: &str) -> Drawing {
    let document = Document::parse(svg).unwrap();
    let height = number(document.root_element(), "height");
    let inside = |x: f64, y: f64, what: &str| {
        assert!((0.0..=WIDTH).contains(&x) && (0.0..=height).contains(&y), "{what} at {x}, {y}");
    };
    let mut drawing = Drawing { areas: Vec::new(), texts: Vec::new(), curves: Vec::new() };
    for node in document.descendants() {
        let tooltip = node.children().find(|child| child.has_tag_name("title")).map(content);
        match node.tag_name().name() {
            "rect" => {
                let (left, top) = (number(node, "x"), number(node, "y"));
                let right = left + number(node, "width");
                inside(left, top, "rectangle");
                inside(right, top + number(node, "height"), "rectangle");
                if let Some(tooltip) = tooltip {
                    let fill = node.attribute("fill").unwrap().to_owned();
                    drawing.areas.push(Area { tooltip, fill, left, right, top });
                }
            }
            "text" => {
                let text = content(node);
                let bold = node.has_attribute("font-weight");
                let width = Font { size: number(node, "font-size"), bold }.width(&text);
                let left = match node.attribute("text-anchor").unwrap() {
                    "start" => number(node, "x"),
                    "middle" => number(node, "x") - width / 2.0,
                    _ => number(node, "x") - width,
                };
                inside(left, number(node, "y"), &text);
                inside(left + width, number(node, "y"), &text);
                drawing.texts.push(text);
            }
            "polyline" => {
                let points = node.attribute("points").unwrap().split(' ').map(|point| {
                    let (x, y) = point.split_once(',').unwrap();
                    (x.parse().unwrap(), y.parse().unwrap())
                });
                let points: Vec<(f64, f64)> = points.collect();
                points.iter().for_each(|&(x, y)| inside(x, y, "curve"));
                if tooltip.is_some() {
                    drawing.curves.push(points);
                }
            }
            _ => {}
        }
    }
    drawing
}

fn content(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}

fn number(node: Node<'_, '_>, attribute: &str) -> f64 {
    node.attribute(attribute).unwrap().parse().unwrap()
}

/// Names that break a careless drawing.
pub(super) fn awkward_names() -> Vec<String> {
    [
        "",
        "<b>\"'&amp;]]>",
        "a name\nwith\u{0} control\u{1b}[1m characters",
        "one-word-that-is-wider-than-any-column-and-than-the-card-itself-and-cannot-be-broken",
        "a name that goes on for so long that it does not fit into one line of the card, nor two",
        "装置零号機的顯示記憶體",
    ]
    .map(String::from)
    .to_vec()
}
