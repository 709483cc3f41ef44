//! The `--help` of every program and every subcommand shows examples, and they can be typed.

use crate::prelude::*;
use std::iter::from_fn;

fn subcommands(help: &str) -> Vec<&str> {
    let list = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let list = list.split("\n\n").next().unwrap_or_default();
    // The further lines of a description are indented further.
    let names = list.lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").collect()
}

/// The commands after `Examples:`, without their descriptions.
fn examples(help: &str) -> Vec<String> {
    let text = help.split_once("\nExamples:").map_or("", |(_, rest)| rest);
    let text = text.split("\n\n").next().unwrap_or_default();
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines().filter_map(|line| line.strip_prefix("  ")) {
        let (command, _said) = line.trim_start().split_once("  ").unwrap_or((line.trim(), ""));
        let part = command.trim_end_matches('\\').trim();
        match commands.last_mut().filter(|_| goes_on) {
            Some(begun) => *begun = format!("{begun} {part}"),
            None => commands.push(part.to_owned()),
        }
        goes_on = line.ends_with('\\');
    }
    commands
}

/// Collects the help of a program and of all its subcommands, including nested ones.
fn all_helps(name: &str, path: &[&str], helps: &mut Vec<(String, String)>) -> Result<()> {
    let text = printed(program(name, [path, &["--help"]].concat())?)?;
    for subcommand in subcommands(&text) {
        all_helps(name, &[path, &[subcommand]].concat(), helps)?;
    }
    helps.push(([&[name], path].concat().join(" "), text));
    Ok(())
}

/// The program of the workspace that an example starts, and its arguments. Under the launcher, this
/// is the launched program if it is one of the workspace, and otherwise the launcher itself.
fn parse(example: &str) -> (&str, Vec<&str>) {
    let words: Vec<_> = example.split_whitespace().collect();
    match words.iter().position(|word| PROGRAMS.contains(word)) {
        Some(at) => {
            let arguments = &words[at + 1..];
            // `cargo xtask run PROGRAM -- …`
            (words[at], arguments.strip_prefix(&["--"]).unwrap_or(arguments).to_vec())
        }
        None => {
            let is_flag = |word: &&str| !["./my-trainer", "python3"].contains(word);
            ("launch", words.into_iter().skip(1).take_while(is_flag).collect())
        }
    }
}

#[test]
fn every_help_shows_examples_that_can_be_typed() -> Result<()> {
    let mut helps = Vec::new();
    PROGRAMS.iter().chain(&["launch"]).try_for_each(|name| all_helps(name, &[], &mut helps))?;
    // The two stories have no flags; the help of `trace` shows both.
    helps.retain(|(name, _)| !name.starts_with("async-update trace case"));
    ensure!(helps.len() > 20, "only {} helps were found", helps.len());
    let mut typed = BTreeSet::new();
    for (name, help) in &helps {
        let examples = examples(help);
        ensure!(!examples.is_empty(), "{name} --help shows no example");
        for example in &examples {
            // A missing GPU would be rejected too.
            let example = example.replace("cuda:0,cuda:1,cuda:2,cuda:3", "4xcpu");
            let example = example.replace("--devices cuda", "--devices cpu");
            let (started, arguments) = parse(&example);
            let is_of_it = name.split(' ').all(|word| example.contains(word));
            ensure!(name.starts_with(started) && is_of_it, "{name}: `{example}` is for another");
            if !typed.insert(example.clone()) {
                continue;
            }
            // Unknown arguments are rejected before --help takes effect.
            let arguments = [&arguments[..], &["--help"]].concat();
            let ended = Job::new()?.run(program(started, arguments)?)?;
            ensure!(ended.status.success(), "{name}: `{example}` is refused: {}", ended.stderr);
        }
    }
    Ok(())
}

#[test]
fn an_example_that_cannot_be_typed_is_found() -> Result<()> {
    let help = "Usage\n\nExamples:\n  dp-basic trace --modle toy   a mistake\n  dp-basic \\\n      trace\n";
    assert_eq!(examples(help), ["dp-basic trace --modle toy", "dp-basic trace"]);
    Job::new()?.run(dp_basic(["trace", "--modle", "toy", "--help"])?)?.expect_code(2).map(drop)
}

