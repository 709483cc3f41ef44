//! Checks that every listing and every chapter of the book exists, since mdBook silently leaves a
//! block empty if a listing's anchor is missing.

use crate::prelude::*;

/// The text between `{{#include ` and `}}`, or `{{#rustdoc_include ` and `}}`, wherever it occurs.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{#").skip(1).filter_map(|rest| {
        let (directive, _) = rest.split_once("}}")?;
        let (name, target) = directive.split_once(' ')?;
        ["include", "rustdoc_include"].contains(&name).then_some(target.trim())
    })
}

/// The lines that an include inserts: the whole file, or the part between its anchors. A range of
/// lines is not accepted, because lines shift.
fn included<'a>(file: &'a str, part: &str) -> Result<&'a str> {
    if part.is_empty() {
        return Ok(file);
    }
    let (begin, end) = (format!("ANCHOR: {part}\n"), format!("ANCHOR_END: {part}\n"));
    let lines = between(file, &begin, &end)?;
    // Leaves out the beginning of the line that has the second anchor.
    Ok(&lines[..lines.rfind('\n').map_or(0, |at| at + 1)])
}

#[test]
fn every_listing_of_the_book_is_there() -> Result<()> {
    let mut count = 0;
    let mut wrong = Vec::new();
    for chapter in files_below(&workspace().join("book/src"), &["md"])? {
        for target in includes(&source(&chapter)?) {
            let (path, part) = target.split_once(':').unwrap_or((target, ""));
            let path = chapter.parent().context("a chapter lies in a directory")?.join(path);
            match included(&source(&path)?, part).map(str::trim) {
                Ok("") => wrong.push(format!("{}: {target} is empty", chapter.display())),
                Ok(_) => count += 1,
                Err(_) => wrong.push(format!("{}: there is no {target}", chapter.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 0, "the book includes no listing at all");
    Ok(())
}

#[test]
fn the_summary_links_every_chapter_and_the_map_all_but_the_preface() -> Result<()> {
    let between = |text: &str, start, end| -> BTreeSet<String> {
        let rests = text.split(start).skip(1);
        rests.filter_map(|rest| rest.split(end).next()).map(str::to_owned).collect()
    };
    let mut chapters = between(&source("book/src/SUMMARY.md")?, "](", ".md)");
    let book = workspace().join("book/src");
    for chapter in files_below(&book, &["md"])? {
        let name = chapter.strip_prefix(&book)?.with_extension("").display().to_string();
        assert!(name == "SUMMARY" || chapters.contains(&name), "SUMMARY.md does not link {name}");
    }
    chapters.remove("preface");
    assert_eq!(between(&source("book/src/pictures/map.svg")?, "href=\"", ".html\""), chapters);
    Ok(())
}

#[test]
fn a_listing_that_is_not_there_is_found() {
    let file = "a\n// ANCHOR: one\nb\n// ANCHOR_END: one\n// ANCHOR: open\nc\n";
    assert_eq!(included(file, "one").unwrap(), "b\n");
    assert_eq!(included(file, "").unwrap(), file);
    for wrong in ["on", "open", "two", "1:2", "1"] {
        assert!(included(file, wrong).is_err(), "{wrong}");
    }
    let chapter = "x {{#include ../a.rs:one}}\n{{#rustdoc_include b.rs}} {{#title T}}";
    assert_eq!(includes(chapter).collect::<Vec<_>>(), ["../a.rs:one", "b.rs"]);
}
