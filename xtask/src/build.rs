//! `cargo xtask build`: builds all programs.

use crate::{prelude::*, setup};

/// Does the set-up if it is missing, and builds. The feature `cuda` needs the headers of the full set-up.
pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<()> {
    let cuda = args.iter().any(|arg| arg.to_string_lossy().contains("cuda"));
    let level = if cuda { setup::Level::Full } else { setup::Level::for_this_machine() };
    setup::ensure(workspace, level)?;
    let mut build = workspace.cargo();
    command::run(build.args(["build", "--release"]).args(whole_workspace(args)).args(args))
}

/// `--workspace`, unless the arguments say which packages to build; it would override them.
pub(crate) fn whole_workspace(args: &[OsString]) -> Option<&'static str> {
    let of_cargo = args.iter().map(|arg| arg.to_string_lossy()).take_while(|arg| arg != "--");
    let selects = |arg: &str| arg.starts_with("-p") || arg.starts_with("--package");
    (!of_cargo.into_iter().any(|arg| selects(&arg))).then_some("--workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_selected_by_cargos_own_flags_only() {
        for (line, selects) in [
            ("-p tests", true),
            ("--package=tests parity", true),
            ("parity", false),
            ("-- -p", false),
            ("", false),
        ] {
            let args: Vec<_> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(whole_workspace(&args).is_none(), selects, "{line}");
        }
    }
}
