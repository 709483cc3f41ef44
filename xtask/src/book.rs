//! `cargo xtask book`: builds the book with the version of mdBook that it is written for.

use crate::prelude::*;

/// The book uses admonitions and configuration keys that came with 0.5.
const MDBOOK_VERSION: &str = "0.5.4";

/// Builds the book, and fails if an include was not resolved, which mdBook itself would leave in the page.
pub(crate) fn run(open: bool) -> Result<()> {
    let mut build = Command::new(mdbook()?);
    build.arg("build").args(open.then_some("--open")).arg("book").current_dir(checkout());
    command::run(&mut build)?;
    let unresolved = pages_with_directives(&checkout().join("book/book"))?;
    ensure!(unresolved.is_empty(), "an include was not resolved in {}", unresolved.join(", "));
    Ok(())
}

/// An mdBook of the right version: the one on the PATH, or one installed in the target folder.
fn mdbook() -> Result<PathBuf> {
    let tools = target_dir()?.join("tools");
    let installed = tools.join("bin/mdbook");
    for candidate in [Path::new("mdbook"), &installed] {
        let said = command::output(Command::new(candidate).arg("--version"));
        if said.is_ok_and(|said| said.contains(MDBOOK_VERSION)) {
            return Ok(candidate.to_owned());
        }
    }
    eprintln!(
        "mdBook {MDBOOK_VERSION} is missing: installing it in {} (takes a minute or two)",
        tools.display()
    );
    let mut install = command::cargo(checkout());
    install.args(["install", "mdbook", "--version", MDBOOK_VERSION, "--locked"]);
    install.args(["--no-default-features", "--features", "search", "--root"]).arg(&tools);
    command::run(&mut install)?;
    Ok(installed)
}

/// The HTML pages in `folder` that still contain an mdBook directive.
fn pages_with_directives(folder: &Path) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            pages.extend(pages_with_directives(&path)?);
        } else if path.extension() == Some(OsStr::new("html")) && read(&path)?.contains("{{#") {
            pages.push(path.display().to_string());
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_left_in_a_page_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let bad = folder.path().join("chapter/bad.html");
        write(&folder.path().join("good.html"), "<p>fine</p>").unwrap();
        write(&bad, "<pre>{{#include gone.rs}}</pre>").unwrap();
        assert_eq!(pages_with_directives(folder.path()).unwrap(), [bad.display().to_string()]);
    }
}
