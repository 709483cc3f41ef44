//! Runs the commands that the book and the READMEs tell a reader to type, if they start a program of this workspace,
//! with trainings cut short. `book_listings` also runs those whose output the book shows, unchanged.

use crate::prelude::*;
use tests::commands::Call;
use tests::imagenet::job_with_images;

/// Placeholders for something of the reader's own.
const PLACEHOLDERS: [&str; 3] = ["./my-trainer", "my-package", "METHOD"];

/// Commands that are not run here, whatever variables they are given, and why.
const ELSEWHERE: [(&str, &str); 12] = [
    ("cargo xtask", "a chore: CI runs setup and test, and book if mdBook is installed"),
    ("cargo test", "this is a test"),
    ("cargo fmt", "CI starts with it"),
    ("cargo build", "all programs are built before the tests"),
    ("cargo install", "it writes into the user's folder"),
    ("mpirun", "it need not be installed; core's `env` tests its variables"),
    ("srun", "same as mpirun"),
    ("cargo clippy", "CI runs it"),
    ("cargo new", "`cargo xtask package` makes such a crate"),
    ("git clone", "it needs a network"),
    ("docker", "it needs a network, and a daemon that runs as root"),
    ("cd ", "the shell's own"),
];

/// How commands begin that start a program of this workspace.
const STARTS: [&str; 3] = ["cargo run ", "cargo launch -n ", "cargo xtask run "];

/// Flags that cut a program's work short. If a flag is given twice, the last one counts.
const SHORT: [(&str, &str, &str); 11] = [
    ("ddp-mnist", "", "--epochs 1"),
    // `book_listings` runs the comparisons; here only the flags are read.
    ("ddp-imagenet", "compare", "--help"),
    ("ddp-imagenet", "", "--dataset mnist --epochs 1 --steps 1 --batch-size 16"),
    ("dp-custom-criterion", "compare", "--help"),
    ("dp-custom-criterion", "", "--steps 3 --layers 1 --hidden 32"),
    ("async-update", "compare", "--help"),
    ("scaling", "train-to", "--dataset mnist --epochs 1"),
    ("async-update", "ring show", ""),
    ("dp-basic", "speedup", "--steps 1 --batch 64"),
    ("mingpt", "", "--epochs 1"),
    ("async-update", "", "--epochs 1"),
];

/// Replaces arguments that need what is missing here: a network, GPUs, a folder of images.
fn replaced(word: &str) -> Option<&str> {
    match word {
        "--download" => None,
        "resnet18" | "resnet50" => Some("pyramidnet8_a6"),
        "/data/imagenet" => Some("images"),
        "cuda:0,cuda:1,cuda:2,cuda:3" => Some("4xcpu"),
        // A value of --device and of --devices.
        "cuda" => Some("cpu"),
        other => Some(other),
    }
}

/// A call's command, with flags that cut its work short.
fn shortened(call: &Call<'_>) -> Result<Command> {
    let kept = call.arguments.iter().filter_map(|word| replaced(word));
    let begins = |path: &str| path.split_whitespace().zip(&call.arguments).all(|(a, b)| a == *b);
    let short = SHORT.iter().find(|(program, path, _)| *program == call.program && begins(path));
    let short = short.map_or("", |(_, _, flags)| flags);
    let short = match kept.clone().any(|word| word == "images") {
        true => short.replace("--dataset mnist", "--image-size 32"),
        false => short.to_owned(),
    };
    call.with(&kept.chain(short.split_whitespace()).collect::<Vec<_>>())
}

/// The commands in a text: the lines of its `sh` blocks, and inline code that starts a program.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut prose = String::new();
    for (index, block) in text.split("```").enumerate() {
        if index % 2 == 0 {
            prose.push_str(block);
        } else if let Some(block) = block.strip_prefix("sh\n") {
            let block = block.replace("\\\n", " ");
            let lines = block.lines().map(|line| line.split(" #").next().unwrap_or_default());
            commands.extend(lines.flat_map(|line| line.split(" && ")).map(str::to_owned));
        }
    }
    let spans = prose.split('`').skip(1).step_by(2);
    let starts = |span: &&str| STARTS.iter().any(|s| span.starts_with(s));
    // A line break in inline code counts as a space.
    commands.extend(spans.filter(starts).map(|span| span.replace('\n', " ")));
    commands.retain(|command| !command.trim().is_empty());
    commands
}

