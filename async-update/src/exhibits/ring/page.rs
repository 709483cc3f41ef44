//! The ring as an animation: an HTML fragment without scripts, which can be part of a page or stand
//! alone.
//!
//! It plays automatically, and stops at an iteration when its button is pressed. Lines have the colour
//! of the page's text, so that they are visible on light pages and on dark ones.

use super::symbolic::{Contents, Pass, Sum, beginning, letter};
use crate::ring::Half;
use std::f64::consts::PI;

/// The width of a field, which is a summand's place in a sum.
const FIELD: f64 = 13.0;
/// From one chunk to the next.
const ROW: f64 = 19.0;
/// How high a chunk's fields are.
const BAR: f64 = 14.0;
/// Left of the fields, for the chunk's letter.
const NAME: f64 = 20.0;
/// Above the first chunk, for the GPU's name.
const HEAD: f64 = 24.0;
/// What a GPU's name needs.
const NARROWEST: f64 = 74.0;
/// Above the ring, for what happens.
const CAPTION: f64 = 56.0;
/// Below the ring, for what the colours mean.
const LEGEND: f64 = 56.0;
/// The captions need this much.
const WIDTH: f64 = 400.0;
/// How long an iteration is shown.
const SECONDS: usize = 3;
/// Which part of that time a chunk travels, and until when it has merged, in percent.
const TRAVELS: f64 = 65.0;
const MERGED: f64 = 72.0;

/// All passes of a ring, with a button for each.
pub fn html(passes: &[Pass]) -> String {
    let ranks = passes.first().map_or(0, |pass| pass.iterations.len());
    let layout = Layout::new(ranks);
    let name = format!("ring-{ranks}");
    let frames = passes.len() + 1;
    let mut html = format!(
        "<div class=\"ring-page\">\n<style>\n{}{}</style>\n",
        include_str!("page.css"),
        timing(&name, frames)
    );
    let buttons = (0..frames).map(|frame| (frame.to_string(), frame.to_string()));
    for (id, text) in [("play".into(), "▶ play".into())].into_iter().chain(buttons) {
        let checked = if id == "play" { " checked" } else { "" };
        html += &format!(
            "<input type=\"radio\" name=\"{name}\" id=\"{name}-{id}\"{checked}><label for=\"{name}-{id}\">{text}</label>\n"
        );
    }
    let Layout { width, height, .. } = layout;
    html += &format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"Chunks of a gradient \
         travel round a ring of {ranks} GPUs: added up in scatter-reduce, copied in all-gather.\">\n"
    );
    let opening = format!("Each GPU has its own gradient, in {ranks} chunks.");
    html += &layout.frame(0, ["At the beginning", &opening], &beginning(ranks), "");
    for (frame, pass) in (1..).zip(passes) {
        let (half, then) = match pass.half {
            Half::ScatterReduce => ("Scatter-reduce", "What is received is added."),
            Half::AllGather => ("All-gather", "What is received replaces what was there."),
        };
        let heading = format!("{half}, iteration {} of {}", pass.number + 1, ranks - 1);
        html += &layout.frame(frame, [&heading, then], &pass.before, &layout.travel(pass));
    }
    // Over the fields, so that the lines between them are seen.
    html + &layout.still() + "</svg>\n</div>\n"
}

/// The CSS rules that depend on the number of frames: one frame is visible at a time, in turn or by
/// its button.
fn timing(name: &str, frames: usize) -> String {
    // Of all the time, if frames are seen in turn.
    let share = 1.0 / frames as f64;
    let percent = |number: f64| format!("{number:.3}%");
    let mut css = include_str!("timing.css").to_owned();
    for (placeholder, value) in [
        ("$name", name.to_owned()),
        ("$frame", format!("{SECONDS}s")),
        ("$all", format!("{}s", SECONDS * frames)),
        ("$slot", percent(100.0 * share)),
        ("$travels", percent(TRAVELS)),
        ("$merged", percent(MERGED)),
        ("$turn-travels", percent(TRAVELS * share)),
        ("$turn-merged", percent(MERGED * share)),
    ] {
        css = css.replace(placeholder, &value);
    }
    for frame in 0..frames {
        css += &format!(
            "#{name}-{frame}:checked ~ svg .frame-{frame} {{ visibility: visible; \
             --token: {name}-token; --landed: {name}-landed; }}\n"
        );
    }
    css
}

/// Where everything stands.
struct Layout {
    width: f64,
    height: f64,
    /// A GPU's card, around its chunks.
    card: (f64, f64),
    /// The upper left corners of the cards, clockwise from the top.
    corners: Vec<(f64, f64)>,
    /// From the middle of the picture to the middles of the cards.
    radius: f64,
}

