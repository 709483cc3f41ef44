//! Whether the output of a program and the book's version of it are alike: the same except for what
//! differs from run to run, or between processors.

use crate::prelude::*;

/// How far a loss or an accuracy may be from the book's: processors differ in the last bits, which
/// grow to this in ten epochs.
pub const TRAINED: f64 = 0.02;

/// For numbers with four decimals after one or a few steps, where rounding may carry the last bits into the last digit.
pub const LAST_DIGIT: f64 = 1.5e-4;

/// For the first step of a training: its loss and its accuracy, with three decimals or more.
const FIRST_STEP: f64 = 1.5e-3;

/// For losses and percentages of later steps, by which time processors have diverged. The parity
/// tests check the exact values on one machine.
pub const BY_FORM: f64 = 100.0;

/// By how much the memory of convolutions may differ between processors, which need different workspaces.
const ROOM: f64 = 0.01;

/// Of a picture's whole numbers, which round what they show.
const PIXEL: f64 = 4.0;

/// For numbers that are computed without rounding, or printed with few enough digits.
pub const EXACT: f64 = 0.0;

/// Texts in lines whose numbers differ from run to run.
const BY_CHANCE: [&str; 5] = [" ms", "(pid ", "at the peak, idle", "Training time", "  threads  "];

/// The units of amounts of memory.
const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];

/// Whether two texts agree word for word, with numbers within the tolerance of their line. Lines
/// are counted from 0. Integers must be equal, since they count something.
///
/// Any numbers are allowed in lines with milliseconds, process ids, a device's idle time, the time of a whole training
/// or the results of threads, and for seconds: those of the meters `Time` and `Data`, and those written like `0.5s`.
pub fn same(listing: &str, text: &str, tolerance: impl Fn(usize, &str) -> f64) -> bool {
    let same_line = |(index, (listing, text)): (usize, (&str, &str))| {
        let by_chance = BY_CHANCE.iter().any(|name| listing.contains(name));
        let tolerance = if by_chance { f64::INFINITY } else { tolerance(index, listing) };
        let (listing, text) = (without_seconds(listing), without_seconds(text));
        listing.len() == text.len()
            && listing.iter().zip(text).all(|(a, b)| same_word(a, b, tolerance))
    };
    listing.lines().count() == text.lines().count()
        && listing.lines().zip(text.lines()).enumerate().all(same_line)
}

/// Whether two trainings agree up to the first loss, and from there on except for losses and percentages.
pub fn same_training(listing: &str, text: &str) -> bool {
    let first_step = listing.lines().position(|line| line.to_lowercase().contains("loss"));
    same(listing, text, |index, _| match first_step {
        Some(first_step) if index > first_step => BY_FORM,
        _ => FIRST_STEP,
    })
}

/// Whether the outputs of processes that do not wait for each other agree. Numbers, and the rows and
/// bars of a histogram, differ from run to run.
pub fn same_words(listing: &str, text: &str) -> bool {
    without_numbers(listing) == without_numbers(text)
}

/// Whether tables with amounts of memory agree. Times and shares of time may differ.
pub fn same_amounts(listing: &str, text: &str) -> bool {
    without_times(listing) == without_times(text)
}

/// Whether texts with measurements of all kinds agree. Of their numbers, only amounts of memory,
/// and those with commas between groups of digits, must be the same, within [`ROOM`]. The amounts are
/// those of convolutions, whose workspace differs between processors.
pub fn same_measured(listing: &str, text: &str) -> bool {
    same_but_for_room(&without_measurements(listing), &without_measurements(text), 0.0)
}

/// Whether pictures of amounts of memory agree within [`ROOM`].
pub fn same_drawn_amounts(picture: &str, svg: &str) -> bool {
    same_but_for_room(&[svg_words(picture)], &[svg_words(svg)], PIXEL)
}

fn svg_words(svg: &str) -> Vec<&str> {
    svg.split(|c: char| c.is_whitespace() || "\"<>=,:".contains(c)).collect()
}

fn same_but_for_room(listing: &[Vec<&str>], text: &[Vec<&str>], least: f64) -> bool {
    let number = |word: &str| word.replace(',', "").parse::<f64>();
    let same_word = |(a, b): (&&str, &&str)| match (number(a), number(b)) {
        (Ok(a), Ok(b)) => (a - b).abs() <= (ROOM * a.abs()).max(least),
        _ => a == b,
    };
    let mut words = listing.iter().flatten().zip(text.iter().flatten());
    listing.iter().map(Vec::len).eq(text.iter().map(Vec::len)) && words.all(same_word)
}

/// The words of a line. Spaces are ignored, because columns are as wide as their numbers. So is the
/// folder in which PyTorch was compiled: gloo's messages name it, and 2.13 changed it.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split([' ', '\t', '=', ',', ':', '}', '(', ')']);
    let below = |word| str::rsplit_once(word, "/third_party/").map_or(word, |(_, path)| path);
    words.filter(|word| !word.is_empty()).map(below)
}

/// The words of a line that are to be kept, each given by its place.
fn kept(words: Vec<&str>, is_kept: impl Fn(&[&str], usize) -> bool) -> Vec<&str> {
    (0..words.len()).filter(|&index| is_kept(&words, index)).map(|index| words[index]).collect()
}

