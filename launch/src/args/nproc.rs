//! The value of `--nproc-per-node`: the number of ranks on this node.

use std::path::Path;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};

/// Parses a number, `cpu`, `gpu` or `auto`.
pub(crate) fn parse_nproc(text: &str) -> Result<u16> {
    match text {
        "cpu" => cores(),
        "gpu" => match gpus() {
            0 => bail!(
                "this machine has no GPU: expected /dev/nvidia0, not hidden by CUDA_VISIBLE_DEVICES"
            ),
            count => Ok(count),
        },
        "auto" => match gpus() {
            0 => cores(),
            count => Ok(count),
        },
        number => {
            let count =
                number.parse().ok().context("expected a number of ranks, gpu, cpu or auto")?;
            ensure!(count > 0, "the world size would be 0: give at least one rank");
            Ok(count)
        }
    }
}

fn cores() -> Result<u16> {
    let cores = available_parallelism().context("cannot count the cores")?;
    Ok(u16::try_from(cores.get())?)
}

/// Counts the GPUs by NVIDIA's device files, without those that CUDA_VISIBLE_DEVICES hides.
fn gpus() -> u16 {
    let devices = device_files(Path::new("/dev"));
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(visible) => devices.min(visible_devices(&visible)),
        Err(_) => devices,
    }
}

fn device_files(dev: &Path) -> u16 {
    let Ok(entries) = dev.read_dir() else { return 0 };
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let gpus = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_gpu));
    u16::try_from(gpus.count()).unwrap_or(u16::MAX)
}

/// CUDA uses the list up to the first invalid device; people write -1 for that.
fn visible_devices(list: &str) -> u16 {
    let devices = list.split(',').map(str::trim).take_while(|id| !id.is_empty() && *id != "-1");
    u16::try_from(devices.count()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_device_files_count_as_gpus() {
        let dev = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "null"]
        {
            std::fs::write(dev.path().join(name), "").unwrap();
        }
        assert_eq!(device_files(dev.path()), 3);
        assert_eq!(device_files(&dev.path().join("missing")), 0);
    }

    #[test]
    fn cuda_visible_devices_limits_the_gpus() {
        let table = [("0,1", 2), ("3", 1), ("", 0), ("-1", 0), ("0,-1,1", 1), ("GPU-a, GPU-b", 2)];
        for (list, count) in table {
            assert_eq!(visible_devices(list), count, "{list:?}");
        }
    }

    #[test]
    fn numbers_and_names_are_parsed() {
        assert_eq!(parse_nproc("4").unwrap(), 4);
        assert!(parse_nproc("cpu").unwrap() >= 1);
        assert!(parse_nproc("auto").unwrap() >= 1);
        for wrong in ["0", "-1", "two", "", "1.5", "70000"] {
            assert!(parse_nproc(wrong).is_err(), "{wrong:?}");
        }
    }
}
