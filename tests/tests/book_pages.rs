//! The built book in a browser: `tests/python/book_pages.py` has the details.

use anyhow::Result;
use tests::python::python;

use super::book_links::built_book;

#[test]
fn pages_fit_their_screens_and_are_legible_in_every_theme() -> Result<()> {
    let Some(job) = built_book()? else { return Ok(()) };
    let folder = job.directory().display().to_string();
    let examined = job.run(python("book_pages", [&*folder])?)?.expect_success()?;
    // Says how many pages there were, or that there is no browser.
    eprint!("{}", examined.stdout);
    Ok(())
}
