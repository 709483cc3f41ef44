//! The ring as an animation: an HTML fragment without scripts, which can be part of a page or stand
//! alone. `page.html.jinja` is the fragment; here is where everything stands in it.
//!
//! It plays automatically, and stops at an iteration when its button is pressed. Lines have the colour
//! of the page's text, so that they are visible on light pages and on dark ones.

use super::symbolic::Pass;
use anyhow::Result;
use minijinja::context;
use minijinja::value::{Serde, Value};
use report::template;
use std::f64::consts::PI;

/// The width of a field, which is a summand's place in a sum.
const FIELD: u32 = 13;
/// From one chunk to the next.
const ROW: f64 = 19.0;
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

/// All passes of a ring, with a button for each.
pub fn html(passes: &[Pass]) -> Result<String> {
    let ranks = passes[0].before.len();
    let everywhere = (0..ranks).flat_map(|rank| (0..ranks).map(move |chunk| (rank, chunk)));
    let mut environment = template::environment()?;
    environment.add_filter("runs", runs);
    let holes = context! {
        ranks,
        passes => Serde(passes),
        everywhere => everywhere.collect::<Vec<_>>(),
        layout => layout(ranks),
        FIELD,
    };
    Ok(environment.render_str(include_str!("page.html.jinja"), holes)?)
}

/// The summands of a sum, those beside each other as one: `[first, how many]`.
fn runs(mut sum: Vec<usize>) -> Value {
    sum.sort_unstable();
    let runs = sum.chunk_by(|rank, next| rank + 1 == *next);
    runs.map(|run| vec![run[0], run.len()]).collect()
}

/// Where everything stands: a card for each GPU, clockwise from the top, and its arrow to the next.
fn layout(ranks: usize) -> Value {
    let fields = ranks as f64;
    let width = NAME + fields * f64::from(FIELD) + 8.0;
    let card = (width.max(NARROWEST), HEAD + fields * ROW + 4.0);
    // Neighbours do not touch, however they stand to each other.
    let radius = 0.625 * card.0.hypot(card.1) / (PI / fields).sin();
    let width = (2.0 * radius + card.0 + 8.0).max(WIDTH);
    let middle = CAPTION + radius + card.1 / 2.0;
    let at = |angle: f64, radius: f64| {
        (width / 2.0 + radius * angle.sin(), middle - radius * angle.cos())
    };
    // The upper left corner of a card.
    let corner = |rank: usize| {
        let (x, y) = at(2.0 * PI * rank as f64 / fields, radius);
        (x - card.0 / 2.0, y - card.1 / 2.0)
    };
    let gpu = |rank: usize| {
        let (left, top) = corner(rank);
        // Where the fields of a chunk begin.
        let chunk = |chunk| (left + NAME, top + HEAD + chunk as f64 * ROW);
        // Halfway to the next.
        let angle = 2.0 * PI * (rank as f64 + 0.5) / fields;
        context! {
            corner => corner(rank),
            chunks => (0..ranks).map(chunk).collect::<Vec<_>>(),
            arrow => at(angle, (radius * (PI / fields).cos()).max(20.0)),
            degrees => angle.to_degrees(),
        }
    };
    let lowest = (0..ranks).map(|rank| corner(rank).1).fold(0.0, f64::max);
    context! {
        size => (width, lowest + card.1 + LEGEND),
        card,
        gpus => (0..ranks).map(gpu).collect::<Vec<_>>(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::symbolic;
    use super::*;
    use crate::ring::schedule;

    fn drawn(ranks: usize) -> String {
        let schedules: Vec<_> = (0..ranks).map(|rank| schedule(rank, ranks)).collect();
        html(&symbolic::run(&schedules)).unwrap()
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
