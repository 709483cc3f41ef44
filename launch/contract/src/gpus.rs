//! How many GPUs this process may use, found without CUDA.

use std::{env, path::Path};

/// The number of NVIDIA GPUs that CUDA would show this process.
///
/// Counts the device files of NVIDIA's driver, whatever their numbers: a container may have only
/// `/dev/nvidia3`. WSL2 has one file, `/dev/dxg`, for the GPUs of every vendor; there, CUDA's driver
/// library tells that one is NVIDIA's. How many there are it does not tell, so they count as 1.
/// `CUDA_VISIBLE_DEVICES` is read as PyTorch's `torch.cuda.device_count` reads it.
pub fn gpus() -> usize {
    gpus_in(Path::new("/"), env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
}

fn gpus_in(root: &Path, visible: Option<&str>) -> usize {
    let numbered = device_files(&root.join("dev"));
    let wsl2 = ["dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"];
    let is_wsl2 = wsl2.iter().all(|file| root.join(file).exists());
    let present = if is_wsl2 { numbered.max(1) } else { numbered };
    visible.map_or(present, |list| visible_of(present, list))
}

/// `nvidia0`, `nvidia1` …, but not `nvidiactl`.
fn device_files(dev: &Path) -> usize {
    let Ok(entries) = dev.read_dir() else { return 0 };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let is_gpu = |name: &str| name.strip_prefix("nvidia").is_some_and(is_number);
    entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_gpu)).count()
}

/// How many of the GPUs that are present a list selects. It names them as its first entry does, by number or by UUID,
/// and ends before one that does not. With an entry twice, CUDA shows none. As `_parse_visible_devices` of torch.cuda.
fn visible_of(present: usize, list: &str) -> usize {
    let uuid = ["GPU-", "MIG-"].into_iter().find(|prefix| list.trim().starts_with(prefix));
    let exists = |entry: &&str| match uuid {
        Some(prefix) => entry.starts_with(prefix),
        None => entry.parse::<usize>().is_ok_and(|number| number < present),
    };
    let selected: Vec<_> = list.split(',').map(str::trim).take_while(exists).collect();
    let twice = (1..selected.len()).any(|at| selected[..at].contains(&selected[at]));
    if twice { 0 } else { selected.len().min(present) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    fn machine(files: &[&str]) -> TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        for file in files {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
            fs::write(file, "").expect("a file");
        }
        root
    }

    #[test]
    fn device_files_with_any_number_count_as_gpus() {
        let others = ["dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia", "dev/null"];
        for (files, count) in [
            (&["dev/nvidia0", "dev/nvidia1", "dev/nvidia10"][..], 3),
            // A container with the fourth GPU alone.
            (&["dev/nvidia3"], 1),
            (&[], 0),
        ] {
            let root = machine(&[files, &others].concat());
            assert_eq!(gpus_in(root.path(), None), count, "{files:?}");
        }
        assert_eq!(gpus_in(&machine(&[]).path().join("missing"), None), 0);
    }

    #[test]
    fn on_wsl2_the_driver_library_tells_whether_the_gpu_is_nvidias() {
        let library = "usr/lib/wsl/lib/libcuda.so.1";
        assert_eq!(gpus_in(machine(&["dev/dxg", library]).path(), None), 1);
        assert_eq!(gpus_in(machine(&["dev/dxg", library]).path(), Some("")), 0);
        // Another vendor's GPU.
        assert_eq!(gpus_in(machine(&["dev/dxg"]).path(), None), 0);
        assert_eq!(gpus_in(machine(&[library]).path(), None), 0);
    }

    #[test]
    fn cuda_visible_devices_limits_the_gpus() {
        let root = machine(&["dev/nvidia0", "dev/nvidia1", "dev/nvidia2", "dev/nvidia3"]);
        for (count, lists) in [
            (0, &["", "-1", "4,0", "1,1", "none"][..]),
            (1, &["3", "0,-1,1", "MIG-a", "GPU-a,0", "0,GPU-a", "GPU-a,MIG-a"]),
            (2, &["0,1", " 2, 0", "GPU-a, GPU-b"]),
        ] {
            for list in lists {
                assert_eq!(gpus_in(root.path(), Some(list)), count, "{list:?}");
            }
        }
    }
}
