//! The built book in a browser: `tests/python/book_pages.py` and `book_pictures.py` have the
//! details.

use anyhow::Result;
use tests::python::python;

use super::book_links::built_book;

#[test]
fn pages_fit_their_screens_and_are_legible_in_every_theme() -> Result<()> {
    look_at_the_book("book_pages")
}

#[test]
fn pictures_obey_the_keyboard_and_show_the_programs_numbers() -> Result<()> {
    look_at_the_book("book_pictures")
}

fn look_at_the_book(script: &str) -> Result<()> {
    let Some(job) = built_book()? else { return Ok(()) };
    let folder = job.directory().display().to_string();
    let seen = job.run(python(script, [&*folder])?)?.expect_success()?;
    // Says how many pages there were, or that there is no browser.
    eprint!("{}", seen.stdout);
    Ok(())
}
