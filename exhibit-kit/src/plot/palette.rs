//! Nine colours that can be told apart, even by colour-blind people.

use tch_parallel::{Error, Result};

/// A colour to fill with, and the colour of text that is legible on it.
#[derive(Clone, Copy)]
pub(super) struct Colour {
    pub(super) fill: &'static str,
    pub(super) ink: &'static str,
}

/// The palette of Masataka Okabe and Kei Ito ("Color Universal Design", 2008) and a grey. Its black
/// is a dark grey, which can be told from a black page as well.
const PALETTE: [Colour; 9] = [
    Colour { fill: "#0072b2", ink: "#ffffff" },
    Colour { fill: "#e69f00", ink: "#000000" },
    Colour { fill: "#009e73", ink: "#000000" },
    Colour { fill: "#cc79a7", ink: "#000000" },
    Colour { fill: "#56b4e9", ink: "#000000" },
    Colour { fill: "#f0e442", ink: "#000000" },
    Colour { fill: "#d55e00", ink: "#000000" },
    Colour { fill: "#999999", ink: "#000000" },
    Colour { fill: "#6b6b6b", ink: "#ffffff" },
];

pub(super) fn colours(what: &str, count: usize) -> Result<&'static [Colour]> {
    PALETTE.get(..count).ok_or_else(|| {
        let expected = "at most nine, since more colours could not be told apart";
        Error::argument(what, format!("a list of {count}"), expected)
    })
}
