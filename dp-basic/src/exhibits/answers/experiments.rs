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

    macro_rules! add {
        ($($name:ident($($argument:ident),*))+) => {$(
            text.add_function(stringify!($name), |$($argument),*| found($name($($argument),*)));
        )+};
    }
    add! {
        chunk_sizes(rows, devices) pairs(rows, devices) first_chunk() gathered_outside()

        threads_model(devices) held(devices) are_originals() replicated(passes)
        update() model_elsewhere() batch_elsewhere()

        data_parallel(rows, devices, to) slices(rows, devices) figure(rows, devices) shared_token()

        returned() mean_of_means(rows, devices) sum_for_mean(rows, devices)
        two_targets(rows, devices) places(rows, devices)

        networks() tuple(rows, devices) running_mean(rows, devices) normalised(rows, devices)
        scalar(rows, devices) hidden_state(transposed) shared(devices) calls(rows, devices)

        parts(rows, devices) question_model() through_the_first(devices)
        transported(rows, classes) one_number_a_row(rows)
    }
    text.add_function("tens", |numbers: Vec<i64>, devices| found(tens(&numbers, devices)));
    text.add_function("shards", |rows, devices, by: String| found(shards(rows, devices, &by)));
    text.add_function("column_against_row", column_against_row);
    text.add_function("other_lines", |place: String| other_lines(&place));
    text.add_function("loss_time", loss_time);
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
