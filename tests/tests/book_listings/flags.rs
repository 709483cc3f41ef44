//! Chapter "The originals' flags".

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tests::Job;
use tests::programs::{ddp_imagenet, ddp_mnist, dp_custom_criterion};

use super::listing::{EXACT, expect_listing};
use super::printed;

/// An original's flags, each in its spellings and with its default.
type Original = &'static [(&'static str, &'static str)];

const BOIKO: Original = &[("--local_rank", "")];

const BERT: Original = &[
    ("-c, --train_dataset", "required"),
    ("-t, --test_dataset", ""),
    ("-v, --vocab_path", "required"),
    ("-o, --output_path", "required"),
    ("-hs, --hidden", "256"),
    ("-l, --layers", "8"),
    ("-a, --attn_heads", "8"),
    ("-s, --seq_len", "20"),
    ("-d, --dropout", "0.1"),
    ("-b, --batch_size", "64"),
    ("-e, --epochs", "10"),
    ("-w, --num_workers", "5"),
    ("--with_cuda", "True"),
    ("--log_freq", "10"),
    ("--corpus_lines", ""),
    ("--cuda_devices", ""),
    ("--on_memory", "False"),
    ("--lr", "0.001"),
    ("--adam_weight_decay", "0.01"),
    ("--adam_beta1", "0.9"),
    ("--adam_beta2", "0.999"),
];

const MAIN_PY: Original = &[
    ("-a, --arch", "resnet18"),
    ("-j, --workers", "4"),
    ("--epochs", "90"),
    ("--start-epoch", "0"),
    ("-b, --batch-size", "256"),
    ("--lr, --learning-rate", "0.1"),
    ("--momentum", "0.9"),
    ("--wd, --weight-decay", "0.0001"),
    ("-p, --print-freq", "10"),
    ("--resume", ""),
    ("-e, --evaluate", ""),
    ("--pretrained", ""),
    ("--world-size", "-1"),
    ("--rank", "-1"),
    ("--dist-url", "tcp://224.66.41.62:23456"),
    ("--dist-backend", "nccl"),
    ("--seed", ""),
    ("--gpu", ""),
    ("--no-accel", ""),
    ("--multiprocessing-distributed", ""),
    ("--dummy", ""),
];

/// Those that main.py lacks.
const MAIN_AMP_PY: Original = &[
    ("--prof", "-1"),
    ("--deterministic", ""),
    ("--local_rank", "0"),
    ("--sync_bn", ""),
    ("--opt-level", ""),
    ("--keep-batchnorm-fp32", ""),
    ("--loss-scale", ""),
    ("--channels-last", "False"),
];

/// All but `--resume`, which has no effect there either.
const MULTIGPU: Original = &[
    ("--lr", "0.1"),
    ("--batch_size", "768"),
    ("--num_workers", "4"),
    ("--num_worker", "4"),
    ("--gpu_devices", ""),
    ("--gpu", ""),
    ("--dist-url", "tcp://127.0.0.1:3456"),
    ("--dist-backend", "nccl"),
    ("--rank", "0"),
    ("--world_size", "1"),
    ("--distributed", ""),
];

const PYRAMIDNET: Original = &[
    ("--epochs", "300"),
    ("--start-epoch", "0"),
    ("--b, --batchsize", "64"),
    ("--lr, --learning-rate", "0.1"),
    ("--momentum", "0.9"),
    ("--wd, --weight-decay", "0.0001"),
    ("-p, --print-freq", "10"),
    ("--depth", "32"),
    ("--alpha", "48"),
    ("--no-augment", ""),
    ("--no-bottleneck", ""),
    ("--resume", ""),
    ("--expname", "PyramidNet"),
    ("--no-verbose", ""),
    ("--tensorboard", ""),
    ("--dataset", "cifar100"),
];

