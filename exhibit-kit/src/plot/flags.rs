//! The flags for pictures. One that cannot be written is refused before any work, and none is drawn unasked.

use std::{fs, path::PathBuf};
use tch_parallel::{Error, Result, checkpoint::check_destination};

/// `--plot`, for several charts or for one whose name is known.
#[derive(Debug, clap::Args)]
pub struct PlotArgs {
    /// Draw what is measured in this directory, as SVG files.
    #[arg(long = "plot", value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

impl PlotArgs {
    /// Creates the directory, if it is given. Fails if these files cannot be written in it.
    pub fn check(&self, files: &[&str]) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        fs::create_dir_all(directory).map_err(Error::io("create directory", directory))?;
        files.iter().try_for_each(|file| check_destination(directory.join(file)))
    }

    /// Draws a chart and writes it to this file in the directory, if that is given.
    pub fn save(&self, file: &str, draw: impl FnOnce() -> Result<String>) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        report::save(directory.join(file), &draw()?)
    }
}

/// `--svg`, for a single picture.
#[derive(Debug, clap::Args)]
pub struct SvgArgs {
    /// Draw what is measured to this file.
    #[arg(long = "svg", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl SvgArgs {
    /// Checks that the file can be written, if it is given.
    pub fn check(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), check_destination)
    }

    /// Draws the picture and writes it to the file, if that is given.
    pub fn save(&self, draw: impl FnOnce() -> Result<String>) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| report::save(file, &draw()?))
    }
}
