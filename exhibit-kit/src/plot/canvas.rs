//! The card that all charts are drawn on: title, legend, text that fits.

use super::palette::Colour;
use svg::Document;
use svg::node::Node;
use svg::node::element::{Circle, Description, Group, Polyline, Rectangle, Text, Title};

/// The width of every chart. A telephone that shows it 370 pixels wide shrinks text of 15 to more
/// than 12 pixels, which is legible.
pub(super) const WIDTH: f64 = 440.0;
/// The space at the edges of the card.
pub(super) const MARGIN: f64 = 16.0;

/// The widest column of names beside a chart; the chart itself needs the rest.
pub(super) const COLUMN: f64 = 140.0;
/// The colour of text and lines: black in a file of its own, and that of a page's text in a page.
pub(super) const INK: &str = "currentColor";

#[derive(Clone, Copy)]
pub(super) struct Font {
    pub(super) size: f64,
    pub(super) bold: bool,
}

pub(super) const TITLE: Font = Font { size: 18.0, bold: true };
pub(super) const HEADING: Font = Font { size: 15.0, bold: true };
pub(super) const LABEL: Font = Font { size: 15.0, bold: false };

impl Font {
    /// The width of a column that holds `names`, at most [`COLUMN`]. Wider names must be shortened.
    pub(super) fn column<'a>(self, names: impl IntoIterator<Item = &'a str>) -> f64 {
        names.into_iter().map(|name| self.width(name)).fold(0.0, f64::max).min(COLUMN)
    }

    /// The distance from one line of text to the next.
    pub(super) fn line_height(self) -> f64 {
        self.size * 1.3
    }

    /// The most that `text` is wide. The font depends on the reader's machine, so this computes
    /// with DejaVu Sans, one of the widest in use.
    pub(super) fn width(self, text: &str) -> f64 {
        let ems: f64 = text
            .chars()
            .map(|c| match c {
                'i' | 'j' | 'l' | 'I' | ' ' | '.' | ',' | ':' | ';' | '\'' | '|' => 0.36,
                'f' | 't' | 'r' | '-' | '(' | ')' | '[' | ']' | '/' => 0.42,
                'c' | 'k' | 's' | 'v' | 'x' | 'y' | 'z' => 0.6,
                'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.0,
                '+' | '=' | '<' | '>' | '~' | '^' | '#' | '&' => 0.84,
                c if c.is_ascii_uppercase() => 0.79,
                c if c.is_ascii() => 0.64,
                _ => 1.0,
            })
            .sum();
        // DejaVu Sans Bold is about a tenth wider.
        ems * self.size * if self.bold { 1.12 } else { 1.0 }
    }

    /// `text`, or as much of its beginning as fits into `width` with an ellipsis.
    pub(super) fn shorten(self, text: &str, width: f64) -> String {
        if self.width(text) <= width {
            return text.to_owned();
        }
        let mut short = text.to_owned();
        while !short.is_empty() && self.width(&short) + self.size > width {
            short.pop();
        }
        short.truncate(short.trim_end().len());
        short.push('…');
        short
    }

    /// `text` in lines that are at most `width` wide, broken between words where that is possible.
    pub(super) fn wrap(self, text: &str, width: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if self.width(&format!("{line} {word}")) <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(self.shorten(word, width)),
            }
        }
        lines
    }
}

/// Which point of a text is given.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The symbol before a name in the legend.
pub(super) enum Mark {
    /// A square of this colour.
    Area(&'static str),
    /// A line with all its attributes except the points.
    Stroke(Polyline),
}

/// A card that grows downwards.
pub(super) struct Canvas {
    body: Group,
    title: String,
    /// Everything above this height is already used.
    pub(super) bottom: f64,
}

impl Canvas {
    /// A card with only its title, which may be empty.
    pub(super) fn new(title: &str) -> Canvas {
        let mut canvas = Canvas { body: Group::new(), title: printable(title), bottom: MARGIN };
        for line in TITLE.wrap(title, WIDTH - 2.0 * MARGIN) {
            canvas.text((MARGIN, canvas.bottom + TITLE.size), Anchor::Start, TITLE, &line);
            canvas.bottom += TITLE.line_height();
        }
        canvas.bottom += 6.0;
        canvas
    }

