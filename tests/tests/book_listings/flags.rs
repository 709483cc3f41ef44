//! Chapter "The originals' flags".

use super::*;

/// The default of a flag without a value.
const SWITCH: &str = "off";

#[test]
fn every_flag_of_the_originals_works_or_is_answered() -> Result<()> {
    let originals = source("tests/data/originals_flags.txt")?;
    let (mut count, mut flags) = (0, 0);
    for original in originals.split("\n\n").skip(1) {
        let (head, rows) = original.split_once('\n').context("no flags")?;
        let (name, command) = head.trim_start_matches('[').split_once("] ").context("no name")?;
        let mut words = command.split(' ').chain(["--help"]);
        let here = Flags::of(program(words.next().unwrap_or_default(), words)?)?;
        let mut table =
            "| original | default | here | default here |\n|---|---|---|---|\n".to_owned();
        for row in rows.lines() {
            let (spellings, default) = row.split_once(" |").context("no default")?;
            let default = default.trim();
            let found = here.find(spellings, default == SWITCH);
            let (here, ours) = found.with_context(|| format!("{name}: {spellings} is unknown"))?;
            table.push_str(&format!("| `{spellings}` | {default} | {here} | {ours} |\n"));
            flags += 1;
        }
        if name == "main_py" {
            expect_listing("flags_main_py.txt", &table, EXACT)?;
        }
        count += 1;
    }
    ensure!((count, flags) == (8, 98), "{count} originals have {flags} flags");
    Ok(())
}

#[test]
fn a_flag_that_is_missing_is_answered() -> Result<()> {
    let mut text = String::new();
    for line in [
        "ddp-imagenet --dist-url tcp://10.0.0.1:23456 --world-size 4",
        "dp-custom-criterion -hs 256 --with_cuda True --cuda_devices 0 1",
        "dp-custom-criterion vocab -c corpus.txt -o vocab.json -e latin-1",
    ] {
        let (name, flags) = line.split_once(' ').context("a program without flags")?;
        let ended = Job::new()?.run(program(name, flags.split(' '))?)?.expect_code(2)?;
        let answer = ended.stderr.lines().next().unwrap_or_default();
        text.push_str(&format!("$ {line}\n{answer}\n{CUT}"));
    }
    expect_listing("flags_answered.txt", &text, EXACT)
}

/// What the help of a program tells.
struct Flags {
    /// Of every flag in every spelling: what it takes, such as `<DIR>`, if it is no switch; the default.
    options: BTreeMap<String, (String, String)>,
    /// The original's flags, and what stands here for them.
    originals: BTreeMap<String, String>,
}

impl Flags {
    fn of(help: Command) -> Result<Self> {
        let help = printed(help)?;
        let (ours, originals) = help.split_once("\nFlags of the original").unwrap_or((&help, ""));
        let originals = originals.lines().filter_map(|line| line.trim().split_once("  "));
        let originals: BTreeMap<_, _> =
            originals.map(|(name, here)| (name.to_owned(), here.trim().to_owned())).collect();

        let ours = ours.split("\nExamples:").next().unwrap_or_default();
        let mut options: BTreeMap<String, (String, String)> = BTreeMap::new();
        let mut names = Vec::new();
        for line in ours.lines() {
            let words = line.trim().split("  ").next().unwrap_or_default();
            let words = words.split([' ', ',']).filter(|word| word.len() > 1);
            let (spelled, values): (Vec<_>, Vec<_>) =
                words.map(str::to_owned).partition(|word| word.starts_with('-'));
            if line.trim().starts_with('-') && !spelled.is_empty() {
                let value = values.concat();
                let default = if value.is_empty() { SWITCH } else { "" }.to_owned();
                let flag = (value, default);
                options.extend(spelled.iter().map(|name| (name.clone(), flag.clone())));
                names = spelled;
            }
            for text in line.split("[default: ").skip(1) {
                let default = text.split(']').next().unwrap_or_default();
                for name in &names {
                    options.entry(name.clone()).and_modify(|(_, known)| *known = default.into());
                }
            }
            if let Some((_, alias)) = line.split_once("[alias: ") {
                let alias = alias.split(']').next().unwrap_or_default();
                let flag = names.first().and_then(|name| options.get(name)).cloned();
                options.extend(flag.map(|flag| (alias.to_owned(), flag)));
            }
        }
        ensure!(options.len() > 5, "only {options:?} were found in\n{help}");
        Ok(Flags { options, originals })
    }

    /// The name of a flag that may be cut short. `None` for one that would be unknown.
    fn name(&self, given: &str) -> Option<&str> {
        let known = || self.originals.keys().chain(self.options.keys()).map(String::as_str);
        let like: BTreeSet<_> = known().filter(|name| name.starts_with(given)).collect();
        known().find(|name| *name == given).or(like.first().copied().filter(|_| like.len() == 1))
    }

    /// What to type for a flag, and the default. `None` if one of its spellings would be unknown.
    fn find(&self, spellings: &str, is_switch: bool) -> Option<(String, String)> {
        let mut found = None;
        for spelling in spellings.split(", ") {
            let name = self.name(&spelling.replace('_', "-"))?;
            let here = self.originals.get(name).map_or(name, String::as_str);
            found = Some(match here.split_once([' ', '=']) {
                None => {
                    let (value, default) = self.options.get(here)?;
                    let cell = match value.trim_matches(['<', '>']) {
                        value if is_switch && !value.is_empty() => format!("`{here} {value}`"),
                        // One without a value takes Python's `True` and `False`.
                        _ => format!("`{here}`"),
                    };
                    (cell, default.clone())
                }
                Some((name, _)) if name.starts_with('-') => {
                    self.options.get(name)?;
                    (format!("`{here}`"), String::new())
                }
                Some(_) => {
                    // Or another program's, which the answer names.
                    let is_known = |it| here.contains("launch ") || self.options.contains_key(it);
                    let mut flags = here.split([' ', ',', ';']).filter(|w| w.starts_with("--"));
                    flags.all(is_known).then(|| (with_code(here), String::new()))?
                }
            });
        }
        found
    }
}

/// A sentence whose flags are set as code.
fn with_code(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let (flag, rest) = word.split_at(word.trim_end_matches([',', ';']).len());
        if flag.starts_with('-') { format!("`{flag}`{rest}") } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}
