//! Batches that come on a device.

use super::*;
use tch_parallel_base::{LogicalDevice, memory::max_memory_allocated, memory::memory_allocated};

/// The CPU and, if there is one, a GPU: each without workers and with two.
fn devices_and_workers() -> [(Device, usize); 4] {
    let other = Device::cuda_if_available();
    [(Device::Cpu, 0), (Device::Cpu, 2), (other, 0), (other, 2)]
}

#[test]
fn the_loop_gets_its_batches_on_the_device_that_it_names() {
    for num_workers in [0, 2] {
        let loader = in_order(numbers(4), 2, num_workers);
        for device in [Device::Cpu, Device::cuda_if_available()] {
            for batch in loader.epoch(0).unwrap().to(device) {
                assert_eq!(batch.unwrap().device(), device);
            }
        }
        if !tch::Cuda::is_available() {
            let batches: Vec<_> = loader.epoch(0).unwrap().to(Device::Cuda(0)).collect();
            assert!(batches.len() == 2 && batches.iter().all(Result::is_err));
        }
    }
}

/// A GPU has them one ahead.
#[test]
fn on_a_device_the_batches_keep_their_order_and_their_errors() {
    for (device, num_workers) in devices_and_workers() {
        let loader = in_order(numbers_with(5, fails_at_two), 1, num_workers);
        let mut batches = loader.epoch(0).unwrap().to(device);
        let refused = Err("two is bad, but must be good".to_owned());
        for (taken, expected) in [Ok(0), Ok(1), refused, Ok(3), Ok(4)].into_iter().enumerate() {
            assert_eq!(batches.size_hint(), (5 - taken, Some(5 - taken)));
            let batch = batches.next().unwrap().map(|batch| batch.int64_value(&[0]));
            assert_eq!(batch.map_err(|error| error.to_string()), expected);
        }
        assert!(batches.next().is_none() && batches.next().is_none());
    }
}

/// On a GPU it comes while the batch before it is handed out, which must not be lost.
#[test]
fn on_a_device_a_panic_of_the_data_set_takes_the_place_of_its_batch() {
    in_time(|| {
        for (device, num_workers) in devices_and_workers() {
            let loader = in_order(numbers_with(4, panics_at_two), 1, num_workers);
            let mut batches = loader.epoch(0).unwrap().to(device);
            for expected in [Ok(0), Ok(1), Err("two is too much"), Ok(3)] {
                let batch = catch_unwind(AssertUnwindSafe(|| batches.next().unwrap().unwrap()));
                let batch = batch.map(|batch| batch.int64_value(&[0]));
                assert_eq!(batch.map_err(|panic| *panic.downcast::<&str>().unwrap()), expected);
            }
            assert!(batches.next().is_none());
        }
    });
}

/// On the CPU as on a GPU: the batches that wait are the host's, and the one that trains is the device's.
#[test]
fn a_batch_is_counted_on_the_device_that_trains_and_those_that_wait_on_none() {
    // No other test of this crate uses it: tests share the process.
    const HERE: LogicalDevice = LogicalDevice::Cpu(54);
    let _on = HERE.guard().unwrap();
    for num_workers in [0, 2] {
        let loader = in_order(numbers(16), 2, num_workers);
        for batch in loader.epoch(0).unwrap().to(HERE) {
            let batch = batch.unwrap();
            assert_eq!(LogicalDevice::of(&batch), HERE);
            assert_eq!(memory_allocated(HERE).unwrap(), 2 * size_of::<i64>());
        }
        assert_eq!(max_memory_allocated(HERE).unwrap(), 2 * size_of::<i64>());
    }
}

/// A worker has no device of its own, but what its data set does may have one.
#[test]
fn a_data_set_may_use_devices_on_a_worker() {
    const THERE: LogicalDevice = LogicalDevice::Cpu(55);
    let hook = |indices: &[usize]| {
        let here = Tensor::from(indices[0] as i64);
        let first = LogicalDevice::Cpu(0).copy_of(&here)?;
        assert_ne!(first.data_ptr(), here.data_ptr());
        assert_eq!(LogicalDevice::of(&THERE.copy_of(&first)?), THERE);
        Ok(())
    };
    for batch in in_order(numbers_with(4, hook), 2, 1).epoch(0).unwrap().to(Device::Cpu) {
        assert_eq!(batch.unwrap().size(), [2]);
    }
    assert_eq!(memory_allocated(THERE).unwrap(), 0);
}
