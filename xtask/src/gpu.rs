//! `cargo xtask gpu`: the examination of this library on a GPU, which takes one command on a machine without Rust.

mod pack;

use crate::{prelude::*, setup};

#[derive(Subcommand)]
pub(crate) enum Chore {
    /// Make a folder of at most 100 MiB with programs, scripts and `run`, which examines this library
    /// on a machine that has a GPU and PyTorch, but no Rust and no network.
    Pack {
        #[command(flatten)]
        torch: crate::Torch,
        /// Where to make the folder; replaces one made before [default: target/gpu-VERSION].
        #[arg(long, value_name = "FOLDER")]
        to: Option<PathBuf>,
        /// Pack the programs that `cargo xtask test` has built for the CPU, which `run --dry` can start.
        #[arg(long)]
        cpu: bool,
    },
}

pub(crate) fn run(chore: &Chore) -> Result<()> {
    let Chore::Pack { torch, to, cpu } = chore;
    let workspace = Workspace::of(torch.release)?;
    let folder = to.clone().unwrap_or_else(|| default_folder(&workspace));
    let pack = if *cpu { pack::built_for_the_cpu } else { pack::with_cuda };
    let size = pack(&workspace, &folder)?.div_ceil(1 << 20);
    let folder = folder.display();
    println!("{folder}: {size} MiB; copy it to the machine with the GPU and start `run` there");
    Ok(())
}

/// `cargo xtask test --gpu`: packs, and examines this machine.
pub(crate) fn test(workspace: &Workspace) -> Result<()> {
    let venv = setup::ensure_python(workspace)?;
    let to = default_folder(workspace);
    pack::with_cuda(workspace, &to)?;
    let mut examination = Command::new(venv.executable("python"));
    command::run(examination.arg(to.join("run")).arg("--to").arg(to.join(pack::PAGE)))
}

fn default_folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join(format!("gpu-{}", workspace.release.torch))
}