    /// The names of what is drawn, from left to right in as many rows as they need.
    pub(super) fn legend<'a>(&mut self, entries: impl IntoIterator<Item = (&'a str, Mark)>) {
        const ROW: f64 = 24.0;
        let mut x = MARGIN;
        for (name, mark) in entries {
            let mark_width = if let Mark::Area(_) = mark { 16.0 } else { 36.0 };
            let indent = mark_width + 7.0;
            let name = LABEL.shorten(name, WIDTH - 2.0 * MARGIN - indent);
            let end = x + indent + LABEL.width(&name);
            if x > MARGIN && end > WIDTH - MARGIN {
                x = MARGIN;
                self.bottom += ROW;
            }
            let middle = self.bottom + ROW / 2.0;
            match mark {
                Mark::Area(fill) => {
                    self.add(rectangle([x, middle - 8.0, 16.0, 16.0]).set("fill", fill));
                }
                Mark::Stroke(line) => {
                    let ends = [(x, middle), (x + mark_width, middle)];
                    self.add(line.set("points", points(ends)));
                }
            }
            self.text((x + indent, middle + 5.0), Anchor::Start, LABEL, &name);
            x += indent + LABEL.width(&name) + 14.0;
        }
        self.bottom += ROW + 6.0;
    }

    /// Text whose baseline is at the height of `at`.
    pub(super) fn text(&mut self, at: (f64, f64), anchor: Anchor, font: Font, text: &str) {
        self.text_in(INK, at, anchor, font, text);
    }

    /// Like `text`, in another colour.
    pub(super) fn text_in(
        &mut self,
        colour: &str,
        at: (f64, f64),
        anchor: Anchor,
        font: Font,
        text: &str,
    ) {
        let text = Text::new(printable(text))
            .set("x", rounded(at.0))
            .set("y", rounded(at.1))
            .set("text-anchor", format!("{anchor:?}").to_lowercase())
            .set("font-size", font.size)
            .set("fill", colour);
        self.add(if font.bold { text.set("font-weight", "bold") } else { text });
    }

    pub(super) fn add(&mut self, node: impl Node) {
        self.body.append(Box::new(node) as Box<dyn Node>);
    }

    /// The text of the SVG file. `description` says in words what kind of chart it is and what it
    /// shows, for those who cannot see it.
    pub(super) fn finish(self, description: &str) -> String {
        let height = (self.bottom + MARGIN).ceil();
        Document::new()
            .set("role", "img")
            .set("width", WIDTH)
            .set("height", height)
            .set("viewBox", (0.0, 0.0, WIDTH, height))
            .set("font-family", "sans-serif")
            .add(Title::new(self.title))
            .add(Description::new().add(svg::node::Text::new(printable(description))))
            .add(card([0.0, 0.0, WIDTH, height]).set("rx", 8))
            .add(self.body)
            .to_string()
    }
}

/// A piece of the card, which hides what is behind it. It is white, unless the page that the chart is
/// a part of gives the class `card` the colour of the page.
pub(super) fn card(area: [f64; 4]) -> Rectangle {
    rectangle(area).set("class", "card").set("fill", "#ffffff")
}

pub(super) fn rectangle([x, y, width, height]: [f64; 4]) -> Rectangle {
    Rectangle::new()
        .set("x", rounded(x))
        .set("y", rounded(y))
        .set("width", rounded(width))
        .set("height", rounded(height))
}

pub(super) fn dot(at: (f64, f64), colour: &Colour) -> Circle {
    Circle::new()
        .set("cx", rounded(at.0))
        .set("cy", rounded(at.1))
        .set("r", 4)
        .set("fill", colour.fill)
}

/// The text shown when the mouse points at an element.
pub(super) fn tooltip(text: &str) -> Title {
    Title::new(printable(text))
}

/// The attribute `points` of a line.
pub(super) fn points(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let points: Vec<_> =
        points.into_iter().map(|(x, y)| format!("{},{}", rounded(x), rounded(y))).collect();
    points.join(" ")
}

/// Rounded to two decimals, since more would not be visible but would make the file larger.
pub(super) fn rounded(coordinate: f64) -> f64 {
    (coordinate * 100.0).round() / 100.0
}

/// XML has no way to write most control characters.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}
