//! Comparing what a program has printed or drawn with what the book shows.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tests::programs::workspace;

/// How far a loss or an accuracy may be from the book's: processors differ in the last bits, and
/// ten epochs make more of it.
pub const TRAINED: f64 = 0.02;

/// For numbers with four decimals of one or a few steps: rounded, the last bits may show in the
/// last digit.
pub const LAST_DIGIT: f64 = 1.5e-4;

/// For what is computed without rounding, or printed with few enough digits.
pub const EXACT: f64 = 0.0;

/// What is named in lines whose numbers differ from run to run.
const BY_CHANCE: [&str; 5] = [" ms", "(pid ", "at the peak, idle", "Training time", "  threads  "];

/// Of amounts of memory.
const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];

/// Compares a text with the listing of this name, or replaces the listing if it differs.
pub fn expect_listing(name: &str, text: &str, tolerance: f64) -> Result<()> {
    let same = |listing: &str, text: &str| same(listing, text, |_| tolerance);
    expect(&[Output { name, text, same: &same }])
}

/// Compares what processes that do not wait for each other have come to: its words. Numbers, and how
/// many rows and stars a histogram has, differ from run to run.
pub fn expect_words(name: &str, text: &str) -> Result<()> {
    let same = |listing: &str, text: &str| without_numbers(listing) == without_numbers(text);
    expect(&[Output { name, text, same: &same }])
}

/// The same for a text and the pictures that the same run has drawn, each by its name. How many points
/// a curve has differs from run to run as well.
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
/// run has drawn. Lines without a time have to be equal, and both are replaced if one differs.
pub fn expect_times(name: &str, text: &str, picture: &str, svg: &str) -> Result<()> {
    let same_table = |listing: &str, text: &str| {
        same(listing, text, |line| if line.split(' ').any(is_time) { f64::INFINITY } else { EXACT })
    };
    expect(&[
        Output { name, text, same: &same_table },
        Output { name: picture, text: svg, same: &same_labels },
    ])
}

/// Compares texts that tell amounts of memory, and the picture of them that the same run has drawn.
/// Amounts have to be equal, times and shares of time need not. All are replaced if one differs.
pub fn expect_amounts(texts: &[(&str, &str)], picture: &str, svg: &str) -> Result<()> {
    expect_drawn(texts, picture, svg, &|listing, text| {
        without_times(listing) == without_times(text)
    })
}

/// The same for texts with measurements of all kinds. Of their numbers, amounts of memory have to be
/// equal, and what is written with commas between groups of digits.
pub fn expect_measured(texts: &[(&str, &str)], picture: &str, svg: &str) -> Result<()> {
    expect_drawn(texts, picture, svg, &|listing, text| {
        without_measurements(listing) == without_measurements(text)
    })
}

fn expect_drawn(
    texts: &[(&str, &str)],
    picture: &str,
    svg: &str,
    same_text: &dyn Fn(&str, &str) -> bool,
) -> Result<()> {
    let same_picture = |picture: &str, svg: &str| picture == svg;
    let mut outputs = vec![Output { name: picture, text: svg, same: &same_picture }];
    outputs.extend(texts.iter().map(|&(name, text)| Output { name, text, same: same_text }));
    expect(&outputs)
}

/// A file of the book's folder `output`, as a run has just produced it.
struct Output<'a> {
    name: &'a str,
    text: &'a str,
    /// Whether the book's, which comes first, and this one agree.
    same: &'a dyn Fn(&str, &str) -> bool,
}

/// Compares the outputs of one run with the book's, or replaces all of them if one differs.
fn expect(outputs: &[Output<'_>]) -> Result<()> {
    let path =
        |output: &Output<'_>| -> PathBuf { workspace().join("book/src/output").join(output.name) };
    let in_the_book = |output: &Output<'_>| fs::read_to_string(path(output)).unwrap_or_default();
    let differs = |output: &&Output<'_>| !(output.same)(&in_the_book(output), output.text);
    let Some(first) = outputs.iter().find(differs) else { return Ok(()) };
    if env::var_os("UPDATE_BOOK").is_some() {
        return outputs.iter().try_for_each(|output| {
            let path = path(output);
            fs::write(&path, output.text)
                .with_context(|| format!("cannot write {}", path.display()))
        });
    }
    ensure!(
        false,
        "{} is out of date; UPDATE_BOOK=1 renews it\n=== the book\n{}\n=== this run\n{}",
        path(first).display(),
        in_the_book(first),
        first.text
    );
    Ok(())
}

/// Whether two texts agree word for word, their numbers within the tolerance of their line. Lines
/// in which milliseconds, process ids, a device's idle time, a whole training's time or what threads
/// came to are named may have any, and so may seconds: those of the meters `Time` and `Data`, and what is written `0.5s`.
fn same(listing: &str, text: &str, tolerance: impl Fn(&str) -> f64) -> bool {
    let same_line = |(listing, text): (&str, &str)| {
        let by_chance = BY_CHANCE.iter().any(|name| listing.contains(name));
        let tolerance = if by_chance { f64::INFINITY } else { tolerance(listing) };
        let (listing, text) = (without_seconds(listing), without_seconds(text));
        listing.len() == text.len()
            && listing.iter().zip(text).all(|(a, b)| same_word(a, b, tolerance))
    };
    listing.lines().count() == text.lines().count()
        && listing.lines().zip(text.lines()).all(same_line)
}

/// Columns are as wide as their numbers, so blanks do not count.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split([' ', '\t', '=', ',', ':', '}', '(', ')']).filter(|word| !word.is_empty())
}

