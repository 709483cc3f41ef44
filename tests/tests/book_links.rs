//! Links in the book lead somewhere, its pages load nothing from a network, and its listings exist: if an anchor is
//! missing, mdBook silently leaves a block empty. In a browser, `tests/python/book_pages.py` and `book_pictures.py`
//! look at them more closely.

use crate::prelude::*;

/// Elements that make a browser fetch something, unlike a link that a reader may follow.
const LOADING: [&str; 13] = [
    "audio", "embed", "feimage", "frame", "iframe", "image", "img", "link", "object", "script",
    "source", "use", "video",
];

#[test]
fn every_link_within_the_book_leads_to_a_heading_or_a_file() -> Result<()> {
    let book = workspace().join("book/src");
    let chapters = chapters(&book)?;
    let ids: BTreeMap<_, _> = chapters.iter().map(|(name, text)| (&**name, ids(text))).collect();
    let (mut count, mut wrong) = (0, Vec::new());
    for (name, text) in &chapters {
        for link in links(text).filter(|link| !link.contains("://")) {
            count += 1;
            let (file, id) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { name } else { file };
            match ids.get(file) {
                Some(ids) if id.is_empty() || ids.contains(id) => {}
                Some(_) => wrong.push(format!("{name}: {link}: no such heading")),
                None if book.join(file).is_file() => {}
                None => wrong.push(format!("{name}: {link}: no such file")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 0, "the book has no link at all");
    Ok(())
}

#[test]
fn the_built_pages_have_these_headings_and_load_nothing_from_a_network() -> Result<()> {
    let Some(job) = built_book()? else { return Ok(()) };
    for (name, text) in chapters(&workspace().join("book/src"))? {
        let page = job.path(&name).with_extension("html");
        // The summary has no page of its own: it becomes the table of contents.
        let Ok(html) = fs::read_to_string(page) else { continue };
        for id in ids(&text) {
            assert!(html.contains(&format!("id=\"{id}\"")), "{name}: no heading with the id {id}");
        }
    }
    let pages = files_below(job.directory(), &["html", "css"])?;
    assert!(!pages.is_empty(), "nothing was built");
    for page in pages {
        let loaded = loads(&fs::read_to_string(&page)?);
        assert!(loaded.is_empty(), "{} loads {}", page.display(), loaded.join(", "));
    }
    Ok(())
}

cases! {
    fn pages_fit_their_screens_and_are_legible_in_every_theme() = look_at_the_book("book_pages");
    fn pictures_obey_the_keyboard_and_show_the_programs_numbers() = look_at_the_book("book_pictures");
}

fn look_at_the_book(script: &str) -> Result<()> {
    let Some(job) = built_book()? else { return Ok(()) };
    let folder = job.directory().display().to_string();
    // Says how many pages there were, or that there is no browser.
    eprint!("{}", job.run(python(script, [&*folder])?)?.expect_success()?.stdout);
    Ok(())
}

/// Builds the book into the job's directory. None, which it says, if there is no mdBook.
fn built_book() -> Result<Option<Job>> {
    let Some(mdbook) = mdbook()? else {
        eprintln!("skipped: there is no mdBook here; `cargo xtask book` installs it");
        return Ok(None);
    };
    let job = Job::new()?;
    let mut build = Command::new(mdbook);
    build.arg("build").arg(workspace().join("book")).arg("--dest-dir").arg(job.directory());
    job.run(build)?.expect_success()?;
    Ok(Some(job))
}

/// The mdBook that `cargo xtask book` has installed, or one on the PATH.
fn mdbook() -> Result<Option<PathBuf>> {
    let test = env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test lies in target/PROFILE/deps")?;
    let installed = [target.join("tools/bin/mdbook"), "mdbook".into()];
    // Another version hands the preprocessor another form of the book.
    let fits = |program: &PathBuf| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(" v0.5."))
    };
    Ok(installed.into_iter().find(fits))
}

/// The text of each chapter without fenced code, by its file's name.
fn chapters(book: &Path) -> Result<BTreeMap<String, String>> {
    let named = |path: PathBuf| {
        let name = path.strip_prefix(book)?.to_string_lossy().into_owned();
        Ok((name, without_code_blocks(&fs::read_to_string(&path)?)))
    };
    files_below(book, &["md"])?.into_iter().map(named).collect()
}

/// The text without fenced code, which contains neither headings nor links.
fn without_code_blocks(text: &str) -> String {
    let mut inside = false;
    let is_text = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    };
    text.lines().filter(is_text).map(|line| format!("{line}\n")).collect()
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The ids of a chapter's headings, as mdBook makes them.
fn ids(text: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let headings = text.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| heading.strip_prefix(' ')).flatten()
    });
    for heading in headings {
        let id = id(heading);
        let numbered = (1..).map(|number| format!("{id}-{number}"));
        let free = std::iter::once(id.clone()).chain(numbered).find(|id| !ids.contains(id));
        ids.extend(free);
    }
    ids
}

/// Converts letters to lower case, keeps digits, `-` and `_`, turns spaces into `-` and drops the rest.
fn id(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        c if c.is_whitespace() => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The addresses that a page or a style sheet would fetch from elsewhere.
fn loads(text: &str) -> Vec<String> {
    let is_remote = |address: &str| {
        let address = address.trim_start_matches(['"', '\'', ' ']).to_ascii_lowercase();
        ["http:", "https:", "//"].iter().any(|start| address.starts_with(start))
    };
    let tags = text.split('<').skip(1).filter_map(|tag| tag.split('>').next());
    let loading = tags.filter(|tag| {
        let name = tag.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        LOADING.contains(&&*name.to_ascii_lowercase())
    });
    let attributes = loading.flat_map(|tag| tag.split(['=', ',']).skip(1));
    let styles = text.split("url(").skip(1).chain(text.split("@import").skip(1));
    let remote = attributes.chain(styles).filter(|address| is_remote(address));
    remote.map(|address| address.chars().take(60).collect()).collect()
}

#[test]
fn ids_and_what_a_page_loads_are_found() {
    let chapter = "# One: *two* `three_4`\n## A, B\n## A, B\n#no heading\n";
    let found: Vec<_> = ids(chapter).into_iter().collect();
    assert_eq!(found, ["a-b", "a-b-1", "one-two-three_4"]);
    let text = without_code_blocks("a [b](c.md#d)\n```text\n# x [y](z.md)\n```\n![p](q.svg)\n");
    assert_eq!(links(&text).collect::<Vec<_>>(), ["c.md#d", "q.svg"]);
    let page = r#"<a href="https://a">b</a><svg xmlns="http://c"><img src="d"><script src="e">"#;
    assert!(loads(page).is_empty());
    let remote = [
        r#"<script async src="https://a.b/c.js">"#,
        r#"<link rel="stylesheet" href='//a.b/c.css'>"#,
        r#"<style>@font-face { src: url("http://a.b/c.woff2") }</style>"#,
        "@import 'https://a.b/c.css';",
    ];
    remote.into_iter().for_each(|page| assert_eq!(loads(page).len(), 1, "{page}"));
}

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
