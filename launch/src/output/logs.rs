//! A job's log directory, with torchrun's layout.

use crate::prelude::*;
use nix::unistd::mkdtemp;

/// A directory for this job alone, `<log dir>/<run id>_xxxxxx`: no job overwrites another's logs.
pub(crate) struct Logs(PathBuf);

impl Logs {
    /// Creates the directory if any flag asks for log files, and says where it is.
    pub(crate) fn create(args: &Args) -> Result<Option<Self>> {
        if args.log_dir.is_none() && !args.tee.any() && !args.redirects.any() {
            return Ok(None);
        }
        let (base, prefix) = match &args.log_dir {
            Some(dir) => (dir.clone(), ""),
            None => (std::env::temp_dir(), "launch_"),
        };
        let cannot = || format!("cannot create a log directory in {}", base.display());
        fs::create_dir_all(&base).with_context(cannot)?;
        let name = format!("{prefix}{}_XXXXXX", args.rdzv_id.replace('/', "_"));
        let root = mkdtemp(&base.join(name)).with_context(cannot)?;
        say(format_args!("logs are in {}", root.display()));
        Ok(Some(Logs(root)))
    }

    /// Creates a rank's directory, `attempt_<n>/<local rank>`.
    pub(crate) fn rank_dir(&self, generation: u32, local_rank: u16) -> Result<PathBuf> {
        let dir = self.0.join(format!("attempt_{generation}")).join(local_rank.to_string());
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(dir)
    }
}

pub(crate) struct LogFile {
    pub(crate) path: PathBuf,
    /// `None` once writing has failed.
    file: Option<File>,
}

impl LogFile {
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(LogFile { path, file: Some(file) })
    }

    /// Appends bytes. A full disk ends the log, not the job.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(bytes) {
            say(format_args!("cannot write to {} any more: {error}", self.path.display()));
            self.file = None;
        }
    }
}