#[test]
fn every_flag_of_the_originals_works_or_is_answered() -> Result<()> {
    let imagenet = Flags::of(ddp_imagenet(["--help"])?, None)?;
    let cifar = Flags::of(ddp_imagenet(["train-cifar", "--help"])?, Some(&imagenet))?;
    for (name, original, here) in [
        ("flags_boiko.txt", BOIKO, &Flags::of(ddp_mnist(["--help"])?, None)?),
        ("flags_bert.txt", BERT, &Flags::of(dp_custom_criterion(["--help"])?, None)?),
        ("flags_main_py.txt", MAIN_PY, &imagenet),
        ("flags_main_amp_py.txt", MAIN_AMP_PY, &imagenet),
        ("flags_multigpu.txt", MULTIGPU, &cifar),
        ("flags_pyramidnet.txt", PYRAMIDNET, &imagenet),
    ] {
        let mut table =
            "| original | default | here | default here |\n|---|---|---|---|\n".to_owned();
        for (spellings, default) in original {
            let (here, default_here) =
                here.find(spellings).with_context(|| format!("{name}: {spellings} is unknown"))?;
            table.push_str(&format!("| `{spellings}` | {default} | {here} | {default_here} |\n"));
        }
        expect_listing(name, &table, EXACT)?;
    }
    Ok(())
}

#[test]
fn a_flag_that_is_missing_is_answered() -> Result<()> {
    let mut text = String::new();
    for (line, program) in [
        ("ddp-imagenet --dist-url tcp://10.0.0.1:23456 --world-size 4", ddp_imagenet as Program),
        ("dp-custom-criterion -hs 256 --with_cuda True --cuda_devices 0 1", dp_custom_criterion),
    ] {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        let ended = Job::new()?.run(program(words)?)?.expect_code(2)?;
        let answer = ended.stderr.lines().next().unwrap_or_default();
        text.push_str(&format!("$ {line}\n{answer}\n"));
    }
    expect_listing("flags_answered.txt", &text, EXACT)
}

/// A program, by its arguments.
type Program = fn(Vec<&'static str>) -> Result<Command>;

/// What the help of a program tells.
struct Flags {
    /// Every flag in every spelling, with its default.
    options: BTreeMap<String, String>,
    /// The original's flags, and what stands here for them.
    originals: BTreeMap<String, String>,
}

impl Flags {
    /// Reads them. `program`: that of a subcommand.
    fn of(help: Command, program: Option<&Flags>) -> Result<Self> {
        let help = printed(help)?;
        let (ours, originals) = help.split_once("\nFlags of the original").unwrap_or((&help, ""));
        let originals = originals.lines().filter_map(|line| line.trim().split_once("  "));
        let mut originals: BTreeMap<_, _> =
            originals.map(|(name, here)| (name.to_owned(), here.trim().to_owned())).collect();
        originals.extend(program.iter().flat_map(|program| program.originals.clone()));

        let ours = ours.split("\nExamples:").next().unwrap_or_default();
        let mut options = BTreeMap::new();
        let mut names = Vec::new();
        for line in ours.lines() {
            let words = line.trim().split("  ").next().unwrap_or_default();
            let words = words.split([' ', ',']).filter(|word| word.len() > 1);
            let spelled: Vec<_> =
                words.filter(|word| word.starts_with('-')).map(str::to_owned).collect();
            if line.trim().starts_with('-') && !spelled.is_empty() {
                options.extend(spelled.iter().map(|name| (name.clone(), String::new())));
                names = spelled;
            }
            for (_, text) in
                line.match_indices("[default: ").map(|(at, mark)| line.split_at(at + mark.len()))
            {
                let default = text.split(']').next().unwrap_or_default();
                options.extend(names.iter().map(|name| (name.clone(), default.to_owned())));
            }
            if let Some((_, alias)) = line.split_once("[alias: ") {
                let alias = alias.split(']').next().unwrap_or_default();
                let default = names.first().and_then(|name| options.get(name)).cloned();
                options.insert(alias.to_owned(), default.unwrap_or_default());
            }
        }
        ensure!(options.len() > 5, "only {options:?} were found in\n{help}");
        Ok(Flags { options, originals })
    }

    /// What to type for a flag, and the default. `None` if one of its spellings would be unknown.
    fn find(&self, spellings: &str) -> Option<(String, String)> {
        let mut found = None;
        for spelling in spellings.split(", ") {
            let dashed = spelling.replace('_', "-");
            let here = self.originals.get(&dashed).map_or(dashed.as_str(), String::as_str);
            found = Some(match here.split_once([' ', '=']) {
                None => (format!("`{here}`"), self.options.get(here)?.clone()),
                Some((name, _)) if name.starts_with('-') => {
                    self.options.get(name)?;
                    (format!("`{here}`"), String::new())
                }
                Some(_) => {
                    // Or another program's, or a subcommand's, which the answer names.
                    let is_named = ["launch ", "train-cifar"].iter().any(|n| here.contains(n));
                    let is_known = |flag| is_named || self.options.contains_key(flag);
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
