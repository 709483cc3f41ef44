//! What a `Run` writes of its steps.

use anyhow::Result;
use report::{Meter, Progress, ReportArgs, Run, parse_flags, read_events};
use serde_json::Value;
use std::path::Path;
use tch::{Device, Kind, Tensor, nn::VarStore};
use tch_parallel::data::{DataLoader, SequentialSampler, TensorDataset};
use tch_parallel::{Devices, distributed::ProcessGroup};

/// The arguments of a run that writes its metrics to this directory.
fn args(directory: &Path) -> Result<ReportArgs> {
    Ok(parse_flags(["--metrics".as_ref(), directory.as_os_str()])?)
}

/// Two batches of two numbers.
fn loader() -> Result<DataLoader<TensorDataset<Tensor>>> {
    let numbers = Tensor::arange(4, (Kind::Float, Device::Cpu));
    Ok(DataLoader::new(TensorDataset::new(numbers)?, SequentialSampler, 2)?)
}

fn events(directory: &Path, name: &str) -> Result<Vec<Value>> {
    Ok(read_events(directory.join("rank0.jsonl"), name)?)
}

#[test]
fn a_step_has_fields_of_its_own_and_the_seconds_to_its_mark() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let group = ProcessGroup::from_env()?;
    let mut run = args(directory.path())?.start(&group, 0.1, Progress::default())?;
    for (number, batch) in run.epoch(&loader()?)?.enumerate() {
        let batch = batch?;
        if number == 1 {
            run.mark("forward_seconds")?;
            run.field("lr", 0.5);
        }
        run.step([&batch.mean(Kind::Float)], batch.size()[0])?;
    }
    let [mean] = run.end_pass()?.meters().numbers;
    assert_eq!((mean.avg(), run.progress().epoch), (1.5, 1));
    let steps = events(directory.path(), "step")?;
    assert_eq!((&steps[0]["loss"], &steps[1]["loss"]), (&0.5.into(), &2.5.into()));
    assert_eq!((&steps[0]["lr"], &steps[1]["lr"]), (&Value::Null, &0.5.into()));
    assert!(steps[0]["forward_seconds"].is_null());
    assert!(steps[1]["forward_seconds"].as_f64().unwrap() >= 0.0);
    Ok(())
}

#[test]
fn a_loss_that_is_not_finite_ends_a_run_with_its_advice_unless_it_is_of_no_interest() -> Result<()>
{
    let directory = tempfile::tempdir()?;
    let group = ProcessGroup::from_env()?;
    let step = |mut run: Run<'_, 1>| run.step([&Tensor::from(f32::NAN)], 1);
    let start = || args(directory.path())?.start(&group, 0.1, Progress::default());
    for (run, advice) in [
        (start()?, "try a smaller --lr than 0.1"),
        (start()?.with_advice(Some("a larger batch helps")), "a larger batch helps"),
    ] {
        let error = step(run).unwrap_err().to_string();
        assert_eq!(error, format!("the loss is NaN at epoch 0, step 0; {advice}"));
    }
    step(start()?.with_advice(None))?;
    Ok(())
}

#[test]
fn a_run_with_a_meter_reports_its_devices() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let group = ProcessGroup::from_env()?;
    let devices: Devices = "cpu:1".parse()?;
    let _on = devices.first().guard()?;
    let run = args(directory.path())?.start(&group, 0.1, Progress::default())?;
    let mut run = run.with_device_meter(Meter::new(&devices));
    for batch in run.epoch(&loader()?)? {
        let large = Tensor::zeros([1 << 20], (Kind::Uint8, Device::Cpu));
        run.step([&(large.sum(Kind::Float) + batch?.sum(Kind::Float))], 2)?;
    }
    run.report_devices(&VarStore::new(Device::Cpu), 7, None)?;
    let reported = events(directory.path(), "device")?;
    assert_eq!((&reported[0]["device"], reported.len()), (&"cpu:1".into(), 1));
    assert_eq!(reported[0]["optimizer_state"], 7);
    assert!(reported[0]["peak"].as_u64().unwrap() >= 1 << 20, "{reported:?}");
    Ok(())
}
