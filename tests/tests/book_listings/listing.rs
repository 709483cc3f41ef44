//! Compares the output of a program, text or pictures, with the book's version of it.

pub use super::alike::*;
use crate::prelude::*;

/// Compares a text with the listing of this name, or replaces the listing if it differs.
pub fn expect_listing(name: &str, text: &str, tolerance: f64) -> Result<()> {
    expect(&[(name, text, &|listing, text| same(listing, text, |_, _| tolerance))])
}

/// Compares a table with times, in milliseconds with three decimals, and the picture of the same name
/// that the same run has drawn. Lines without a time must be equal.
pub fn expect_times(name: &str, text: &str, svg: &str) -> Result<()> {
    let tolerance = |_, it: &str| if it.split(' ').any(is_time) { f64::INFINITY } else { EXACT };
    expect(&[
        (&format!("{name}.txt"), text, &|listing, text| same(listing, text, tolerance)),
        (&format!("{name}.svg"), svg, &same_labels),
    ])
}

/// Whether the book's version, the first argument, agrees with what a run has produced just now.
type Same<'a> = &'a dyn Fn(&str, &str) -> bool;

/// Compares the outputs of one run with these files in the book's folder `output`, or replaces all of
/// them if one differs.
pub fn expect(outputs: &[(&str, &str, Same<'_>)]) -> Result<()> {
    let path = |name: &str| workspace().join("book/src/output").join(name);
    let in_the_book = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
    let differs = |output: &&(&str, &str, Same<'_>)| !output.2(&in_the_book(output.0), output.1);
    let Some(&(name, text, _)) = outputs.iter().find(differs) else { return Ok(()) };
    if env::var_os("UPDATE_BOOK").is_some() {
        return outputs.iter().try_for_each(|(name, text, _)| {
            fs::write(path(name), text)
                .with_context(|| format!("cannot write {}", path(name).display()))
        });
    }
    bail!(
        "{} is out of date; UPDATE_BOOK=1 renews it\n=== the book\n{}\n=== this run\n{text}",
        path(name).display(),
        in_the_book(name)
    )
}
