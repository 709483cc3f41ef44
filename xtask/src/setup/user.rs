//! A libtorch that the user has chosen is checked to be of the right release, and then used as it is.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::release::Release;

/// Checks that the folder holds a libtorch with the functions of the release.
pub(super) fn check(libtorch: &Path, release: &Release) -> Result<()> {
    let torch = release.torch;
    let library = libtorch.join("lib/libtorch_cpu.so");
    ensure!(
        library.exists(),
        "LIBTORCH is set, to {}, but {} is not there: set it to the folder of libtorch {torch} that holds lib/ and include/, \
         or unset it to have one fetched",
        libtorch.display(),
        library.display()
    );
    let found = version(libtorch).context("LIBTORCH is set to what is no libtorch")?;
    let like = Release::like(&found);
    let advice = match like {
        Some(like) => format!("add `--torch {}` after the chore's name", like.torch),
        None => format!("set LIBTORCH to libtorch {torch}"),
    };
    ensure!(
        like == Release::like(torch),
        "the libtorch in {} is {found}, but this build is for {torch}: {advice}, or unset LIBTORCH to have one fetched",
        libtorch.display(),
    );
    Ok(())
}

/// The version of the libtorch in this folder, as its headers say.
pub(crate) fn version(libtorch: &Path) -> Result<String> {
    let header = libtorch.join("include/torch/headeronly/version.h");
    let text = fs::read_to_string(&header)
        .with_context(|| format!("cannot read the version of libtorch in {}", header.display()))?;
    // #define TORCH_VERSION \
    //   "2.13.0"
    Ok(text.split('"').nth(1).unwrap_or("of an unknown release").to_owned())
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
        let check = || check(&folder, Release::DEFAULT).map_err(|error| error.to_string());
        let empty = check();
        fs::write(folder.join("lib/libtorch_cpu.so"), "").expect("a file");
        let of = |version: &str| {
            let text = format!("#define TORCH_VERSION \\\n  \"{version}\"\n");
            fs::write(&header, text).expect("a header");
            check()
        };
        let right = [of("2.13.0"), of("2.13.1")];
        let wrong = [
            ("2.11.0", "add `--torch 2.11.0` after the chore's name, or unset LIBTORCH"),
            ("2.12.2", "add `--torch 2.12.1` after the chore's name, or unset LIBTORCH"),
            ("2.10.0", "set LIBTORCH to libtorch 2.13.0, or unset LIBTORCH"),
            ("2.14.0", "set LIBTORCH to libtorch 2.13.0, or unset LIBTORCH"),
        ]
        .map(|(version, advice)| (of(version), version, advice));
        fs::remove_dir_all(&folder).expect("the folder goes");

        let empty = empty.expect_err("there is no library");
        assert!(empty.contains("lib/libtorch_cpu.so is not there"), "{empty}");
        for accepted in right {
            accepted.expect("it is 2.13");
        }
        for (result, version, advice) in wrong {
            let error = result.expect_err(version);
            let expected = format!("is {version}, but this build is for 2.13.0: {advice}");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