/// A command line of an original, with this workspace's launcher and program in place of Python's.
fn translated(line: &str) -> Result<Command> {
    let mut words = line.split_whitespace().peekable();
    let environment: Vec<_> = from_fn(|| words.next_if(|word| word.contains('='))).collect();
    words.next_if_eq(&"python");
    let is_launched = words.next_if_eq(&"-m").and_then(|_| words.next()).is_some();
    let flags: Vec<_> = from_fn(|| words.next_if(|word| word.starts_with('-'))).collect();
    let (name, subcommand) = match words.next().unwrap_or_default() {
        "minimal_distributed_data_example.py" | "practice.py" => ("dp-basic", Some("sampler")),
        "ddp_tutorial_multi_gpu.py" => ("ddp-mnist", None),
        "bert" => ("dp-custom-criterion", None),
        "bert-vocab" => ("dp-custom-criterion", Some("vocab")),
        "main.py" | "main_amp.py" | "pyramidnet.py" => ("ddp-imagenet", None),
        "train.py" => ("ddp-imagenet", Some("train-cifar")),
        "hogwild.py" => ("async-update", Some("hogwild")),
        script => bail!("{script} of `{line}` has no counterpart"),
    };
    // Whatever is wrong is rejected before --help takes effect.
    let arguments: Vec<_> = subcommand.into_iter().chain(words).chain(["--help"]).collect();
    let program = program(name, arguments)?;
    let mut command = if is_launched { launch_with(&flags, &program)? } else { program };
    command.envs(environment.iter().filter_map(|variable| variable.split_once('=')));
    Ok(command)
}

#[test]
fn every_command_line_of_the_tutorials_is_accepted_or_answered_in_a_sentence() -> Result<()> {
    // With words that others have left out filled in. Below each that is not accepted is the answer to its first
    // missing flag.
    let typed = source("tests/data/originals_typed.txt")?;
    let lines: Vec<_> = typed.split("\n$ ").skip(1).collect();
    ensure!(lines.len() == 21, "{} command lines", lines.len());
    for line in lines {
        let (line, answer) = line.split_once('\n').unwrap_or((line, ""));
        let ended = Job::new()?.run(translated(line)?)?;
        match answer.lines().next().filter(|answer| !answer.is_empty()) {
            None => ensure!(ended.status.success(), "`{line}` is refused: {ended}"),
            Some(answer) => {
                let begins = ended.stderr.starts_with(&format!("error: {answer}"));
                ensure!(begins, "`{line}` is not answered with `{answer}`: {ended}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_originals_command_lines_are_understood() -> Result<()> {
    for (name, line, said) in [
        // Refused for a value of its own, so everything before was understood.
        (
            "dp-custom-criterion",
            "-hs 64 --num_workers=0 -d 0.2 --local_rank 0 --attn_heads 3",
            "--attn-heads is 3, but must be a divisor of --hidden, which is 64",
        ),
        ("dp-custom-criterion", "--cuda_devices 0 1", "there is no --cuda_devices: type --devices"),
        ("ddp-mnist", "--local_rank 1", "--local_rank is \"1\", but must be 0, which is"),
        ("ddp-imagenet", "--learning-rate=-1", "a finite number not below 0"),
        ("ddp-imagenet", "--e 3", "--e could be --elastic, --epochs, --evaluate, --expname; type"),
        (
            "dp-custom-criterion",
            "vocab -c no.txt -o v.txt -s 60 --vocab_size 60 -e UTF-8 -m 2",
            "cannot read no.txt",
        ),
        ("async-update", "hogwild --num-processes 2 --lr 0", "0 is not a finite number above 0"),
        ("async-update", "hogwild --save_model", "there is no --save_model: leave it out"),
    ] {
        let ended = Job::new()?.run(program(name, line.split(' '))?)?;
        ensure!(ended.stderr.contains(said), "{name} {line}: {ended}");
    }
    let arguments = ["--use_env", "--nproc_per_node=1", "true"];
    Job::new()?.run(launcher(arguments)?)?.expect_success().map(drop)
}
