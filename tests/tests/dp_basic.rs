//! What dp-basic prints, without times, what it draws, and what it rejects. Numbers have four
//! decimals, because processors differ in the last bits.

use crate::prelude::*;

fn printed(arguments: &str) -> Result<String> {
    tests::printed(dp_basic(arguments.split(' '))?)
}

fn expect_snapshot(name: &str, arguments: &str) -> Result<()> {
    insta::assert_snapshot!(name, printed(arguments)?);
    Ok(())
}

cases! {
    fn outputs_and_loss_move_to_the_output_device() =
        expect_snapshot("trace_output_device", "trace --devices 2xcpu --output-device 1 --no-times");
    fn a_model_in_two_parts_gives_the_numbers_of_one() =
        expect_snapshot("model_parallel_split", "model-parallel --split --no-times")
            .and_then(|()| expect_snapshot("model_parallel", "model-parallel --no-times"));
    fn what_cannot_work_is_refused_with_what_was_found_and_expected() =
        expect_refusals(|line| dp_basic(line.split(' ')), &[
            ("trace --devices cuda:7", 2, ["cuda:7", "must be"]),
            ("trace --output-device 4", 1, ["device number is 4", "below 4"]),
            ("trace --batch 0", 2, ["--batch", "0 is not in 1.."]),
            ("trace --batch=-1 --model mlp", 2, ["--batch", "-1 is not in 1.."]),
            ("trace --svg missing/chart.svg", 1, ["missing/chart.svg", "the directory missing"]),
            ("answers S0.33", 1, ["no question S0.33", "S0.1 to S0.32"]),
            ("sampler --len 0", 1, ["there are no numbers from 0 up to 0", "expected at least one"]),
            ("model-parallel --devices 3xcpu", 1, ["--devices is cpu:0,cpu:1,cpu:2", "two devices"]),
            ("model-parallel --batch 0", 2, ["--batch", "0 is not in 1.."]),
            ("speedup --devices 0xcpu", 2, ["devices is empty", "2xcpu"]),
            ("speedup --batch 0", 2, ["--batch", "0 is not in 1.."]),
            ("speedup --steps 0", 2, ["--steps", "0 is not in 1.."]),
        ]);
}

/// The book shows the other answers, each asked for alone, and `book_listings` compares them.
#[test]
fn every_question_is_answered() -> Result<()> {
    let text = printed("answers")?;
    let answer = printed("answers S2.23")?;
    let (_, last) = answer.split_once("\n\n").context("a title stands before it")?;
    expect_texts(&text, &[last, "dp-basic model-parallel", "dp-basic speedup"])?;
    let measured = text.lines().filter(|line| line.trim_start().starts_with("measured"));
    ensure!(measured.count() == 2, "{text}");
    insta::assert_snapshot!("answer_about_ddp", answer);
    Ok(())
}

#[test]
fn one_two_and_four_replicas_are_timed_and_drawn() -> Result<()> {
    let program = dp_basic("speedup --steps 1 --batch 16 --svg chart.svg".split(' '))?;
    let job = Job::new()?;
    let text = job.run(program)?.expect_success()?.stdout;
    let rows = text.lines().skip(3).map(|line| Vec::from_iter(line.split_whitespace()));
    let rows: Vec<_> = rows.collect();
    ensure!(rows.iter().map(|row| row[0]).eq(["1", "2", "4"]), "{text}");
    for cell in rows.iter().flat_map(|row| &row[1..]) {
        ensure!(cell.parse::<f64>()? > 0.0, "{text}");
    }
    // Each row's speed-up is relative to the first row.
    ensure!(rows[0][2] == "1.00", "{text}");
    ensure!(job.files()? == ["chart.svg"], "{:?}", job.files()?);
    expect_texts(&job.text("chart.svg")?, &["2 replicas", "loss on every device"])
}
