//! The book's table of PyTorch's names: what stands beside them is in the library.

use crate::prelude::*;

/// What comes before a name where it is declared.
const KEYWORDS: [&str; 7] = ["const", "enum", "fn", "mod", "struct", "trait", "type"];

/// From Rust and tch.
const OTHERS: [&str; 8] = ["Box", "Default", "None", "Some", "default", "into", "new", "parse"];

#[test]
fn every_name_beside_pytorchs_is_one_of_the_library() -> Result<()> {
    let mut declared: BTreeSet<String> = OTHERS.map(str::to_owned).into();
    let crates = "core/src core/base/src core/data/src core/nn/src core/optim/src core/sys/src";
    texts_below(crates, "rs")?.iter().for_each(|text| declare(text, &mut declared));
    let page = source("book/src/pytorch-names.md")?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let (mut count, mut unknown) = (0, Vec::new());
    for (_, here) in rows.filter_map(|row| row.rsplit_once(" | ")) {
        // Every second piece is within backquotes.
        for code in here.split('`').skip(1).step_by(2) {
            for name in names(code) {
                count += 1;
                if !declared.contains(name) {
                    unknown.push(format!("{name} in `{code}`"));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(count > 100, "only {count} names were found");
    Ok(())
}

fn declare(text: &str, declared: &mut BTreeSet<String>) {
    let pairs = words(text).zip(words(text).skip(1));
    let names = pairs.filter(|((before, _), _)| KEYWORDS.contains(before));
    declared.extend(names.map(|(_, (name, _))| name.to_owned()));
    // The variants of enums.
    for line in text.lines().map(str::trim_start) {
        let end = line.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        let is_variant = [",", " {", "(", " ="].iter().any(|next| rest.starts_with(next));
        if is_variant && word.starts_with(char::is_uppercase) {
            declared.insert(word.to_owned());
        }
    }
}

/// The types and functions in a piece of code: words with a capital, and those after `::` or `.`.
/// Not what is in quotes, and not the variables.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let is_quoted = |at: usize| code[..at].matches('"').count() % 2 == 1;
    words(code)
        .filter(move |&(word, at)| {
            let follows = code[..at].ends_with("::") || code[..at].ends_with('.');
            let is_range = code[..at].ends_with("..");
            !is_quoted(at) && (word.starts_with(char::is_uppercase) || (follows && !is_range))
        })
        .map(|(word, _)| word)
}

/// The identifiers, each with its place.
pub fn words(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let start = text.as_ptr() as usize;
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        .map(move |word| (word, word.as_ptr() as usize - start))
}

#[test]
fn names_are_told_from_variables_and_text() {
    let found = |code| names(code).collect::<Vec<_>>();
    assert_eq!(found("optim::Sgd::new(&vs, x)"), ["Sgd", "new"]);
    assert_eq!(found("\"cuda:0\".parse()?"), ["parse"]);
    assert_eq!(found("Options { lr, ..Default::default() }"), ["Options", "Default", "default"]);
}
