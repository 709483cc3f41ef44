//! A program of the workspace, and how it is built for what this machine has.

use crate::prelude::*;
use tch_parallel_contract::gpus;

pub(crate) struct Program<'a> {
    name: &'a str,
    manifest: String,
}

impl<'a> Program<'a> {
    /// The program with this name; `None` if there is no such program.
    pub(crate) fn find(name: &'a OsStr) -> Option<Self> {
        let name = name.to_str().filter(|name| !name.contains('/'))?;
        let folder = checkout().join(name);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        let is_program = manifest.contains(&format!("\nname = \"{name}\"\n"))
            && folder.join("src/main.rs").exists();
        is_program.then_some(Self { name, manifest })
    }

    /// Adds this program to a `cargo build`, with `cuda` if there is a GPU, and returns where its executable will be.
    pub(crate) fn add_to(&self, build: &mut Command, workspace: &Workspace) -> PathBuf {
        build.args(["--package", self.name]);
        if gpus() > 0 && has_cuda_feature(&self.manifest) {
            // The wheels put NCCL's headers beside torch.
            if workspace.libtorch.join("../nvidia/nccl/include/nccl.h").exists() {
                build.args(["--features", "cuda"]);
            } else {
                eprintln!(
                    "{} is built without CUDA: the feature `cuda` needs NCCL's headers, which are not beside {}",
                    self.name,
                    workspace.libtorch.display()
                );
            }
        }
        workspace.release_executable(self.name)
    }
}

fn has_cuda_feature(manifest: &str) -> bool {
    manifest.lines().any(|line| line.split('=').next().is_some_and(|key| key.trim() == "cuda"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_the_workspace_are_found() {
        for other in ["true", "./ddp-mnist", "core", "no-such-program", ""] {
            assert!(Program::find(OsStr::new(other)).is_none(), "{other}");
        }
    }

    #[test]
    fn every_program_that_trains_has_the_feature_cuda_and_no_other_name_is_taken_for_it() {
        for name in ["async-update", "ddp-imagenet", "ddp-mnist", "dp-basic", "dp-custom-criterion"]
        {
            let program = Program::find(OsStr::new(name)).expect("it is in the workspace");
            assert!(has_cuda_feature(&program.manifest), "{name}");
        }
        assert!(!has_cuda_feature("[features]\nnot-cuda = []\n# cuda\n"));
    }
}
