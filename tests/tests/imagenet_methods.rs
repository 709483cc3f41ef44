//! The four trainings that ddp-imagenet compares: what they print, how their losses fall, how many
//! bytes they need, and what they reject. How little their code differs is in `book_listings`.

use crate::prelude::*;

/// The smallest network with the shape of the article's.
const SMALL: &str = "train-cifar --arch=pyramidnet8_a6 --workers=0 --metrics=metrics";

const METHODS: [&str; 4] = ["single", "data-parallel", "ddp", "apex"];

fn train_cifar(flags: &str) -> Result<Command> {
    ddp_imagenet(SMALL.split(' ').chain(flags.split_whitespace()))
}

/// A training with a method on two devices, or on one if the method is for one, and its number of ranks.
fn on_devices(method: &str, flags: &str) -> Result<(Command, usize)> {
    let flags = format!("--method={method} {flags}");
    Ok(match method {
        "single" => (train_cifar(&flags)?, 1),
        "data-parallel" => (train_cifar(&format!("{flags} --devices=2xcpu"))?, 1),
        _ => (launch(2, &train_cifar(&flags)?)?, 2),
    })
}

/// The losses of each step, averaged over the ranks, whose shares are equal.
fn loss_curve(method: &str, flags: &str) -> Result<Arc<Vec<f32>>> {
    static CURVES: Shared<Vec<f32>> = Shared::new();
    CURVES.get((method, flags), || {
        let (program, ranks) = on_devices(method, flags)?;
        let job = Job::done(program)?;
        let curves =
            (0..ranks).map(|rank| losses(job.directory(), rank)).collect::<Result<Vec<_>>>()?;
        let steps = curves[0].len();
        ensure!(steps > 0 && curves.iter().all(|curve| curve.len() == steps), "{curves:?}");
        let mean = |step| curves.iter().map(|curve| curve[step]).sum::<f32>() / ranks as f32;
        Ok((0..steps).map(mean).collect())
    })
}

/// The largest difference of two curves, relative to the second.
fn gap(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f32::max)
}

/// S4.51: in the companion repository every rank prints the loss of its own share.
#[test]
fn rank_0_prints_the_loss_and_the_accuracy_of_all_ranks() -> Result<()> {
    let job = Job::new()?;
    let program = on_devices("ddp", "--batch-size=16 --steps=1")?.0;
    let printed = job.run(program)?.expect_success()?.stdout;
    let lines: Vec<_> = printed.lines().filter(|line| line.starts_with("Epoch: ")).collect();
    let [line] = lines[..] else { bail!("{printed}") };
    let [first, second] = [losses(job.directory(), 0)?[0], losses(job.directory(), 1)?[0]];
    // Otherwise three decimals could not tell the mean from either.
    assert!((first - second).abs() > 0.002, "the shares differ too little: {first} {second}");
    let mean = format!("Epoch: [0/500]| loss: {:.3} | acc: ", (first + second) / 2.0);
    assert!(line.starts_with(&mean), "{line}");
    expect_texts(&printed, &["Use cpu:0 for training", "Use cpu:1 for training"])?;
    assert_eq!(printed.matches("The number of parameters of model is").count(), 1, "{printed}");
    Ok(())
}

#[test]
fn every_epoch_begins_with_its_own_images_and_its_own_means() -> Result<()> {
    let printed = printed(on_devices("ddp", "--batch-size=16 --steps=1 --epochs=2 --lr=0")?.0)?;
    let lines = printed.lines().filter_map(|line| line.strip_prefix("Epoch: [0/500]| loss: "));
    let losses: Vec<_> = lines.filter_map(|line| line.split(' ').next()).collect();
    // With a learning rate of 0 only the images can make a difference.
    assert_eq!(losses.len(), 2, "{printed}");
    assert_ne!(losses[0], losses[1], "{printed}");
    Ok(())
}

/// S4.38: with Apex, 60 images and 2 workers for each of 4 GPUs, which is 240 and 8 in total.
#[test]
fn apex_counts_a_batch_for_each_process_and_ddp_for_all() -> Result<()> {
    for flags in [
        "--method=apex --batch-size=60 --workers=2 --steps=1",
        "--method=ddp --batch-size=240 --workers=8 --steps=1",
    ] {
        let printed = printed(launch(4, &train_cifar(flags)?)?)?;
        // 8,000 digits in batches of 240.
        assert!(printed.contains("Epoch: [0/34]| loss: "), "{printed}");
    }
    Ok(())
}

