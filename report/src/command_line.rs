//! The command line, which also accepts the original program's flags.

use clap::error::ErrorKind;
use clap::{Command, Parser};
use std::ffi::OsString;
use tch_parallel::distributed::Env;
use tch_parallel::{Error, Result};

/// The counterpart of a flag of the original program.
#[derive(Debug, Clone, Copy)]
pub enum Here {
    /// A flag with the same meaning, perhaps with its value: `--device=cpu`.
    Flag(&'static str),
    /// What to type instead.
    Instead(&'static str),
}

/// The original's flags that have another name here, or none, each with its counterpart. Names are
/// written with `-`, not `_`.
pub type Originals<'a> = &'a [(&'static str, Here)];

/// The argument by which `torch.distributed.launch` told a script its local rank.
const LOCAL_RANK: &str = "--local-rank";

/// Parses the command line. Flags may be spelled with `_` for `-`, as in PyTorch's launchers, and
/// those of the original work or are answered with what to type instead: `originals` are the
/// program's own, and `subcommands` those of subcommands with another original. `--local-rank` is
/// accepted if it is this process's local rank. `--help` lists them.
///
/// Like [`Parser::parse`], ends the process at `--help` and for flags that are wrong.
pub fn parse<P: Parser>(originals: Originals<'_>, subcommands: &[(&str, Originals<'_>)]) -> P {
    let mut command = with_originals(P::command(), originals);
    for &(name, originals) in subcommands {
        command = command.mut_subcommand(name, |command| with_originals(command, originals));
    }
    let words: Vec<_> = std::env::args_os().collect();
    let subcommand = subcommands.iter().find(|(name, _)| words.get(1).is_some_and(|w| w == name));
    let originals = subcommand.map_or(originals, |(_, originals)| originals);
    // An environment that is wrong is the process group's to refuse.
    let local_rank = || Env::read().ok().map(|env| env.map_or(0, |env| env.local_rank));
    let matches = translate(words, originals, local_rank)
        .map_err(|text| command.error(ErrorKind::UnknownArgument, text))
        .and_then(|words| command.try_get_matches_from_mut(words));
    matches.and_then(|matches| P::from_arg_matches(&matches)).unwrap_or_else(|error| error.exit())
}

/// Adds the flags of the original to the end of the help.
fn with_originals(command: Command, originals: Originals<'_>) -> Command {
    let rows = originals.iter().map(|(name, here)| match here {
        Here::Flag(flag) => (*name, *flag),
        Here::Instead(text) => (*name, *text),
    });
    let local_rank = "accepted if it is LOCAL_RANK, which the launcher sets";
    let rows: Vec<_> = rows.chain([(LOCAL_RANK, local_rank)]).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let rows: String =
        rows.iter().map(|(name, here)| format!("\n  {name:width$}  {here}")).collect();
    let above = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    command.after_help(format!("{above}Flags of the original (_ may stand for -):{rows}"))
}

/// The words of a command line in this program's flags. `local_rank` is this process's, if it is
/// known.
///
/// # Errors
/// What to type instead, for a flag that is missing here.
fn translate(
    words: impl IntoIterator<Item = OsString>,
    originals: Originals<'_>,
    local_rank: impl Fn() -> Option<usize>,
) -> Result<Vec<OsString>, String> {
    let mut words = words.into_iter();
    let mut translated = Vec::new();
    while let Some(word) = words.next() {
        let Some(flag) = word.to_str().filter(|word| word.starts_with('-')) else {
            translated.push(word);
            continue;
        };
        if flag == "--" {
            translated.push(word);
            break;
        }
        let (given, value) =
            flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        // After a single dash, the rest may be a value: `-oa_file`.
        let dashed =
            if given.starts_with("--") { given.replace('_', "-") } else { given.to_owned() };
        if dashed == LOCAL_RANK {
            let value = value.map(OsString::from).or_else(|| words.next());
            let value = value.map(|value| value.to_string_lossy().into_owned());
            if let Some(own) = local_rank() {
                check_local_rank(given, &value.unwrap_or_default(), own)
                    .map_err(|error| error.to_string())?;
            }
            continue;
        }
        let name = match originals.iter().find(|(original, _)| *original == dashed) {
            Some((_, Here::Instead(text))) => return Err(format!("there is no {given}: {text}")),
            Some((_, Here::Flag(here))) => (*here).to_owned(),
            None => dashed,
        };
        translated.push(value.map_or(name.clone(), |value| format!("{name}={value}")).into());
    }
    translated.extend(words);
    Ok(translated)
}

/// Refuses a local rank that is not this process's.
fn check_local_rank(flag: &str, given: &str, local_rank: usize) -> Result<()> {
    if given.parse() == Ok(local_rank) {
        return Ok(());
    }
    let expected = format!(
        "{local_rank}, which is this process's local rank: leave it out, or set LOCAL_RANK and \
         torchrun's other variables"
    );
    Err(Error::argument(flag, format!("{given:?}"), expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINALS: Originals<'_> = &[
        ("-hs", Here::Flag("--hidden")),
        ("--no-accel", Here::Flag("--device=cpu")),
        ("--dist-url", Here::Instead("launch --master-addr sets it")),
    ];

    /// The command line of local rank 1, translated.
    fn translated(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from);
        let words = translate(words, ORIGINALS, || Some(1))?;
        Ok(words.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn flags_may_have_underscores_and_values_keep_theirs() {
        assert_eq!(
            translated("program --batch_size 2 --save=a_b -oa_b c_d -- --e_f").unwrap(),
            "program --batch-size 2 --save=a_b -oa_b c_d -- --e_f"
        );
    }

    #[test]
    fn flags_of_the_original_become_ours() {
        assert_eq!(
            translated("program -hs 256 -hs=2 --no_accel -h").unwrap(),
            "program --hidden 256 --hidden=2 --device=cpu -h"
        );
    }

    #[test]
    fn a_flag_that_is_missing_is_answered_as_it_was_typed() {
        for (line, flag) in
            [("program --dist-url x", "--dist-url"), ("program --dist_url=x", "--dist_url")]
        {
            let expected = format!("there is no {flag}: launch --master-addr sets it");
            assert_eq!(translated(line).unwrap_err(), expected);
        }
    }

    #[test]
    fn the_local_rank_is_accepted_if_it_is_right() {
        for line in ["program --local_rank 1 --x", "program --local-rank=1 --x"] {
            assert_eq!(translated(line).unwrap(), "program --x");
        }
        for (line, found) in [
            ("program --local_rank 0", "--local_rank is \"0\", but must be 1, which is"),
            ("program --local-rank=x", "--local-rank is \"x\", but must be 1, which is"),
            ("program --local-rank", "--local-rank is \"\", but must be 1, which is"),
        ] {
            let error = translated(line).unwrap_err();
            assert!(error.starts_with(found), "{error}");
        }
        let words = ["program", "--local_rank", "3"].map(OsString::from);
        assert_eq!(translate(words, ORIGINALS, || None).unwrap(), ["program"]);
    }

    #[test]
    fn the_help_ends_with_the_originals_flags() {
        let help = with_originals(Command::new("program").after_help("Examples:"), ORIGINALS)
            .render_help()
            .to_string();
        let end = "\
Examples:

Flags of the original (_ may stand for -):
  -hs           --hidden
  --no-accel    --device=cpu
  --dist-url    launch --master-addr sets it
  --local-rank  accepted if it is LOCAL_RANK, which the launcher sets
";
        assert!(help.ends_with(end), "{help}");
    }
}
