//! How much memory each of dp-custom-criterion's methods needs on each device, counted to the byte:
//! the story that "Learn PyTorch Multi-GPU properly", by matthew l, tells with nvidia-smi.

use crate::prelude::*;
use serde::Deserialize;

const SEQ_LEN: usize = 32;
const VOCAB_SIZE: usize = 2000;
/// Pairs on each device.
const SHARE: usize = 4;

/// As in the article, the output is far larger than everything else.
const SIZES: &str =
    "--hidden=32 --layers=2 --attn-heads=2 --seq-len=32 --vocab-size=2000 --steps=3";

const METHODS: [&str; 6] =
    ["data-parallel", "output-device", "custom-criterion", "ddp", "apex", "fsdp"];

/// The memory of a device, in bytes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Device {
    #[serde(rename = "device")]
    name: String,
    /// Between two steps.
    live: usize,
    peak: usize,
    parameters: usize,
    gradients: usize,
    optimizer_state: usize,
}

impl Device {
    /// The peak without Adam's state. It includes no gradients, which `zero_grad` has freed by then.
    fn without_state(&self) -> usize {
        self.peak - self.optimizer_state
    }
}

/// Trains with a method on `devices` logical devices, and reads what it reports for each. Each training is made once.
fn trained(method: &str, devices: usize) -> Result<Arc<Vec<Device>>> {
    static TRAINED: Shared<Vec<Device>> = Shared::new();
    TRAINED.get((method, devices), || {
        let batch_size = (SHARE * devices).to_string();
        let on = format!("{devices}xcpu");
        let flags = ["--method", method, "--devices", &on, "--batch-size", &batch_size];
        let mut program = dp_custom_criterion(flags.into_iter().chain(SIZES.split(' ')))?;
        program.args(["--metrics", "metrics", "--corpus", &corpus()]);
        let ranks = if is_distributed(method) { devices } else { 1 };
        let program = if is_distributed(method) { launch(ranks, &program)? } else { program };
        let job = Job::done(program)?;
        let device = |event: &Value| Device::deserialize(event).ok();
        let of_rank = |rank| events(job.directory(), rank, "device", device);
        let found = (0..ranks).map(of_rank).collect::<Result<Vec<_>>>()?.concat();
        let names: Vec<_> = found.iter().map(|device| device.name.clone()).collect();
        let expected: Vec<_> = (0..devices).map(|index| format!("cpu:{index}")).collect();
        ensure!(names == expected, "{method} reports {names:?}");
        Ok(found)
    })
}

/// Whether each device has a process of its own.
fn is_distributed(method: &str) -> bool {
    ["ddp", "apex", "fsdp"].contains(&method)
}

/// Whether two amounts differ by at most 2 % of the second.
fn expect_near(found: usize, expected: usize, what: &str) {
    let gap = found.abs_diff(expected);
    assert!(50 * gap <= expected, "{what}: {found} bytes instead of {expected}, {gap} off");
}

/// How much more a device that gathers needs than the others; see dp-custom-criterion/src/exhibits/compare/formula.rs.
fn surplus(devices: usize) -> usize {
    3 * (devices - 1) * SHARE * SEQ_LEN * VOCAB_SIZE * size_of::<f32>()
}

fn expect_surplus(method: &str, gathers: usize) -> Result<()> {
    for devices in [2, 4] {
        let found = trained(method, devices)?;
        for (index, other) in found.iter().enumerate().filter(|(index, _)| *index != gathers) {
            let more = found[gathers].without_state() - other.without_state();
            let what = format!("{method}, cpu:{gathers} over cpu:{index}");
            expect_near(more, surplus(devices), &what);
        }
    }
    Ok(())
}

cases! {
    fn with_data_parallel_the_first_device_needs_more_by_the_formula() =
        expect_surplus("data-parallel", 0);
    fn an_output_device_takes_the_surplus_over() = expect_surplus("output-device", 1);
}

/// The formula leaves out that the first device also has the rest of the batch.
#[test]
fn the_formula_misses_the_batch_and_a_few_numbers() -> Result<()> {
    for devices in [2, 4] {
        let found = trained("data-parallel", devices)?;
        let more = found[0].without_state() - found[1].without_state();
        let pairs = SHARE * devices;
        // Tokens, segments and labels of every pair, and whether its second sentence is the next
        // one. The other device also has the tokens and segments of its own share.
        let batch = size_of::<i64>() * (pairs * (3 * SEQ_LEN + 1) - SHARE * 2 * SEQ_LEN);
        let rest = more - surplus(devices) - batch;
        // The gathered outputs of the smaller head, two for each pair, and some losses and counts.
        assert!(rest < size_of::<f32>() * 2 * pairs + 64, "{rest} bytes");
    }
    Ok(())
}

#[test]
fn with_a_parallel_criterion_all_devices_need_the_same_but_for_adams_state() -> Result<()> {
    for devices in [2, 4] {
        let found = trained("custom-criterion", devices)?;
        for other in &found[1..] {
            expect_near(found[0].without_state(), other.without_state(), &other.name);
        }
    }
    Ok(())
}

#[test]
fn with_ddp_and_apex_all_ranks_need_the_same_to_the_byte() -> Result<()> {
    for (method, devices) in [("ddp", 2), ("ddp", 4), ("apex", 2), ("apex", 4)] {
        let found = trained(method, devices)?;
        for other in &found[1..] {
            assert_eq!(Device { name: found[0].name.clone(), ..other.clone() }, found[0]);
        }
    }
    Ok(())
}

/// No byte is unaccounted for.
#[test]
fn what_lives_between_two_steps_is_known_to_the_byte() -> Result<()> {
    for (method, devices) in METHODS.into_iter().flat_map(|method| [(method, 2), (method, 4)]) {
        let found = trained(method, devices)?;
        for (index, device) in found.iter().enumerate() {
            let Device { live, parameters, gradients, optimizer_state, .. } = *device;
            let part = found[0].gradients;
            let buckets = match method {
                // Each keeps gradients in buckets as well.
                "ddp" | "apex" => gradients,
                // Parts are padded to the same length, that of the first rank, and there is room for whole parameters:
                // two blocks', one of which is gathered ahead, and the others, which here are all.
                "fsdp" => 2 * (part - gradients) + part * devices,
                _ => 0,
            };
            // Apex's also keeps which parameters were used, as two i32 for each of them.
            let used = if method == "apex" { 38 * 2 * size_of::<i32>() } else { 0 };
            assert_eq!(live, parameters + gradients + optimizer_state + buckets + used, "{method}");
            let trains = is_distributed(method) || index == 0;
            assert_eq!(gradients > 0, trains, "{method}, cpu:{index}");
            assert_eq!(optimizer_state > 2 * gradients, trains, "{method}, cpu:{index}");
        }
    }
    Ok(())
}

#[test]
fn the_counts_repeat_to_the_byte() -> Result<()> {
    let mut table = format!(
        "{:16} {:6} {:>8} {:>8} {:>10} {:>9} {:>12}\n",
        "method", "device", "live", "peak", "parameters", "gradients", "Adam's state"
    );
    for (method, devices) in METHODS.into_iter().flat_map(|method| [(method, 2), (method, 4)]) {
        let found = trained(method, devices)?;
        for Device { name, live, peak, parameters, gradients, optimizer_state } in found.iter() {
            table += &format!(
                "{method:16} {name:6} {live:8} {peak:8} {parameters:10} {gradients:9} {optimizer_state:12}\n"
            );
        }
    }
    insta::assert_snapshot!("bytes", table);
    Ok(())
}