/// The outputs of a chapter that do not come after their command. A block of `console` begins with
/// it, and one of `text` goes on with the output of such a block above it.
fn without_command(chapter: &str, output: impl Fn(&str) -> Result<String>) -> Result<Vec<String>> {
    let mut without = Vec::new();
    let mut has_command = false;
    for block in chapter.split("```").skip(1).step_by(2) {
        let included = between(block, "{{#include output/", "}}").ok();
        let Some(name) = included.filter(|name| name.ends_with(".txt")) else { continue };
        let (info, body) = block.split_once('\n').context("a block has lines")?;
        let begins_with_it = body.starts_with("$ ") || output(name)?.starts_with("$ ");
        let is_right = match info {
            "text" => has_command && !begins_with_it,
            _ => info.starts_with("console") && begins_with_it,
        };
        has_command |= begins_with_it;
        if !is_right {
            without.push(name.to_owned());
        }
    }
    Ok(without)
}

#[test]
fn every_output_of_the_book_comes_after_its_command() -> Result<()> {
    for chapter in texts_below("book/src", "md")? {
        let without = without_command(&chapter, |name| source(format!("book/src/output/{name}")))?;
        let title = chapter.lines().next().unwrap_or_default();
        assert!(without.is_empty(), "{title}: {}", without.join(", "));
    }
    Ok(())
}

#[test]
fn an_output_without_its_command_is_found() -> Result<()> {
    let chapter = "```text\n{{#include output/a.txt}}\n```\n```console\n{{#include output/b.txt}}\n```\n\
                   ```console\n$ c\n{{#include output/c.txt}}\n```\n```text\n{{#include output/d.txt}}\n```\n";
    assert_eq!(without_command(chapter, |_| Ok("1\n".into()))?, ["a.txt", "b.txt"]);
    Ok(())
}

#[test]
fn every_command_that_a_reader_is_told_to_type_runs() -> Result<()> {
    let others = "README.md core/README.md core/sys/README.md launch/README.md CONTRIBUTING.md";
    let others = others.split(' ').map(source).collect::<Result<Vec<_>>>()?;
    let texts = [texts_below("book/src", "md")?, others].concat();
    let commands: BTreeSet<_> = texts.iter().flat_map(|text| commands(text)).collect();
    let mut run = BTreeSet::new();
    for command in &commands {
        let words: Vec<_> = command.split_whitespace().collect();
        if words.iter().any(|word| PLACEHOLDERS.contains(word)) {
            continue;
        }
        let Some(call) = Call::parse(&words)? else {
            let given = words.iter().take_while(|word| word.contains('=')).count();
            let bare = words[given..].join(" ");
            let is_elsewhere = ELSEWHERE.iter().any(|(what, _)| bare.starts_with(what));
            ensure!(
                is_elsewhere,
                "`{command}` starts no program of the workspace; say in ELSEWHERE why it is not run"
            );
            continue;
        };
        let program = shortened(&call)?;
        // Cut short, some commands are the same.
        if !run.insert(format!("{program:?}")) {
            continue;
        }
        let job = job_with_images(8)?;
        // Commands are meant for the root of the repository, and some of them read these there.
        fs::create_dir(job.path("tests"))?;
        for data in ["tests/data", "LICENSE-APACHE"] {
            symlink(workspace().join(data), job.path(data))?;
        }
        let ended = job.run(program)?;
        ensure!(ended.status.success(), "`{command}` fails: {ended}");
    }
    ensure!(run.len() > 15, "only {} commands were found", run.len());
    Ok(())
}

#[test]
fn a_command_is_taken_apart_as_a_shell_does() -> Result<()> {
    let text = "Type `cargo run -rq -p dp-basic -- trace`, not `cargo`.\n```sh\ncargo launch -n 2 \\\n  ddp-mnist -- --epochs 3   # three\n```\n";
    let commands = commands(text);
    assert_eq!(commands.len(), 2, "{commands:?}");
    let words: Vec<_> = commands[0].split_whitespace().collect();
    let launcher = Some(("launch", vec!["-n", "2"]));
    let call = |program, arguments| Some(Call { launcher: launcher.clone(), program, arguments });
    assert_eq!(Call::parse(&words)?, call("ddp-mnist", vec!["--epochs", "3"]));
    let words: Vec<_> = "cargo launch -n 2 -- cargo run -rq -p x --example y".split(' ').collect();
    assert_eq!(Call::parse(&words)?, call("y", vec![]));
    assert_eq!(Call::parse(&["ls"])?, None);
    Ok(())
}