impl Layout {
    fn new(ranks: usize) -> Layout {
        let fields = ranks as f64;
        let card = ((NAME + fields * FIELD + 8.0).max(NARROWEST), HEAD + fields * ROW + 4.0);
        // Neighbours do not touch, however they stand to each other.
        let radius = 0.625 * card.0.hypot(card.1) / (PI / fields).sin();
        let width = (2.0 * radius + card.0 + 8.0).max(WIDTH);
        let middle = CAPTION + radius + card.1 / 2.0;
        let corner = |rank: usize| {
            let angle = 2.0 * PI * rank as f64 / fields;
            let (x, y) = (width / 2.0 + radius * angle.sin(), middle - radius * angle.cos());
            (x - card.0 / 2.0, y - card.1 / 2.0)
        };
        let corners: Vec<_> = (0..ranks).map(corner).collect();
        let lowest = corners.iter().fold(0.0, |lowest: f64, corner| lowest.max(corner.1));
        Layout { width, height: lowest + card.1 + LEGEND, card, corners, radius }
    }

    fn ranks(&self) -> usize {
        self.corners.len()
    }

    /// Where the fields of a chunk begin.
    fn chunk(&self, rank: usize, chunk: usize) -> (f64, f64) {
        let (x, y) = self.corners[rank];
        (x + NAME, y + HEAD + chunk as f64 * ROW)
    }

    /// What does not change: cards with empty fields, arrows between them, and the legend.
    fn still(&self) -> String {
        let mut svg = String::new();
        let (width, height) = self.card;
        let ranks = self.ranks();
        for (rank, (x, y)) in self.corners.iter().enumerate() {
            svg += &format!(
                "<rect class=\"grid\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\"/>"
            );
            svg += &text((x + 6.0, y + 17.0), "heading", &format!("GPU {rank}"));
            for chunk in 0..ranks {
                let (x, y) = self.chunk(rank, chunk);
                svg += &text((x - 14.0, y + 12.0), "", letter(chunk));
                svg += &grid(ranks, (x, y));
            }
            svg += &self.arrow(rank);
            svg.push('\n');
        }
        let top = self.height - LEGEND + 12.0;
        for (index, (class, meaning)) in [
            ("part", "a chunk, or a sum: a field for each GPU's part"),
            ("whole", "a complete sum"),
        ]
        .iter()
        .enumerate()
        {
            let at = (8.0, top + index as f64 * 22.0);
            svg += &format!("<path class=\"{class}\" d=\"{}\"/>", field(0, 1, at));
            svg += &format!("<path class=\"grid\" d=\"{}\"/>", field(0, 1, at));
            svg += &text((at.0 + FIELD + 8.0, at.1 + 12.0), "", meaning);
        }
        svg + "\n"
    }

    /// Halfway between a GPU and the next.
    fn arrow(&self, rank: usize) -> String {
        let ranks = self.ranks() as f64;
        let angle = 2.0 * PI * (rank as f64 + 0.5) / ranks;
        let radius = (self.radius * (PI / ranks).cos()).max(20.0);
        let (x, y) = self.corners.iter().fold((0.0, 0.0), |sum, at| (sum.0 + at.0, sum.1 + at.1));
        let x = x / ranks + self.card.0 / 2.0 + radius * angle.sin();
        let y = y / ranks + self.card.1 / 2.0 - radius * angle.cos();
        let degrees = angle.to_degrees();
        format!(
            "<path class=\"arrow\" d=\"M-9 0H9M3 -5L9 0L3 5\" transform=\"translate({x:.1} {y:.1}) rotate({degrees:.1})\"/>"
        )
    }

    /// What all GPUs hold, and what happens to it.
    fn frame(&self, frame: usize, caption: [&str; 2], held: &Contents, travel: &str) -> String {
        let ranks = self.ranks();
        let sums = held.iter().enumerate().flat_map(|(rank, own)| {
            own.iter().enumerate().map(move |(chunk, sum)| (sum, self.chunk(rank, chunk)))
        });
        format!(
            "<g class=\"frame frame-{frame}\" style=\"--turn: {frame}\">\n{}{}\n{}\n{travel}</g>\n",
            text((8.0, 20.0), "heading", caption[0]),
            text((8.0, 42.0), "", caption[1]),
            filled(sums, ranks)
        )
    }