#[test]
fn with_ddp_hosts_with_different_numbers_of_ranks_take_equally_many_steps() -> Result<()> {
    let job = Job::new()?;
    digits::write(job.directory(), 800)?;
    let program = train_cifar("--method=ddp --batch-size=200 --epochs=1 .")?;
    // Rank 0 has one other rank on its host, rank 1 none.
    let script = r#"LOCAL_WORLD_SIZE=$((2 - RANK)) exec "$@""#;
    expect_all_succeed(start_by_hand(&job, (0..2).map(|_| Ok(in_shell(script, &program))))?)?;
    assert_eq!([0, 1].map(|rank| losses(job.directory(), rank).unwrap().len()), [4, 4]);
    Ok(())
}

const STEPS: &str = "--batch-size=32 --steps=8 --lr=0.01";

#[test]
fn on_one_device_all_methods_are_the_same_to_the_last_bit() -> Result<()> {
    let single = loss_curve("single", STEPS)?;
    assert_eq!(single.len(), 8);
    for method in &METHODS[1..] {
        let job = Job::done(train_cifar(&format!("{STEPS} --method={method}"))?)?;
        assert_eq!(losses(job.directory(), 0)?, *single, "{method}");
    }
    Ok(())
}

/// Apex divides the sum of the gradients, PyTorch its addends. Division by 2 is exact, so the
/// results are the same to the last bit.
#[test]
fn apex_on_two_ranks_is_ddp_to_the_last_bit() -> Result<()> {
    let apex = loss_curve("apex", "--batch-size=16 --steps=8 --lr=0.01")?;
    assert_eq!(apex, loss_curve("ddp", STEPS)?);
    Ok(())
}

/// Two ranks with half a batch each see the images that one process sees, in the same order and
/// with the same augmentation. But each rank normalises its own half, and only SyncBatchNorm
/// normalises the whole batch, which makes two ranks equal to one device again. (DataParallel's
/// replicas get other halves than ranks do; their results are tested next to their code.)
#[test]
fn two_ranks_are_one_device_if_batch_norm_sees_the_whole_batch() -> Result<()> {
    let single = loss_curve("single", STEPS)?;
    let synchronised = loss_curve("ddp", &format!("{STEPS} --sync-bn"))?;
    // f32 sums in another order, whose differences grow over eight steps.
    assert!(gap(&synchronised, &single) < 1e-5, "{synchronised:?} {single:?}");
    // The statistics of 16 images are close to those of all 32, and eight steps are few.
    let halves = loss_curve("ddp", STEPS)?;
    assert!(gap(&halves, &single) > 1e-4, "{halves:?} {single:?}");
    Ok(())
}

#[test]
fn replicas_that_are_normalised_by_halves_still_learn() -> Result<()> {
    for method in METHODS {
        let batch_size = if method == "apex" { 32 } else { 64 };
        let curve = loss_curve(method, &format!("--batch-size={batch_size} --steps=40 --lr=0.2"))?;
        let (begin, end) = (curve[0], curve[35..].iter().sum::<f32>() / 5.0);
        assert!(end < begin - 0.5, "{method}: {begin} to {end}");
    }
    Ok(())
}

/// What a training reports about its devices, without the share of time in which they are idle.
fn devices(method: &str, optimizer: &str) -> Result<Arc<Vec<Value>>> {
    static DEVICES: Shared<Vec<Value>> = Shared::new();
    DEVICES.get((method, optimizer), || devices_with(method, optimizer, ""))
}

fn devices_with(method: &str, optimizer: &str, flags: &str) -> Result<Vec<Value>> {
    // Large enough that a rank reaches its peak long after gloo's threads have freed the running
    // statistics that they sent before.
    let batch_size = if method == "apex" { 64 } else { 128 };
    let flags = format!("--batch-size={batch_size} --steps=3 --optimizer={optimizer} {flags}");
    let (program, ranks) = on_devices(method, &flags)?;
    let job = Job::done(program)?;
    let without_idle_share = |device: &Value| {
        let mut device = device.clone();
        device["idle_share"] = Value::Null;
        Some(device)
    };
    let of_rank = |rank| events(job.directory(), rank, "device", without_idle_share);
    Ok((0..ranks).map(of_rank).collect::<Result<Vec<_>>>()?.concat())
}

