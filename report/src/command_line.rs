//! The command line, which also accepts the original program's flags.

use crate::vocabulary::{Here, LOCAL_RANK, Originals, Vocabulary};
use clap::{Args, Command, Parser, error::ErrorKind};
use std::ffi::{OsStr, OsString};
use tch_parallel::{Error, distributed::Env};

/// Parses the command line as argparse would. Flags may be spelled with `_` for `-`, and cut short as long as no other
/// flag begins like them; one without a value may be followed by Python's `True` or `False`. Those of the original work
/// or are answered with what to type instead: `originals` are the program's own, and `subcommands` those of subcommands
/// with another original. `--local-rank` is accepted if it is this process's local rank. `--help` lists them.
///
/// Like [`Parser::parse`], ends the process at `--help` and for flags that are wrong.
pub fn parse<P: Parser>(originals: Originals<'_>, subcommands: &[(&str, Originals<'_>)]) -> P {
    let mut command = with_originals(P::command(), originals);
    for &(name, originals) in subcommands {
        command = command.mut_subcommand(name, |command| with_originals(command, originals));
    }
    command.build();
    let words: Vec<_> = std::env::args_os().collect();
    let subcommand = subcommands.iter().find(|(name, _)| words.get(1).is_some_and(|w| w == name));
    let originals = subcommand.map_or(originals, |(_, originals)| originals);
    let vocabulary =
        Vocabulary::new(subcommand_of(&command, words.get(1..).unwrap_or_default()), originals);
    // An environment that is wrong is the process group's to refuse.
    let local_rank = || Env::read().ok().map(|env| env.map_or(0, |env| env.local_rank));
    let matches = translate(words, &vocabulary, local_rank)
        .map_err(|text| command.error(ErrorKind::UnknownArgument, text))
        .and_then(|words| command.try_get_matches_from_mut(words));
    matches.and_then(|matches| P::from_arg_matches(&matches)).unwrap_or_else(|error| {
        // What cannot be written now cannot be reported either.
        let _ = error.print();
        tch_parallel::exit(error.exit_code() as u8)
    })
}

/// Parses flags that are a part of a command line, without a program's name. Fails for flags that are wrong.
pub fn parse_flags<A: Args>(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<A, clap::Error> {
    let command = A::augment_args(Command::new("flags").no_binary_name(true));
    A::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// The command whose flags these words are: that of the subcommands with which they begin, such as `ring check`.
fn subcommand_of<'a>(command: &'a Command, words: &[OsString]) -> &'a Command {
    let subcommand = words.first().and_then(|word| command.find_subcommand(word));
    subcommand.map_or(command, |subcommand| subcommand_of(subcommand, &words[1..]))
}

fn with_originals(command: Command, originals: Originals<'_>) -> Command {
    let rows = originals.iter().map(|&(name, Here::Flag(here) | Here::Instead(here))| (name, here));
    let local_rank = "accepted if it is LOCAL_RANK, which the launcher sets";
    let rows: Vec<_> = rows.chain([(LOCAL_RANK, local_rank)]).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let rows: String =
        rows.iter().map(|(name, here)| format!("\n  {name:width$}  {here}")).collect();
    let above = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    command.after_help(format!("{above}Flags of the original (_ may stand for -):{rows}"))
}

/// Translates a command line into this program's flags. Fails if [`Vocabulary::name`] refuses one, or if its
/// `local_rank` differs from this process's, where that is known.
fn translate(
    words: impl IntoIterator<Item = OsString>,
    vocabulary: &Vocabulary<'_>,
    local_rank: impl Fn() -> Option<usize>,
) -> Result<Vec<OsString>, String> {
    let mut words = words.into_iter().peekable();
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
        let parts = flag.split_once('=').map(|(name, value)| (name, Some(OsString::from(value))));
        let (given, value) = parts.unwrap_or((flag, None));
        let mut name = OsString::from(vocabulary.name(given)?);
        let is_switch = vocabulary.is_switch(&name);
        let value = value.or_else(|| words.next_if(|word| is_switch && truth(word).is_some()));
        if name == LOCAL_RANK {
            let value = value.or_else(|| words.next()).unwrap_or_default();
            let value = value.to_string_lossy();
            if let Some(own) = local_rank().filter(|own| value.parse() != Ok(*own)) {
                let expected = format!(
                    "{own}, which is this process's local rank: leave it out, or set LOCAL_RANK \
                     and torchrun's other variables"
                );
                return Err(Error::argument(given, format!("{value:?}"), expected).to_string());
            }
        } else if let (true, Some(is_set)) = (is_switch, value.as_deref().and_then(truth)) {
            // The last one counts.
            translated.retain(|earlier| *earlier != name);
            translated.extend(is_set.then_some(name));
        } else {
            if let Some(value) = value {
                name.push("=");
                name.push(value);
            }
            translated.push(name);
        }
    }
    translated.extend(words);
    Ok(translated)
}