/// The words of a line without times in seconds.
fn without_seconds(line: &str) -> Vec<&str> {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    kept(words(line).collect(), |words, index| {
        // A meter shows the last value and the mean.
        let mut before = words[index.saturating_sub(2)..index].iter();
        let of_a_meter = before.any(|word| ["Time", "Data"].contains(word));
        let is_seconds = words[index].strip_suffix('s').is_some_and(is_number);
        !(is_seconds || (is_number(words[index]) && of_a_meter))
    })
}

fn same_word(listing: &str, text: &str, tolerance: f64) -> bool {
    let integers = [listing, text].iter().all(|word| word.parse::<i64>().is_ok());
    let tolerance = if integers && tolerance.is_finite() { EXACT } else { tolerance };
    let numbers = listing.parse::<f64>().ok().zip(text.parse::<f64>().ok());
    listing == text || numbers.is_some_and(|(a, b)| (a - b).abs() <= tolerance)
}

/// Whether a word is a number with three decimals.
pub fn is_time(word: &str) -> bool {
    let decimals = word.split_once('.').map(|(_, decimals)| decimals.len());
    decimals == Some(3) && word.parse::<f64>().is_ok()
}

/// The words of each line that has any, without numbers, times in seconds and bars.
fn without_numbers(text: &str) -> Vec<Vec<&str>> {
    let is_word = |word: &&str| {
        let number = word.strip_suffix('s').unwrap_or(word);
        number.parse::<f64>().is_err() && !word.chars().all(|c| ('█'..='▏').contains(&c))
    };
    let lines = text.lines().map(|line| words(line).filter(is_word).collect::<Vec<_>>());
    lines.filter(|words| !words.is_empty()).collect()
}

/// The words of a text without percentages, and without numbers that follow an amount of memory but
/// are not amounts themselves: in a table of amounts these are times and speeds.
fn without_times(text: &str) -> Vec<Vec<&str>> {
    let is_unit = |word: Option<&&str>| word.is_some_and(|word| UNITS.contains(word));
    let is_kept = |words: &[&str], index: usize| {
        let (before, next) = (words[..index].last(), words.get(index + 1));
        let by_chance = next == Some(&"%") || is_unit(before) && !is_unit(next);
        words[index].parse::<f64>().is_err() || !by_chance
    };
    text.lines().map(|line| kept(words(line).collect(), is_kept)).collect()
}

/// The words of a text without numbers, except amounts of memory.
fn without_measurements(text: &str) -> Vec<Vec<&str>> {
    let is_number = |word: &str| {
        word.chars().all(|c| c.is_ascii_digit() || ".:".contains(c))
            && word.contains(|c: char| c.is_ascii_digit())
    };
    let is_kept = |words: &[&str], index: usize| {
        let next = words.get(index + 1).map(|word| word.trim_end_matches(['.', ',']));
        !is_number(words[index]) || next.is_some_and(|word| UNITS.contains(&word))
    };
    text.lines().map(|line| kept(line.split_whitespace().collect(), is_kept)).collect()
}

/// Whether two pictures have the same title, legend, lanes and spans. The start and length of a
/// span, and so the ticks of the axis and the names that fit, differ from run to run.
pub fn same_labels(picture: &str, svg: &str) -> bool {
    labels(picture) == labels(svg)
}

/// Whether two pictures have the same texts and colours. How many points a curve has differs too.
pub fn same_names(picture: &str, svg: &str) -> bool {
    labels(picture).keys().eq(labels(svg).keys())
}

/// The texts of a picture without numbers, and for each colour how often an area has it.
fn labels(svg: &str) -> BTreeMap<String, usize> {
    let mut labels = BTreeMap::new();
    let opened = |tag: &'static str| svg.split(tag).skip(1).filter_map(|rest| rest.split_once('>'));
    for content in opened("<text").filter_map(|(_, rest)| rest.split('<').next()) {
        let words = words(content).map(str::trim).filter(|word| word.parse::<f64>().is_err());
        labels.insert(words.collect::<Vec<_>>().join(" "), 1);
    }
    for fill in opened("<rect").filter_map(|(it, _)| it.split_once("fill=")?.1.split(' ').next()) {
        *labels.entry(fill.into()).or_default() += 1;
    }
    labels
}

#[test]
fn numbers_may_differ_within_the_tolerance_and_words_not_at_all() {
    let same = |a, b, tolerance| same(a, b, |_, _| tolerance);
    assert!(same("loss=0.500, epoch 1", "loss=0.505, epoch 1", 0.01));
    assert!(!same("loss=0.500, epoch 1", "loss=0.520, epoch 1", 0.01));
    assert!(!same("loss=0.500", "cost=0.500", 0.01));
    assert!(!same("loss=0.500, epoch 1", "loss=0.500, epoch 2", BY_FORM));
    assert!(!same("1\n2", "1", 0.01));
    assert!(same("backward 3.1 ms", "backward 10.9 ms", EXACT));
    assert!(same("rank 0 (pid 521) ended", "rank 0 (pid 7) ended", EXACT));
}