/// The words of a line, without how many seconds something took.
fn without_seconds(line: &str) -> Vec<&str> {
    let words: Vec<_> = words(line).collect();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    // A meter shows the last value and the mean.
    let of_a_meter = |index: usize| {
        words[index.saturating_sub(2)..index].iter().any(|word| ["Time", "Data"].contains(word))
    };
    let kept = words.iter().enumerate().filter(|&(index, word)| {
        !(word.strip_suffix('s').is_some_and(is_number) || (is_number(word) && of_a_meter(index)))
    });
    kept.map(|(_, word)| *word).collect()
}

fn same_word(listing: &str, text: &str, tolerance: f64) -> bool {
    let numbers = listing.parse::<f64>().ok().zip(text.parse::<f64>().ok());
    listing == text || numbers.is_some_and(|(a, b)| (a - b).abs() <= tolerance)
}

/// Whether a word is a number with three decimals.
fn is_time(word: &str) -> bool {
    let decimals = word.split_once('.').map(|(_, decimals)| decimals.len());
    decimals == Some(3) && word.parse::<f64>().is_ok()
}

/// The words of each line that has any, without numbers, seconds and bars of stars.
fn without_numbers(text: &str) -> Vec<Vec<&str>> {
    let is_word = |word: &&str| {
        let number = word.strip_suffix('s').unwrap_or(word);
        number.parse::<f64>().is_err() && !word.chars().all(|c| c == '*')
    };
    let lines = text.lines().map(|line| words(line).filter(is_word).collect::<Vec<_>>());
    lines.filter(|words| !words.is_empty()).collect()
}

/// The words of a text without shares in percent, and without numbers that follow upon an amount and
/// are none themselves: in a table with amounts these are times and speeds.
fn without_times(text: &str) -> Vec<Vec<&str>> {
    let is_unit = |word: Option<&&str>| word.is_some_and(|word| UNITS.contains(word));
    text.lines()
        .map(|line| {
            let words: Vec<_> = words(line).collect();
            let by_chance = |index: usize| {
                let (before, next) = (words[..index].last(), words.get(index + 1));
                next == Some(&"%") || is_unit(before) && !is_unit(next)
            };
            let kept = words.iter().enumerate();
            let kept =
                kept.filter(|(index, word)| word.parse::<f64>().is_err() || !by_chance(*index));
            kept.map(|(_, word)| *word).collect()
        })
        .collect()
}

/// The words of a text without numbers, but for amounts of memory.
fn without_measurements(text: &str) -> Vec<Vec<&str>> {
    let is_number = |word: &str| {
        word.chars().all(|c| c.is_ascii_digit() || ".:".contains(c))
            && word.contains(|c: char| c.is_ascii_digit())
    };
    text.lines()
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let is_amount = |index: usize| {
                let next = words.get(index + 1).map(|word| word.trim_end_matches(['.', ',']));
                next.is_some_and(|word| UNITS.contains(&word))
            };
            let kept = words.iter().enumerate();
            let kept = kept.filter(|&(index, word)| !is_number(word) || is_amount(index));
            kept.map(|(_, word)| *word).collect()
        })
        .collect()
}

/// Whether two pictures have the same title, legend, lanes and spans. When a span begins, how long
/// it is, and so which ticks the axis has and which names find room, differ from run to run.
fn same_labels(picture: &str, svg: &str) -> bool {
    labels(picture) == labels(svg)
}

