use anyhow::Result;
#[derive(Debug, clap::Args)]
pub struct Args {}
pub fn run(_: &Args) -> Result<()> {
    Ok(())
}
