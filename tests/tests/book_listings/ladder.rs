//! Chapter "From one device to several hosts".

use super::*;

/// How far the losses of two runs may be apart, as for the other listings of this model.
const LOSS: f64 = 0.0015;

/// The steps of the ladder: an example, the one that it becomes, and the book's file with their difference.
const STEPS: [(&str, &str, Option<&str>); 4] = [
    ("single_device", "data_parallel", Some("ladder_data_parallel.diff")),
    ("data_parallel", "distributed_data_parallel", Some("ladder_ddp.diff")),
    ("single_device", "distributed_data_parallel", None),
    ("mnist_single", "mnist_ddp", None),
];

#[test]
fn from_step_to_step_these_lines_differ() -> Result<()> {
    let mut table = "lines  out   in\n".to_owned();
    for (from, to, listing) in STEPS {
        let [from_file, to_file] = [from, to].map(|name| format!("{name}.rs"));
        let diff = diff([&from_file, &to_file], [&code(from)?, &code(to)?])?;
        let count = |sign| diff.lines().skip(2).filter(|line| line.starts_with(sign)).count();
        let lines = code(from)?.lines().filter(|line| !line.is_empty()).count();
        let (out, new) = (count('-'), count('+'));
        table.push_str(&format!("{lines:5}{out:5}{new:5}  {from_file} → {to_file}\n"));
        if let Some(listing) = listing {
            expect_listing(listing, &diff, EXACT)?;
        }
    }
    expect_listing("ladder.txt", &table, EXACT)
}

#[test]
fn on_every_step_the_losses_are_those_of_one_device() -> Result<()> {
    // A run of its own, which the first of the others must repeat.
    let losses = Job::new()?.run(example("single_device", [])?)?.expect_success()?.stdout;
    assert_eq!(losses, printed(example("single_device", [])?)?);
    for devices in [&[][..], &["cpu"], &["2xcpu"], &["3xcpu"], &["4xcpu"]] {
        let program = example("data_parallel", devices.iter().copied())?;
        assert_eq!(losses, printed(program)?, "{devices:?}");
    }
    let program = example("distributed_data_parallel", [])?;
    assert_eq!(losses, printed(example("distributed_data_parallel", [])?)?, "no launcher");
    for ranks in [1, 2, 4] {
        assert_eq!(losses, printed(launch(ranks, &program)?)?, "{ranks} ranks");
    }
    let listings = ["ladder_single.txt", "ladder_data_parallel.txt", "ladder_ddp.txt"];
    listings.into_iter().try_for_each(|listing| expect_replay(listing, LOSS))
}

#[test]
fn two_nodes_can_be_tried_on_one_machine() -> Result<()> {
    let program = example("distributed_data_parallel", [])?;
    let mut shown = String::new();
    for (rank, output) in printed_by_two_nodes(&program)?.iter().enumerate() {
        shown.push_str(&format!(
            "$ target/release/launch --nnodes 2 --node-rank {rank} --master-addr 127.0.0.1 -n 2 \\\n      \
             target/release/examples/distributed_data_parallel\n{output}"
        ));
    }
    expect_listing("ladder_two_nodes.txt", &shown, LOSS)
}

/// The difference between two examples, comments included.
pub(super) fn diff_of_examples(from: &str, to: &str) -> Result<String> {
    let [from, to] = [from, to].map(|name| format!("{name}.rs"));
    let code = |file: &str| source(format!("core/examples/{file}"));
    diff([&from, &to], [&code(&from)?, &code(&to)?])
}

/// An example without its comments.
fn code(name: &str) -> Result<String> {
    let text = source(format!("core/examples/{name}.rs"))?;
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.map(|line| line.split(" // ").next().unwrap_or(line));
    Ok(code.map(|line| format!("{line}\n")).collect::<String>().trim_start().to_owned())
}