#[test]
fn after_the_first_step_of_a_training_only_its_form_has_to_be_the_same() {
    let steps = |first: &str, step: &str, last: &str| {
        format!("2 ranks\nEpoch 0: Loss {first}\nEpoch {step}: Loss {last}\n")
    };
    let book = steps("2.3026", "10", "1.5");
    assert!(same_training(&book, &steps("2.3027", "10", "1.9")));
    assert!(!same_training(&book, &steps("2.31", "10", "1.5")));
    assert!(!same_training(&book, &steps("2.3026", "11", "1.5")));
    for no_loss in ["NaN", "1e30", "none"] {
        assert!(!same_training(&book, &steps("2.3026", "10", no_loss)), "{no_loss}");
    }
    assert!(!same_training(&book, &book.replace("Epoch 10", "Epochs 10")));
    assert!(!same_training(&book, &book.replace("2 ranks", "3 ranks")));
}

#[test]
fn only_what_a_histogram_counts_has_to_be_the_same() {
    let histogram = |rows: &str, what: &str| format!("async-ps: 3.2 s\n{what}  updates\n{rows}");
    let words = |text: &str| without_numbers(text).concat().join(" ");
    let first = histogram("  0  12  ████\n  1   3  █\n  2   0\n", "staleness");
    assert_eq!(words(&first), "async-ps s staleness updates");
    assert_eq!(words(&first), words(&histogram("  0  9  █▋\n", "staleness")));
    assert_ne!(words(&first), words(&histogram("  0  9  █▋\n", "lead")));
}

#[test]
fn only_lines_with_a_time_may_have_other_numbers() {
    assert!(["0.034", "144.857"].into_iter().all(is_time));
    assert!(!["0.0340", "12", "step.one"].into_iter().any(is_time));
    let any = |_, line: &str| if line.split(' ').any(is_time) { f64::INFINITY } else { EXACT };
    assert!(same("gather 9.046 ", "gather  10.1 ", any));
    assert!(!same("gather 36 9.046\nall 36", "gather 36 9.046\nall 48", any));
}

#[test]
fn amounts_have_to_be_equal_while_times_and_shares_of_time_need_not() {
    let row = |peak: &str, seconds: &str, idle: &str| {
        format!("ddp  cpu:0  0 B  {peak} MiB  {seconds}  {idle} %")
    };
    let book = row("178", "0.53", "5");
    assert_eq!(without_times(&book).concat().join(" "), "ddp cpu 0 0 B 178 MiB %");
    assert!(same_amounts(&book, &row("178", "1.2", "17")));
    assert!(!same_amounts(&book, &row("179", "0.53", "5")));
}

#[test]
fn a_picture_may_show_other_room_to_work_in_and_no_other_amounts() {
    let bar = |bytes: &str, device: &str| format!("<rect width=\"{bytes}\"/><text>{device}</text>");
    let book = bar("36631596", "cpu:1");
    assert!(same_drawn_amounts(&book, &bar("36540716", "cpu:1")));
    assert!(!same_drawn_amounts(&book, &bar("37631596", "cpu:1")));
    assert!(!same_drawn_amounts(&book, &bar("36631596", "cuda:1")));
}

#[test]
fn seconds_may_differ_and_what_was_measured_beside_them_may_not() {
    let meters = |time: &str, loss: &str| {
        format!("Epoch: [0][1/5]\tTime {time} ( {time})\tLoss {loss} ({loss})\tbatch time: {time}s")
    };
    let same = |a: &str, b: &str| same(a, b, |_, _| LAST_DIGIT);
    assert!(same(&meters("0.123", "2.3026e+00"), &meters("9.5", "2.3026e+00")));
    assert!(!same(&meters("0.123", "2.3026e+00"), &meters("0.123", "2.3126e+00")));
    let row = |seconds: &str, peak: &str, bytes: &str| {
        let row = format!("ddp  {seconds} s  0:00:{seconds}  {peak} MiB  {bytes}");
        without_measurements(&row).concat().join(" ")
    };
    assert_eq!(row("12", "178", "1,024"), "ddp s 178 MiB 1,024");
    assert_eq!(row("12", "178", "1,024"), row("7.5", "178", "1,024"));
    let measured = |bytes: &str| same_measured("peak 37,894,476", &format!("peak {bytes}"));
    assert!(measured("37,600,000") && !measured("37,400,000"));
}

#[test]
fn a_picture_may_differ_in_its_numbers_only() {
    let picture = |lane: &str, tick: &str, spans: usize| {
        let span = format!("<rect x=\"{tick}\" fill=\"#0072B2\" stroke=\"none\"/>");
        format!("<svg><text x=\"1\">\n{lane}\n</text><text>\n{tick}\n</text>{}", span.repeat(spans))
    };
    assert!(same_labels(&picture("cpu:0", "20", 1), &picture("cpu:0", "0.5", 1)));
    assert!(!same_labels(&picture("cpu:0", "20", 1), &picture("gpu", "20", 1)));
    assert!(!same_labels(&picture("cpu:0", "20", 1), &picture("cpu:0", "20", 2)));
}
