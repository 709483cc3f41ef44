//! A libtorch that the user has chosen is checked to be of the right release, and then used as it is.

use crate::prelude::*;

pub(super) fn check(libtorch: &Path, release: &Release) -> Result<()> {
    let torch = release.torch;
    let library = libtorch.join("lib/libtorch_cpu.so");
    ensure!(
        library.exists(),
        "LIBTORCH or LIBTORCH_USE_PYTORCH names {}, but {} is not there: set LIBTORCH to the folder of libtorch \
         {torch} that holds lib/ and include/, or unset both to have one fetched",
        libtorch.display(),
        library.display()
    );
    let found = version(libtorch)
        .context("LIBTORCH or LIBTORCH_USE_PYTORCH names something other than libtorch")?;
    let like = Release::like(&found);
    let advice = match like {
        Some(like) => format!("add `--torch {}` after the chore's name", like.torch),
        None => format!("unset LIBTORCH_USE_PYTORCH and set LIBTORCH to libtorch {torch}"),
    };
    ensure!(
        like == Release::like(torch),
        "the libtorch in {} is {found}, but this build is for {torch}: {advice}, or unset both to have one fetched",
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
        let folder = tempfile::tempdir().unwrap();
        let check = || check(folder.path(), Release::DEFAULT).map_err(|error| error.to_string());
        let empty = check().unwrap_err();
        assert!(empty.contains("lib/libtorch_cpu.so is not there"), "{empty}");
        write(&folder.path().join("lib/libtorch_cpu.so"), "").unwrap();
        let of = |version: &str| {
            let text = format!("#define TORCH_VERSION \\\n  \"{version}\"\n");
            write(&folder.path().join("include/torch/headeronly/version.h"), text).unwrap();
            check()
        };
        ["2.13.0", "2.13.1"].into_iter().for_each(|right| of(right).unwrap());
        let other = "unset LIBTORCH_USE_PYTORCH and set LIBTORCH to libtorch 2.13.0, or unset both";
        for (version, advice) in [
            ("2.11.0", "add `--torch 2.11.0` after the chore's name, or unset both"),
            ("2.12.2", "add `--torch 2.12.1` after the chore's name, or unset both"),
            ("2.10.0", other),
            ("2.14.0", other),
        ] {
            let error = of(version).unwrap_err();
            let expected = format!("is {version}, but this build is for 2.13.0: {advice}");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