/// What Python's words for true and false say; python-fire and argparse give flags such values.
fn truth(word: &OsStr) -> Option<bool> {
    match word.to_str()? {
        "True" | "true" => Some(true),
        "False" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};

    const ORIGINALS: Originals<'_> = &[
        ("-hs", Here::Flag("--hidden")),
        ("--no-accel", Here::Flag("--device=cpu")),
        ("--gpu", Here::Instead("type --devices cuda:0")),
        ("--gpu-devices", Here::Instead("type --devices cuda:0")),
    ];

    /// The command line of local rank 1, translated.
    fn translated(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from);
        let words = translate(words, &vocabulary(), || Some(1))?;
        Ok(words.join(" ".as_ref()).into_string().unwrap())
    }

    fn vocabulary() -> Vocabulary<'static> {
        let flag = |name: &'static str| Arg::new(name).long(name);
        let switches = ["evaluate", "shuffle"].map(|name| flag(name).action(ArgAction::SetTrue));
        let others = ["batch-size", "epochs", "hidden", "weight-decay"].map(flag);
        let workers = flag("workers").visible_alias("num-workers");
        let mut command = Command::new("program").args(switches).args(others).arg(workers);
        command.build();
        Vocabulary::new(&command, ORIGINALS)
    }

    #[test]
    fn flags_of_the_original_become_ours_and_values_stay_as_they_are() {
        let words = "program -hs 256 -hs=2 --no_accel -h --save=a_b -oa_b c_d --batch=-1 -- --e_f";
        let ours = "program --hidden 256 --hidden=2 --device=cpu -h --save=a_b -oa_b c_d \
                    --batch-size=-1 -- --e_f";
        assert_eq!(translated(words).unwrap(), ours);
    }

    #[test]
    fn a_name_may_have_underscores_and_be_cut_short_as_long_as_it_is_one_flags() {
        for (given, expected) in [
            ("--weight_decay", "--weight-decay"),
            ("--help", "--help"),
            ("--e_f", "--e-f"),
            ("--weight", "--weight-decay"),
            ("--num_work", "--workers"),
            ("--no", "--device=cpu"),
            ("--hid", "--hidden"),
        ] {
            assert_eq!(translated(given).unwrap(), expected);
        }
        for (given, flags) in [("--e", "--epochs, --evaluate"), ("--h", "--help, --hidden")] {
            let expected = format!("{given} could be {flags}; type more of the name");
            assert_eq!(translated(given).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_flag_that_is_missing_is_answered_as_it_was_typed_with_or_without_a_value() {
        for line in ["--gpu", "--gpu x", "--gpu=x", "--gpu_devices", "--gpu_device=x", "--g x"] {
            let flag = line.split([' ', '=']).next().unwrap();
            let expected = format!("there is no {flag}: type --devices cuda:0");
            assert_eq!(translated(line).unwrap_err(), expected);
        }
    }

    #[test]
    fn pythons_words_for_true_and_false_may_follow_a_switch() {
        for (line, expected) in [
            ("program --shuffle --x", "program --shuffle --x"),
            ("program --shuffle=True --x", "program --shuffle --x"),
            ("program --shuffle True --x", "program --shuffle --x"),
            ("program --shuf=false --x", "program --x"),
            ("program --shuffle False --x", "program --x"),
            // The last one counts.
            ("program --shuffle --shuffle False --x", "program --x"),
            ("program --shuffle False --shuffle True --x", "program --shuffle --x"),
            // Not ours to judge.
            ("program --shuffle=maybe", "program --shuffle=maybe"),
            ("program --shuffle maybe", "program --shuffle maybe"),
            ("program --batch-size=True", "program --batch-size=True"),
            ("program --batch-size False", "program --batch-size False"),
        ] {
            assert_eq!(translated(line).unwrap(), expected);
        }
    }

    #[test]
    fn the_local_rank_is_accepted_if_it_is_right() {
        for line in ["--local_rank 1 --x", "--local-rank=1 --x", "--local_r 1 --x"] {
            assert_eq!(translated(line).unwrap(), "--x");
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
        assert_eq!(translate(words, &vocabulary(), || None).unwrap(), ["program"]);
    }

    #[test]
    fn the_flags_are_those_of_the_subcommand_at_the_beginning() {
        let check = Command::new("check");
        let program = Command::new("program").subcommand(Command::new("ring").subcommand(check));
        for (line, name) in [
            ("--n 5", "program"),
            ("ring --n 5", "ring"),
            ("ring check --n 5", "check"),
            ("--output ring", "program"),
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert_eq!(subcommand_of(&program, &words).get_name(), name);
        }
    }

    #[test]
    fn the_help_ends_with_the_originals_flags() {
        let program = Command::new("program").after_help("Examples:");
        let help = with_originals(program, ORIGINALS).render_help().to_string();
        let end = "\
Examples:

Flags of the original (_ may stand for -):
  -hs            --hidden
  --no-accel     --device=cpu
  --gpu          type --devices cuda:0
  --gpu-devices  type --devices cuda:0
  --local-rank   accepted if it is LOCAL_RANK, which the launcher sets
";
        assert!(help.ends_with(end), "{help}");
    }
}
