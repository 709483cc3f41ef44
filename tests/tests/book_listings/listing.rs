//! Compares the output of a program, text or pictures, with the book's version of it.

pub use super::alike::*;
use crate::prelude::*;

/// Compares a text with the listing of this name, or replaces the listing if it differs.
pub fn expect_listing(name: &str, text: &str, tolerance: f64) -> Result<()> {
    let same = |listing: &str, text: &str| same(listing, text, |_, _| tolerance);
    expect(&[Output { name, text, same: &same }])
}

/// Compares the output of a training: the first step to the last digits, and later steps except for
/// losses and percentages.
pub fn expect_training(name: &str, text: &str) -> Result<()> {
    expect(&[Output { name, text, same: &same_training }])
}

/// Compares only the words of the output of processes that do not wait for each other. Numbers, and
/// the rows and bars of a histogram, differ from run to run.
pub fn expect_words(name: &str, text: &str) -> Result<()> {
    expect_words_and_pictures(name, text, &[])
}

/// The same for a text and the pictures that the same run has drawn, each with its name. The number
/// of points of a curve also differs from run to run.
pub fn expect_words_and_pictures(
    name: &str,
    text: &str,
    pictures: &[(String, String)],
) -> Result<()> {
    let same = |listing: &str, text: &str| without_numbers(listing) == without_numbers(text);
    let same_names = |picture: &str, svg: &str| labels(picture).keys().eq(labels(svg).keys());
    let mut outputs = vec![Output { name, text, same: &same }];
    outputs.extend(pictures.iter().map(|(name, text)| Output { name, text, same: &same_names }));
    expect(&outputs)
}

/// Compares a table with times, in milliseconds with three decimals, and the picture that the same
/// run has drawn. Lines without a time must be equal. If one of the two differs, both are replaced.
pub fn expect_times(name: &str, text: &str, picture: &str, svg: &str) -> Result<()> {
    let tolerance =
        |_, line: &str| if line.split(' ').any(is_time) { f64::INFINITY } else { EXACT };
    let same_table = |listing: &str, text: &str| same(listing, text, tolerance);
    expect(&[
        Output { name, text, same: &same_table },
        Output { name: picture, text: svg, same: &same_labels },
    ])
}

/// Compares texts with amounts of memory, and the picture of them that the same run has drawn.
/// Amounts must be equal; times and shares of time need not. If one differs, all are replaced.
pub fn expect_amounts(texts: &[(&str, &str)], picture: &str, svg: &str) -> Result<()> {
    expect_drawn(texts, picture, svg, &same_amounts, &|picture: &str, svg: &str| picture == svg)
}

/// The same for texts with measurements of all kinds, of which only amounts of memory are compared.
/// The amounts are those of convolutions, whose workspace differs between processors.
pub fn expect_measured(texts: &[(&str, &str)], picture: &str, svg: &str) -> Result<()> {
    expect_drawn(texts, picture, svg, &same_measured, &same_drawn_amounts)
}

fn expect_drawn(
    texts: &[(&str, &str)],
    picture: &str,
    svg: &str,
    same_text: &dyn Fn(&str, &str) -> bool,
    same_picture: &dyn Fn(&str, &str) -> bool,
) -> Result<()> {
    let mut outputs = vec![Output { name: picture, text: svg, same: same_picture }];
    outputs.extend(texts.iter().map(|&(name, text)| Output { name, text, same: same_text }));
    expect(&outputs)
}

/// A file of the book's folder `output`, as produced by a run just now.
struct Output<'a> {
    name: &'a str,
    text: &'a str,
    /// Whether the book's version, the first argument, agrees with this one.
    same: &'a dyn Fn(&str, &str) -> bool,
}

/// Compares the outputs of one run with the book's, or replaces all of them if one differs.
fn expect(outputs: &[Output<'_>]) -> Result<()> {
    let folder = workspace().join("book/src/output");
    let path = |output: &Output<'_>| folder.join(output.name);
    let in_the_book = |output: &Output<'_>| fs::read_to_string(path(output)).unwrap_or_default();
    let differs = |output: &&Output<'_>| !(output.same)(&in_the_book(output), output.text);
    let Some(first) = outputs.iter().find(differs) else { return Ok(()) };
    if env::var_os("UPDATE_BOOK").is_some() {
        return outputs.iter().try_for_each(|output| {
            fs::write(path(output), output.text)
                .with_context(|| format!("cannot write {}", path(output).display()))
        });
    }
    bail!(
        "{} is out of date; UPDATE_BOOK=1 renews it\n=== the book\n{}\n=== this run\n{}",
        path(first).display(),
        in_the_book(first),
        first.text
    )
}
