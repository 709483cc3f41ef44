//! The names of a program's flags, its own and those of the original.

use clap::{ArgAction, Command};
use std::ffi::OsStr;

/// The counterpart of a flag of the original program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Here<'a> {
    /// A flag with the same meaning, perhaps with its value: `--device=cpu`.
    Flag(&'a str),
    /// What to type instead.
    Instead(&'a str),
}

/// The original's flags with another name here, or none, and their counterparts, written with `-`, not `_`.
pub type Originals<'a> = &'a [(&'a str, Here<'a>)];

/// The argument by which `torch.distributed.launch` told a script its local rank.
pub const LOCAL_RANK: &str = "--local-rank";

/// Every flag that a command line may have.
pub struct Vocabulary<'a> {
    originals: Originals<'a>,
    /// The long names of this program's flags, each with the one that `--help` shows first.
    own: Vec<(String, String)>,
    /// Those that take no value.
    switches: Vec<String>,
}

impl<'a> Vocabulary<'a> {
    /// That of a command, which must have been built: only then has it `--help`.
    pub fn new(command: &Command, originals: Originals<'a>) -> Self {
        let (mut own, mut switches) = (Vec::new(), Vec::new());
        for flag in command.get_arguments() {
            let Some(first) = flag.get_long().map(|name| format!("--{name}")) else { continue };
            let aliases = flag.get_all_aliases().unwrap_or_default();
            own.extend(aliases.iter().map(|alias| (format!("--{alias}"), first.clone())));
            own.push((first.clone(), first.clone()));
            if matches!(flag.get_action(), ArgAction::SetTrue) {
                switches.push(first);
            }
        }
        Self { originals, own, switches }
    }

    /// This program's name for a flag, perhaps with a value. `_` may stand for `-`, and a long name may be cut short as
    /// long as no other flag begins like it, as in argparse. A flag that neither program has keeps its name. The error
    /// says what to type for a flag that is missing here, or the flags that the name could stand for.
    pub fn name(&self, given: &str) -> Result<String, String> {
        // After a single dash, the rest may be a value: `-oa_file`.
        let is_long = given.len() > 2 && given.starts_with("--");
        let dashed = if is_long { given.replace('_', "-") } else { given.to_owned() };
        let own = self.own.iter().map(|(name, first)| (name.as_str(), Here::Flag(first)));
        let local_rank = (LOCAL_RANK, Here::Flag(LOCAL_RANK));
        let all = self.originals.iter().copied().chain(own).chain([local_rank]);
        let is_like = |name: &str| name == dashed || is_long && name.starts_with(&dashed);
        let mut like: Vec<_> = all.filter(|(name, _)| is_like(name)).collect();
        if let Some(exact) = like.iter().position(|(name, _)| *name == dashed) {
            like = vec![like[exact]];
        }
        // Two names of one flag are no choice.
        like.sort_by_key(|(_, here)| *here);
        like.dedup_by_key(|(_, here)| *here);
        match like[..] {
            [] => Ok(dashed),
            [(_, Here::Flag(here))] => Ok(here.to_owned()),
            [(_, Here::Instead(text))] => Err(format!("there is no {given}: {text}")),
            _ => {
                let mut names: Vec<_> = like.iter().map(|(name, _)| *name).collect();
                names.sort_unstable();
                Err(format!("{given} could be {}; type more of the name", names.join(", ")))
            }
        }
    }

    /// Whether a flag, by its name in this program, takes no value.
    pub fn is_switch(&self, name: &OsStr) -> bool {
        self.switches.iter().any(|switch| name == switch.as_str())
    }
}
