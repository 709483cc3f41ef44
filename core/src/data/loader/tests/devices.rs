//! Batches that come on a device.

use super::*;

#[test]
fn the_loop_gets_its_batches_on_the_device_that_it_names() {
    for num_workers in [0, 2] {
        let loader =
            DataLoader::with_options(numbers(4), SequentialSampler, workers(2, num_workers))
                .unwrap();
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
    let fails = |indices: &[usize]| if indices[0] == 2 { Err(failure("batch")) } else { Ok(()) };
    for num_workers in [0, 2] {
        let numbers = Numbers { len: 5, hook: fails };
        let loader =
            DataLoader::with_options(numbers, SequentialSampler, workers(1, num_workers)).unwrap();
        let mut batches = loader.epoch(0).unwrap().to(Device::cuda_if_available());
        for expected in [Some(0), Some(1), None, Some(3), Some(4)] {
            let left = 5 - expected.unwrap_or(2);
            assert_eq!(batches.size_hint(), (left, Some(left)));
            let batch = batches.next().unwrap();
            assert_eq!(batch.ok().map(|batch| batch.int64_value(&[0]) as usize), expected);
        }
        assert!(batches.next().is_none() && batches.next().is_none());
    }
}

/// On a GPU it comes while the batch before it is handed out, which must not be lost.
#[test]
fn on_a_device_a_panic_of_the_data_set_takes_the_place_of_its_batch() {
    for num_workers in [0, 2] {
        let hook = |indices: &[usize]| {
            assert_ne!(indices[0], 2, "two is too much");
            Ok(())
        };
        let numbers = Numbers { len: 4, hook };
        let loader =
            DataLoader::with_options(numbers, SequentialSampler, workers(1, num_workers)).unwrap();
        let mut batches = loader.epoch(0).unwrap().to(Device::cuda_if_available());
        for expected in [Some(0), Some(1), None, Some(3)] {
            let batch = catch_unwind(AssertUnwindSafe(|| batches.next().unwrap().unwrap()));
            assert_eq!(batch.ok().map(|batch| batch.int64_value(&[0])), expected);
        }
        assert!(batches.next().is_none());
    }
}
