//! A LIBTORCH that the user has set is checked to be the right release, and then used as it is.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::level::TORCH;

/// Checks that the folder holds the libtorch that the programs are made for.
pub(super) fn check(libtorch: &Path) -> Result<()> {
    let library = libtorch.join("lib/libtorch_cpu.so");
    ensure!(
        library.exists(),
        "LIBTORCH is set, to {}, but {} is not there: set it to the folder of libtorch {TORCH} that holds lib/ and include/, \
         or unset it to have one fetched",
        libtorch.display(),
        library.display()
    );
    let header = libtorch.join("include/torch/headeronly/version.h");
    let text = fs::read_to_string(&header).with_context(|| {
        format!("LIBTORCH is set, but cannot read its version in {}", header.display())
    })?;
    ensure!(
        text.contains(&format!("\"{TORCH}\"")),
        "LIBTORCH is set, but {} does not say {TORCH}, which tch 0.24 needs: set it to libtorch {TORCH}, or unset it to have \
         one fetched",
        header.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_release_is_accepted() {
        let folder = std::env::temp_dir().join(format!("xtask-user-{}", std::process::id()));
        let header = folder.join("include/torch/headeronly/version.h");
        fs::create_dir_all(header.parent().expect("it has one")).expect("a temporary folder");
        fs::create_dir_all(folder.join("lib")).expect("a temporary folder");
        let empty = check(&folder).map_err(|error| error.to_string());
        fs::write(folder.join("lib/libtorch_cpu.so"), "").expect("a file");
        fs::write(&header, "#define TORCH_VERSION \\\n  \"2.10.0\"\n").expect("a header");
        let old = check(&folder).map_err(|error| error.to_string());
        fs::write(&header, "#define TORCH_VERSION \\\n  \"2.11.0\"\n").expect("a header");
        let right = check(&folder).map_err(|error| error.to_string());
        fs::remove_dir_all(&folder).expect("the folder goes");

        assert!(
            empty.expect_err("there is no library").contains("lib/libtorch_cpu.so is not there")
        );
        assert!(old.expect_err("it is 2.10.0").contains("does not say 2.11.0"));
        right.expect("it is 2.11.0");
    }
}
