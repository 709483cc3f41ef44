//! The commands that the book and the READMEs tell a reader to type.

use crate::prelude::*;
use crate::programs::{PROGRAMS, example, launch_with, program, torchrun_with};

/// A call of a program of the workspace.
#[derive(Debug, PartialEq)]
pub struct Call<'a> {
    /// `launch` or `torchrun`, and its flags.
    pub launcher: Option<(&'a str, Vec<&'a str>)>,
    /// Its name, or that of an example.
    pub program: &'a str,
    pub arguments: Vec<&'a str>,
}

impl<'a> Call<'a> {
    /// Parses a command; `None` if it starts no program of the workspace.
    pub fn parse(words: &[&'a str]) -> Result<Option<Self>> {
        let call = |program: &'a str, rest: &[&'a str]| {
            let arguments = rest.strip_prefix(&["--"]).unwrap_or(rest).to_vec();
            Some(Call { launcher: None, program, arguments })
        };
        Ok(match words {
            ["cargo", "launch", rest @ ..] => {
                // Each of its flags has a value.
                let is_flag = |pair: &&[&str]| pair[0].starts_with('-') && pair[0] != "--";
                let flags = rest.chunks(2).take_while(is_flag).flatten();
                // `gpu` counts what is missing here.
                let flags = flags.map(|word| if *word == "gpu" { "2" } else { *word });
                let flags: Vec<&'a str> = flags.collect();
                let launched = match &rest[flags.len()..] {
                    ["--", rest @ ..] => Self::parse(rest)?,
                    [program, rest @ ..] => call(program, rest),
                    [] => None,
                };
                let launched = launched.context("cargo launch starts no program")?;
                Some(Call { launcher: Some(("launch", flags)), ..launched })
            }
            ["cargo", "xtask", "run", program, rest @ ..] => call(program, rest),
            ["cargo", "run", rest @ ..] => {
                let behind = |flag: &str| Some(rest.iter().position(|word| *word == flag)? + 1);
                let at = behind("--example").or_else(|| behind("-p")).context("which program?")?;
                call(rest.get(at).context("which program?")?, &rest[at + 1..])
            }
            ["torchrun", rest @ ..] => {
                let at = rest.iter().position(|word| word.starts_with("target/release/"));
                let Some(at) = at else { return Ok(None) };
                let program = rest[at].trim_start_matches("target/release/");
                let launcher = Some(("torchrun", rest[..at].to_vec()));
                Some(Call { launcher, program, arguments: rest[at + 1..].to_vec() })
            }
            _ => None,
        })
    }

    /// The same with these arguments of the program.
    pub fn with(&self, arguments: &[&str]) -> Result<Command> {
        let arguments = arguments.iter().copied();
        let program = match PROGRAMS.contains(&self.program) {
            true => program(self.program, arguments)?,
            false => example(self.program, arguments)?,
        };
        match &self.launcher {
            None => Ok(program),
            Some(("torchrun", flags)) => torchrun_with(flags, &program),
            Some((_, flags)) => launch_with(flags, &program),
        }
    }
}

/// A command as a reader types it, with environment variables before it.
pub fn command(line: &str) -> Result<Command> {
    let words: Vec<_> = line.split_whitespace().collect();
    let variables = words.iter().map_while(|word| word.split_once('='));
    let call = Call::parse(&words[variables.clone().count()..])?;
    let call = call.with_context(|| format!("`{line}` starts no program of the workspace"))?;
    let mut command = call.with(&call.arguments)?;
    command.envs(variables);
    Ok(command)
}