/// Whatever loads the batches: what waits there is the host's. Before it, a rank on cpu:0 had all that its
/// workers held, and others not even their own batch.
#[test]
fn all_ranks_need_the_same_memory_whether_workers_load_the_batches_or_not() -> Result<()> {
    let without = devices("apex", "sgd")?;
    let with = devices_with("apex", "sgd", "--workers=2")?;
    let bytes = |device: &Value, name: &str| device[name].as_i64();
    for name in ["peak", "parameters", "gradients", "optimizer_state"] {
        let all: Vec<_> = without.iter().chain(&with).map(|device| bytes(device, name)).collect();
        assert!(all.len() == 4 && all[0].is_some(), "{with:?}");
        assert!(all.iter().all(|bytes| *bytes == all[0]), "{name}: {all:?}");
    }
    // Without workers, a rank itself keeps the memory of its last batch for the next one.
    assert_eq!(bytes(&with[0], "live"), bytes(&with[1], "live"));
    assert!(bytes(&with[0], "live") < bytes(&without[0], "live"));
    Ok(())
}

/// The peaks depend on the processor, since convolutions choose a memory layout to suit it.
#[test]
fn the_counts_repeat_to_the_byte_and_the_optimizer_makes_the_difference() -> Result<()> {
    let mut table = format!(
        "{:14} {:5} {:6} {:>7} {:>10} {:>9} {:>17}\n",
        "method", "", "device", "live", "parameters", "gradients", "optimizer's state"
    );
    let mut surplus = Vec::new();
    for (method, optimizer) in [
        ("single", "sgd"),
        ("data-parallel", "sgd"),
        ("data-parallel", "adam"),
        ("ddp", "sgd"),
        ("apex", "sgd"),
    ] {
        let found = devices(method, optimizer)?;
        assert_eq!(devices_with(method, optimizer, "")?, *found, "{method}, {optimizer}");
        for device in found.iter() {
            table += &format!(
                "{method:14} {optimizer:5} {:6} {:>7} {:>10} {:>9} {:>17}\n",
                device["device"].as_str().context("no device")?,
                device["live"],
                device["parameters"],
                device["gradients"],
                device["optimizer_state"]
            );
        }
        let bytes = |index: usize, name: &str| found[index][name].as_i64().context("no number");
        if method == "data-parallel" {
            surplus.push((bytes(0, "peak")? - bytes(1, "peak")?, bytes(0, "optimizer_state")?));
        } else if method != "single" {
            assert_eq!(bytes(0, "peak")?, bytes(1, "peak")?, "{method}");
        }
    }
    insta::assert_snapshot!("imagenet_bytes", table);
    // S4.47: from SGD to Adam, the memory of cpu:0 grows by as much as the state, and nothing else changes.
    let [(sgd, momentum), (adam, moments)] = surplus[..] else { bail!("{surplus:?}") };
    assert_eq!(adam - sgd, moments - momentum);
    assert!(momentum > 0);
    Ok(())
}

#[test]
fn what_no_training_can_work_with_is_refused() -> Result<()> {
    let texts = ["magic", "single, data-parallel, ddp, apex"];
    expect_refusal(train_cifar("--method=magic")?, 2, &texts)?;
    let too_small = train_cifar("--method=data-parallel --devices=4xcpu --batch-size=3")?;
    expect_refusal(too_small, 1, &["error: --batch-size is 3, but must be at least 4"])?;
    let ddp = train_cifar("--method=ddp --batch-size=1")?;
    expect_refusal(launch(2, &ddp)?, 1, &["--batch-size is 1, but must be at least 2"])?;
    let text = "--method is single, but must be a distributed one, such as ddp, where there are \
                several ranks";
    expect_refusal(launch(2, &train_cifar("")?)?, 1, &[text])?;
    expect_refusal(train_cifar("--devices=2xcpu")?, 1, &["must be a single device"])?;
    let text =
        "--sync-bn is given, but must be left out unless --method is ddp or apex: in one process";
    expect_refusal(train_cifar("--sync-bn")?, 1, &[text])?;
    expect_refusal(train_cifar("--lr=nan")?, 1, &["error: lr is NaN, but must be"])
}
