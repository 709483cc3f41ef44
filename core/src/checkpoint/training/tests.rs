//! What is refused, and what comes back.

use super::*;
use crate::checkpoint::testing::{group, model, path_to};
use crate::optim::lr_scheduler::{LrScheduler, StepLr};
use crate::optim::{Adam, AdamOptions, ParamGroup, Sgd, SgdOptions};
use crate::{checkpoint, nn::named_parameters};
use std::{fmt::Debug, fs, path::PathBuf};
use tch::Kind;
use tempfile::TempDir;

/// A model, and its optimizer after a step, with a group for each parameter.
fn begun(features: i64) -> (VarStore, Sgd) {
    let vs = model(features);
    let options = SgdOptions { momentum: 0.9, ..Default::default() };
    let groups = named_parameters(&vs).into_iter().map(|it| ParamGroup::new(vec![it], options));
    let mut optimizer = Sgd::from_param_groups(groups).unwrap();
    let loss: Tensor = vs.trainable_variables().iter().map(|t| t.sum(Kind::Float)).sum();
    loss.backward();
    optimizer.step().unwrap();
    (vs, optimizer)
}

fn training<'a>(vs: &'a mut VarStore, optimizer: &'a mut dyn Optimizer) -> Training<'a> {
    Training { architecture: "linear", vs, optimizer, scheduler: None, scaler: None }
}

/// A training whose progress is 7.
fn saved() -> (TempDir, PathBuf, VarStore, Sgd) {
    let (directory, path) = path_to("training.safetensors");
    let (mut vs, mut optimizer) = begun(3);
    training(&mut vs, &mut optimizer).save(&path, &7, &group()).unwrap();
    (directory, path, vs, optimizer)
}

fn refused<P: DeserializeOwned + Debug>(path: &Path, mut training: Training<'_>) -> String {
    let before: Vec<_> = training.vs.trainable_variables().iter().map(Tensor::copy).collect();
    let error = training.load::<P>(path, &group()).unwrap_err().to_string();
    assert_eq!(training.vs.trainable_variables(), before);
    error
}

#[test]
fn a_training_comes_back_to_the_last_bit_in_either_format_and_its_weights_alone_as_well() {
    type Numbers = (f64, f64, f32, u64, i64);
    let numbers: Numbers = (0.1 + 0.2, 1.0 / 3.0, 0.1f32, u64::MAX, i64::MIN);
    for name in ["training.safetensors", "training.pt"] {
        let (_directory, path) = path_to(name);
        let (mut saved, mut before) = begun(3);
        before.param_groups_mut()[1].options.lr = 0.1 + 0.2;
        training(&mut saved, &mut before).save(&path, &numbers, &group()).unwrap();
        let (mut vs, mut after) = begun(3);
        let resumed = training(&mut vs, &mut after).load::<Numbers>(&path, &group()).unwrap();
        assert_eq!((resumed.progress, resumed.generators), (numbers, Generators::Restored));
        assert_eq!(after.state_dict().unwrap(), before.state_dict().unwrap());
        let mut alone = model(3);
        checkpoint::load(&path, &mut alone).unwrap();
        for loaded in [vs, alone] {
            assert_eq!(loaded.trainable_variables(), saved.trainable_variables());
        }
    }
}

#[test]
fn another_architecture_size_or_optimizer_is_refused_and_both_are_named() {
    let (_directory, path, ..) = saved();
    let (mut vs, mut optimizer) = begun(3);
    let other = Training { architecture: "resnet18", ..training(&mut vs, &mut optimizer) };
    let error = refused::<u64>(&path, other);
    let expected = "a training of linear; expected a training of resnet18, which is this model";
    assert!(error.ends_with(expected), "{error}");

    let (mut vs, mut optimizer) = begun(4);
    let error = refused::<u64>(&path, training(&mut vs, &mut optimizer));
    assert!(error.contains("fc.weight has the shape [2, 3]; expected [2, 4]"), "{error}");

    let mut vs = model(3);
    let mut optimizer = Adam::new(&vs, AdamOptions::adamw()).unwrap();
    let error = refused::<u64>(&path, training(&mut vs, &mut optimizer));
    let expected =
        "the optimizer state is that of SGD; expected that of AdamW, which is this optimizer";
    assert!(error.starts_with(&path.display().to_string()), "{error}");
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn a_schedule_or_a_scaler_on_one_side_only_is_refused() {
    let (_directory, path, ..) = saved();
    let (mut vs, mut optimizer) = begun(3);
    let mut scheduler = LrScheduler::new(&mut optimizer, StepLr::new(30)).unwrap();
    let parts = training(&mut vs, &mut optimizer);
    let error = refused::<u64>(&path, Training { scheduler: Some(&mut scheduler), ..parts });
    let expected = "a training without a learning-rate schedule; expected one with a learning-rate schedule, as this \
                    one is";
    assert!(error.ends_with(expected), "{error}");

    let mut scaler = GradScaler::new(Default::default()).unwrap();
    let parts = training(&mut vs, &mut optimizer);
    let error = refused::<u64>(&path, Training { scaler: Some(&mut scaler), ..parts });
    assert!(error.contains("a training without a gradient scaler"), "{error}");
}

#[test]
fn weights_alone_and_progress_of_another_program_are_refused() {
    let (_directory, path, mut vs, mut optimizer) = saved();
    let error = refused::<String>(&path, training(&mut vs, &mut optimizer));
    assert!(error.contains("progress of another type (invalid type"), "{error}");

    checkpoint::save(&path, &vs, &group()).unwrap();
    let error = refused::<u64>(&path, training(&mut vs, &mut optimizer));
    assert!(error.contains("weights only; expected a whole training"), "{error}");
}

#[test]
fn progress_that_could_not_be_read_again_is_refused_at_once() {
    let (_directory, path, mut vs, mut optimizer) = saved();
    let before = fs::read(&path).unwrap();
    let error = training(&mut vs, &mut optimizer).save(&path, &f64::INFINITY, &group());
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("progress is not readable after writing"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}
