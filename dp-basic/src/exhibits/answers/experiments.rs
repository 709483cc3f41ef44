//! The names by which `questions.jinja` calls the experiments.

use super::cost::*;
use super::forward::*;
use super::gradients::*;
use super::limits::*;
use super::losses::*;
use super::three_placements::*;
use super::toy::equality;
use exhibit_kit::template::{self, found};
use minijinja::{Environment, Error};
use tch_parallel::LogicalDevice;

pub fn environment() -> Result<Environment<'static>, Error> {
    let mut text = template::environment()?;
    text.add_filter("equality", equality);

    text.add_function("chunk_sizes", |rows, devices| found(chunk_sizes(rows, devices)));
    text.add_function("tens", |numbers: Vec<i64>, devices| found(tens(&numbers, devices)));
    text.add_function("pairs", |rows, devices| found(pairs(rows, devices)));
    text.add_function("first_chunk", || found(first_chunk()));
    text.add_function("gathered_outside", || found(gathered_outside()));

    text.add_function("threads_model", |devices| found(threads_model(devices)));
    text.add_function("held", |devices| found(held(devices)));
    text.add_function("are_originals", || found(are_originals()));
    text.add_function("replicated", |passes| found(replicated(passes)));
    text.add_function("update", || found(update()));
    text.add_function("model_elsewhere", || found(model_elsewhere()));
    text.add_function("batch_elsewhere", || found(batch_elsewhere()));

    text.add_function("data_parallel", |rows, devices, to| found(data_parallel(rows, devices, to)));
    text.add_function("slices", |rows, devices| found(slices(rows, devices)));
    text.add_function("figure", |rows, devices| found(figure(rows, devices)));
    text.add_function("shards", |rows, devices, by: String| found(shards(rows, devices, &by)));
    text.add_function("shared_token", || found(shared_token()));

    text.add_function("returned", || found(returned()));
    text.add_function("mean_of_means", |rows, devices| found(mean_of_means(rows, devices)));
    text.add_function("sum_for_mean", |rows, devices| found(sum_for_mean(rows, devices)));
    text.add_function("two_targets", |rows, devices| found(two_targets(rows, devices)));
    text.add_function("column_against_row", column_against_row);

    text.add_function("places", |rows, devices| found(places(rows, devices)));
    text.add_function("other_lines", |place: String| other_lines(&place));

    text.add_function("networks", || found(networks()));
    text.add_function("tuple", |rows, devices| found(tuple(rows, devices)));
    text.add_function("running_mean", |rows, devices| found(running_mean(rows, devices)));
    text.add_function("normalised", |rows, devices| found(normalised(rows, devices)));
    text.add_function("scalar", |rows, devices| found(scalar(rows, devices)));
    text.add_function("hidden_state", |transposed| found(hidden_state(transposed)));
    text.add_function("shared", |devices| found(shared(devices)));
    text.add_function("calls", |rows, devices| found(calls(rows, devices)));

    text.add_function("parts", |rows, devices| found(parts(rows, devices)));
    text.add_function("question_model", || found(question_model()));
    text.add_function("through_the_first", |devices| found(through_the_first(devices)));
    text.add_function("loss_time", loss_time);
    text.add_function("transported", |rows, classes| found(transported(rows, classes)));
    text.add_function("one_number_a_row", |rows| found(one_number_a_row(rows)));
    text.add_function("peaks", |on| found(peaks([0, 1, 2].map(LogicalDevice::Cpu), on)));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::QUESTIONS;
    use super::*;

    #[test]
    fn the_text_calls_every_experiment() {
        let builtin = Environment::new();
        let is_builtin = |name: &str| builtin.globals().any(|(other, _)| other == name);
        for (name, _) in environment().unwrap().globals().filter(|(name, _)| !is_builtin(name)) {
            assert!(QUESTIONS.contains(&format!("{name}(")), "no question calls {name}");
        }
    }
}