/// What is written in a picture, without numbers, and for what can be pointed at how often.
fn labels(svg: &str) -> BTreeMap<String, usize> {
    let mut labels = BTreeMap::new();
    for (element, counts) in [("text", false), ("title", true)] {
        let tag = format!("<{element}");
        let opened = svg.split(&tag).skip(1);
        for content in opened.filter_map(|rest| rest.split_once('>')?.1.split('<').next()) {
            let words = words(content).map(str::trim).filter(|word| word.parse::<f64>().is_err());
            let label = words.collect::<Vec<_>>().join(" ");
            let count = labels.entry(format!("{element} {label}")).or_default();
            *count = if counts { *count + 1 } else { 1 };
        }
    }
    labels
}

#[test]
fn numbers_may_differ_within_the_tolerance_and_words_not_at_all() {
    let same = |a, b, tolerance| same(a, b, |_| tolerance);
    assert!(same("loss=0.500, epoch 1", "loss=0.505, epoch 1", 0.01));
    assert!(!same("loss=0.500, epoch 1", "loss=0.520, epoch 1", 0.01));
    assert!(!same("loss=0.500", "cost=0.500", 0.01));
    assert!(!same("1\n2", "1", 0.01));
    assert!(same("backward 3.1 ms", "backward 10.9 ms", EXACT));
    assert!(same("rank 0 (pid 521) ended", "rank 0 (pid 7) ended", EXACT));
}

#[test]
fn of_a_histogram_only_what_it_counts_has_to_be_the_same() {
    let histogram = |rows: &str, what: &str| format!("async-ps: 3.2 s\n{what}  updates\n{rows}");
    let words = |text: &str| without_numbers(text).concat().join(" ");
    let first = histogram("  0  12  ****\n  1   3  *\n  2   0\n", "staleness");
    assert_eq!(words(&first), "async-ps s staleness updates");
    assert_eq!(words(&first), words(&histogram("  0  9  **\n", "staleness")));
    assert_ne!(words(&first), words(&histogram("  0  9  **\n", "lead")));
}

#[test]
fn only_lines_with_a_time_may_have_other_numbers() {
    assert!(["0.034", "144.857"].into_iter().all(is_time));
    assert!(!["0.0340", "12", "step.one"].into_iter().any(is_time));
    let any = |line: &str| if line.split(' ').any(is_time) { f64::INFINITY } else { EXACT };
    assert!(same("gather 9.046 ", "gather  10.1 ", any));
    assert!(!same("gather 36 9.046\nall 36", "gather 36 9.046\nall 48", any));
}

#[test]
fn amounts_have_to_be_equal_while_times_and_shares_of_time_need_not() {
    let row = |peak: &str, seconds: &str, idle: &str| {
        without_times(&format!("ddp  cpu:0  0 B  {peak} MiB  {seconds}  {idle} %"))
            .concat()
            .join(" ")
    };
    assert_eq!(row("178", "0.53", "5"), "ddp cpu 0 0 B 178 MiB %");
    assert_eq!(row("178", "0.53", "5"), row("178", "1.2", "17"));
    assert_ne!(row("178", "0.53", "5"), row("179", "0.53", "5"));
}

#[test]
fn seconds_may_differ_and_what_was_measured_beside_them_may_not() {
    let meters = |time: &str, loss: &str| {
        format!("Epoch: [0][1/5]\tTime {time} ( {time})\tLoss {loss} ({loss})\tbatch time: {time}s")
    };
    let same = |a: &str, b: &str| same(a, b, |_| LAST_DIGIT);
    assert!(same(&meters("0.123", "2.3026e+00"), &meters("9.5", "2.3026e+00")));
    assert!(!same(&meters("0.123", "2.3026e+00"), &meters("0.123", "2.3126e+00")));
    let row = |seconds: &str, peak: &str, bytes: &str| {
        let row = format!("ddp  {seconds} s  0:00:{seconds}  {peak} MiB  {bytes}");
        without_measurements(&row).concat().join(" ")
    };
    assert_eq!(row("12", "178", "1,024"), "ddp s 178 MiB 1,024");
    assert_eq!(row("12", "178", "1,024"), row("7.5", "178", "1,024"));
}

#[test]
fn a_picture_may_differ_in_its_numbers_only() {
    let picture = |lane: &str, tick: &str, spans: usize| {
        let span = format!("<rect><title>{lane}, loss: {tick} ms, from {tick} ms</title></rect>");
        format!("<svg><text x=\"1\">\n{lane}\n</text><text>\n{tick}\n</text>{}", span.repeat(spans))
    };
    assert!(same_labels(&picture("cpu:0", "20", 1), &picture("cpu:0", "0.5", 1)));
    assert!(!same_labels(&picture("cpu:0", "20", 1), &picture("gpu", "20", 1)));
    assert!(!same_labels(&picture("cpu:0", "20", 1), &picture("cpu:0", "20", 2)));
}
