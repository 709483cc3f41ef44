//! What the library's modules offer, methods aside, occurs in a program or in an example that is compiled, and the
//! library has every name that stands beside PyTorch's in the book's table.

use crate::prelude::*;

const LIBRARY: &str = "core/src core/data/src core/nn/src core/optim/src report/src";
const PROGRAMS: &str = "async-update/src book/exercises/src core/examples ddp-imagenet/src \
                        ddp-mnist/src dp-basic/src dp-custom-criterion/src scaling/src";

/// Names that programs do not need: types that functions return or take, and what only report and the tests use.
const UNNAMED: &str = "CIFAR10_CLASSES CIFAR10_MIRRORS CompressWrapper CompressionStats Conv1d Conv3d \
                       ConvTranspose ConvTranspose1d ConvTranspose2d ConvTranspose3d FromFn \
                       GradScalerState GroupRates Gru Joinables LOCAL_RANK Lengths Lstm MAX_PIXELS \
                       MNIST_MIRRORS ModuleGuard NoSync ParallelLoss ParamGroupState ParameterState \
                       RunningStats ScaleFn SplitOutputs TransformerEncoder cifar10_from \
                       clip_grad_norm_of_parts console device_of_rank mnist_from progress_bar \
                       read_events";

#[test]
fn every_public_name_is_in_a_program_or_an_example() -> Result<()> {
    let owned = |(word, _): (&str, _)| word.to_owned();
    let mut used: BTreeSet<_> = words(UNNAMED).map(owned).collect();
    used.extend(texts_below(PROGRAMS, "rs")?.iter().flat_map(|text| words(text).map(owned)));
    let mut public = BTreeSet::new();
    for text in texts_below(LIBRARY, "rs")? {
        // Every second piece is within fences. One that begins with a word is in another language, or is not run.
        let examples = text.split("```").skip(1).step_by(2).filter(|it| it.starts_with('\n'));
        used.extend(examples.flat_map(words).map(owned));
        // Those in macros are indented.
        let is_public =
            |line: &&str| line.starts_with("pub ") || line.starts_with("    pub struct ");
        let declared = text.lines().filter(is_public).filter(|line| !line.starts_with("pub use "));
        // After `pub` and a keyword.
        public.extend(declared.filter_map(|line| words(line).nth(2)).map(owned));
    }
    let missing: Vec<_> = public.difference(&used).collect();
    assert!(missing.is_empty(), "in no program and in no example: {missing:?}");
    assert!(public.len() > 200, "only {} names were found", public.len());
    Ok(())
}

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
    let cells = rows.filter_map(|row| row.rsplit_once(" | "));
    // Every second piece is within backquotes.
    let pieces = cells.flat_map(|(_, here)| here.split('`').skip(1).step_by(2));
    let found = pieces.flat_map(|code| names(code).map(move |name| (name, code)));
    let found: Vec<_> = found.collect();
    let unknown = found.iter().filter(|(name, _)| !declared.contains(*name));
    let unknown: Vec<_> = unknown.map(|(name, code)| format!("{name} in `{code}`")).collect();
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(found.len() > 100, "only {} names were found", found.len());
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
fn words(text: &str) -> impl Iterator<Item = (&str, usize)> {
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
