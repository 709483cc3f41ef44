//! Checks that every listing and every chapter of the book exists, since mdBook silently leaves a
//! block empty if a listing's anchor is missing.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use tests::programs::{files_below, source, workspace};

/// The text between `{{#include ` and `}}`, or `{{#rustdoc_include ` and `}}`, wherever it occurs.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{#").skip(1).filter_map(|rest| {
        let (directive, _) = rest.split_once("}}")?;
        let (name, target) = directive.split_once(' ')?;
        ["include", "rustdoc_include"].contains(&name).then_some(target.trim())
    })
}

/// The lines that an include inserts: the whole file, an anchor, or a range `first:last`.
fn included(file: &str, part: &str) -> Result<String> {
    let is_range =
        |text: &str| text.split(':').all(|end| end.parse::<usize>().is_ok() || end.is_empty());
    if part.is_empty() {
        return Ok(file.to_owned());
    }
    ensure!(!is_range(part), "it counts lines ({part}), which shift: give the listing an anchor");
    let marks = |line: &str, word: &str| {
        let mark = line.split(&format!("{word}: ")).nth(1);
        mark.is_some_and(|name| name.split_whitespace().next() == Some(part))
    };
    let mut lines = file.lines().skip_while(|line| !marks(line, "ANCHOR"));
    lines.next().with_context(|| format!("there is no `ANCHOR: {part}`"))?;
    let mut listing = String::new();
    for line in lines {
        if marks(line, "ANCHOR_END") {
            return Ok(listing);
        }
        listing.push_str(line);
        listing.push('\n');
    }
    bail!("there is no `ANCHOR_END: {part}`")
}

#[test]
fn every_listing_of_the_book_is_there() -> Result<()> {
    let mut count = 0;
    let mut wrong = Vec::new();
    for chapter in files_below(&workspace().join("book/src"), &["md"])? {
        let text = source(&chapter)?;
        for target in includes(&text) {
            let (path, part) = target.split_once(':').unwrap_or((target, ""));
            let path = chapter.parent().context("a chapter lies in a directory")?.join(path);
            let listing = source(&path).and_then(|file| included(&file, part));
            match listing {
                Ok(listing) if !listing.trim().is_empty() => count += 1,
                Ok(_) => wrong.push(format!("{}: {target} is empty", chapter.display())),
                Err(error) => wrong.push(format!("{}: {target}: {error:#}", chapter.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 0, "the book includes no listing at all");
    Ok(())
}

#[test]
fn every_chapter_of_the_summary_is_there() -> Result<()> {
    let book = workspace().join("book/src");
    let summary = source("book/src/SUMMARY.md")?;
    let mut listed = vec![book.join("SUMMARY.md")];
    for link in summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let path = book.join(link.trim_start_matches("./"));
        assert!(path.is_file(), "SUMMARY.md links {link}, which is not there");
        listed.push(path);
    }
    for chapter in files_below(&book, &["md"])? {
        assert!(listed.contains(&chapter), "SUMMARY.md does not link {}", chapter.display());
    }
    Ok(())
}

#[test]
fn the_map_links_every_chapter_but_the_preface() -> Result<()> {
    let between = |text: &str, start, end| -> BTreeSet<String> {
        let rests = text.split(start).skip(1);
        rests.filter_map(|rest| rest.split(end).next()).map(str::to_owned).collect()
    };
    let map = between(&source("book/src/pictures/map.svg")?, "href=\"", ".html\"");
    let mut chapters = between(&source("book/src/SUMMARY.md")?, "](", ".md)");
    chapters.remove("preface");
    assert_eq!(map, chapters);
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