    /// The chunks on their way, and what becomes of them.
    fn travel(&self, pass: &Pass) -> String {
        let ranks = self.ranks();
        let mut svg = String::new();
        for (rank, iteration) in pass.iterations.iter().enumerate() {
            let from = self.chunk(rank, iteration.send);
            let to = self.chunk((rank + 1) % ranks, iteration.send);
            let (dx, dy) = (to.0 - from.0, to.1 - from.1);
            let sum = &pass.before[rank][iteration.send];
            svg += &format!(
                "<g class=\"token\" style=\"--x: {dx:.1}px; --y: {dy:.1}px\">{}{}{}</g>\n",
                filled([(sum, from)], ranks),
                grid(ranks, from),
                text((from.0 - 14.0, from.1 + 12.0), "", letter(iteration.send))
            );
        }
        let landed = || {
            pass.iterations.iter().enumerate().map(|(rank, iteration)| {
                (&pass.after[rank][iteration.recv], self.chunk(rank, iteration.recv))
            })
        };
        let grids: String = landed().map(|(_, at)| grid(ranks, at)).collect();
        svg + &format!("<g class=\"landed\">{}{grids}</g>\n", filled(landed(), ranks))
    }
}

/// Sums as filled fields, those that are complete in a colour of their own.
fn filled<'a>(sums: impl IntoIterator<Item = (&'a Sum, (f64, f64))>, ranks: usize) -> String {
    let (mut part, mut whole) = (String::new(), String::new());
    for (sum, at) in sums {
        let path = if sum.is_complete(ranks) { &mut whole } else { &mut part };
        path.push_str(&fields(sum, at));
    }
    let paths = [("part", part), ("whole", whole)].into_iter().filter(|(_, path)| !path.is_empty());
    paths.map(|(class, path)| format!("<path class=\"{class}\" d=\"{path}\"/>")).collect()
}

/// A sum's fields, those beside each other as one.
fn fields(sum: &Sum, at: (f64, f64)) -> String {
    let mut ranks = sum.0.clone();
    ranks.sort_unstable();
    let runs = ranks.chunk_by(|rank, next| rank + 1 == *next);
    runs.map(|run| field(run[0], run.len(), at)).collect()
}

/// The outline of the fields of this many ranks, starting with `first`.
fn field(first: usize, ranks: usize, (x, y): (f64, f64)) -> String {
    let (left, width) = (x + first as f64 * FIELD, ranks as f64 * FIELD);
    format!("M{left:.1} {y:.1}h{width}v{BAR}h-{width}z")
}

/// The lines around the fields of all ranks.
fn grid(ranks: usize, at: (f64, f64)) -> String {
    let separators = (1..ranks).map(|_| format!("m{FIELD} 0v{BAR}m0 -{BAR}")).collect::<String>();
    format!("<path class=\"grid\" d=\"{}{separators}\"/>", field(0, ranks, at))
}

fn text((x, y): (f64, f64), class: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>")
}

#[cfg(test)]
mod tests {
    use super::super::symbolic;
    use super::*;
    use crate::ring::schedule;

    fn drawn(ranks: usize) -> String {
        let schedules: Vec<_> = (0..ranks).map(|rank| schedule(rank, ranks)).collect();
        html(&symbolic::run(&schedules))
    }

    #[test]
    fn every_iteration_has_a_button_a_frame_and_a_chunk_on_its_way_for_each_gpu() {
        for ranks in [2, 3, 5, 8] {
            let page = drawn(ranks);
            let count = |what: &str| page.matches(what).count();
            let frames = 2 * (ranks - 1) + 1;
            assert_eq!(count("<g class=\"frame "), frames);
            assert_eq!(count("type=\"radio\""), frames + 1);
            assert_eq!(count("class=\"token\""), ranks * (frames - 1));
        }
    }

    #[test]
    fn nothing_is_complete_before_the_last_iteration_of_scatter_reduce_and_all_is_at_the_end() {
        let page = drawn(5);
        let frames: Vec<_> = page.split("<g class=\"frame ").skip(1).collect();
        for frame in &frames[..4] {
            assert!(!frame.contains("\"whole\""));
        }
        assert!(frames[4].contains("\"whole\""));
        // Each chunk that arrives in the last iteration is as complete as all others are by then.
        let (_, landed) = frames[8].split_once("class=\"landed\"").unwrap();
        let (landed, _legend) = landed.split_once("</g>").unwrap();
        assert!(landed.contains("\"whole\"") && !landed.contains("\"part\""));
    }

    #[test]
    fn a_markdown_page_takes_it_as_one_block_and_it_needs_no_network() {
        let page = drawn(5);
        assert!(page.starts_with("<div") && !page.contains("\n\n"));
        assert!(!page.contains("http") && !page.contains("url(") && !page.contains("<script"));
    }
}
