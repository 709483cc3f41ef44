//! The library's one error type.
//!
//! Each variant says what was found and expected, and what to do. Errors between ranks also name rank and operation.

use crate::LogicalDevice;
use std::{fmt::Display, io, path::Path, path::PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, grouped by source. PyTorch raises `ValueError`, `DistBackendError` and, mostly, `RuntimeError`.
///
/// ```
/// use tch_parallel::{Devices, Error};
///
/// let error = "cpu:0,cpu:0".parse::<Devices>().unwrap_err();
/// assert!(matches!(&error, Error::Argument { what, .. } if what == "devices"));
/// assert_eq!(
///     error.to_string(),
///     "devices is a list with cpu:0 twice, but must be a list of different devices: replicas that \
///      share one gain nothing"
/// );
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // === Arguments ===
    /// A value that no run could use, refused before any work is done.
    #[error("{what} is {found}, but must be {expected}")]
    Argument {
        /// The argument's name as the caller wrote it (`batch_size`, `--device`).
        what: String,
        /// The offending value.
        found: String,
        /// What would have been accepted.
        expected: String,
    },

    /// An environment variable that a launcher sets is missing or invalid.
    #[error("environment variable {variable} {found}; expected {expected}")]
    Environment {
        /// The variable's name (`RANK`, `WORLD_SIZE` …).
        variable: String,
        /// `is "4"`, `is not set while RANK is` …
        found: String,
        /// What would have been accepted, and who normally sets it.
        expected: String,
    },

    // === Files ===
    /// A file that can be read but has the wrong contents.
    #[error("{}: {found}; expected {expected}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the file holds.
        found: String,
        /// What it should hold, or what to do.
        expected: String,
    },

    /// The operating system refused a file operation.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was attempted, as a verb (`read`, `create`, `rename to`).
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    // === Between ranks ===
    /// A rank could not join the others.
    #[error("rank {rank} of {world_size} could not {operation}: {message}")]
    Rendezvous {
        /// The rank that reports the error.
        rank: usize,
        /// How many ranks were expected.
        world_size: usize,
        /// What was attempted (`listen on 127.0.0.1:29500`, `join the group`).
        operation: String,
        /// What happened, and what to do.
        message: String,
    },

    /// A collective operation failed.
    #[error("rank {rank}: {operation} failed: {message}{}", blame.as_ref().map(|b| format!(" ({b})")).unwrap_or_default())]
    Collective {
        /// The rank that reports the error.
        rank: usize,
        /// `all_reduce`, `backward`, `DistributedDataParallel::new` …
        operation: &'static str,
        /// PyTorch's own message, without its C++ backtrace.
        message: String,
        /// The rank at fault, if it could be found.
        culprit: Option<usize>,
        /// What is known of the fault: which rank is gone, or what another rank reported.
        blame: Option<String>,
    },

    /// Some parameters did not contribute to a loss.
    #[error(
        "rank {rank}: {} did not contribute to the last loss, so the gradients of this step could \
         not be exchanged; use every parameter in every loss, or set find_unused_parameters",
        names.join(", ")
    )]
    UnusedParameters {
        /// The rank that reports the error.
        rank: usize,
        /// The parameters' names in the variable store.
        names: Vec<String>,
    },

    // === Between the replicas of one process ===
    /// A replica of a model failed while the others ran.
    #[error("the replica on {device} failed in {operation}: {message}")]
    Replica {
        /// The replica's device.
        device: LogicalDevice,
        /// `forward`, `criterion` or `backward`.
        operation: &'static str,
        /// The panic's message, without libtorch's C++ backtrace.
        message: String,
    },

    // === Tensors ===
    /// A tensor operation failed.
    #[error("{operation} failed: {message}")]
    Tensor {
        /// What was attempted.
        operation: &'static str,
        /// libtorch's own message, without its C++ backtrace.
        message: String,
    },

    // === The caller's own code ===
    /// The error of a data set, a transform or a hook that the caller wrote.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// For `map_err` in a `Dataset` or another trait that the caller implements: wraps any error or text.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }

    /// For `map_err` on file operations: `File::open(&path).map_err(Error::io("open", &path))`.
    pub fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Error::Io { operation, path, source }
    }

    /// Refuses a value before any work is done: `{what} is {found}, but must be {expected}`.
    ///
    /// ```
    /// let error = tch_parallel::Error::argument("--lr", -0.1, "a number not below 0");
    /// assert_eq!(error.to_string(), "--lr is -0.1, but must be a number not below 0");
    /// ```
    pub fn argument(what: impl Display, found: impl Display, expected: impl Display) -> Self {
        let [what, found, expected] =
            [&what as &dyn Display, &found, &expected].map(|part| part.to_string());
        Error::Argument { what, found, expected }
    }

    /// Refuses a file's contents: `{path}: {found}; expected {expected}`.
    pub fn format(path: impl Into<PathBuf>, found: impl Display, expected: impl Display) -> Self {
        let (found, expected) = (found.to_string(), expected.to_string());
        Error::Format { path: path.into(), found, expected }
    }

    /// The rank that reports the error, if it is one between ranks.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Error::Rendezvous { rank, .. }
            | Error::Collective { rank, .. }
            | Error::UnusedParameters { rank, .. } => Some(*rank),
            _ => None,
        }
    }

    /// What was attempted: `all_reduce`, `backward`, `read` …
    pub fn operation(&self) -> Option<&str> {
        match self {
            Error::Io { operation, .. }
            | Error::Collective { operation, .. }
            | Error::Replica { operation, .. }
            | Error::Tensor { operation, .. } => Some(operation),
            Error::Rendezvous { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// The rank at fault in an error between ranks, if it could be found.
    pub fn culprit(&self) -> Option<usize> {
        if let Error::Collective { culprit, .. } = self { *culprit } else { None }
    }

    /// For `map_err` on the operations of [`c10d_sys`].
    pub fn engine(operation: &'static str) -> impl FnOnce(c10d_sys::Error) -> Self {
        move |error| Error::Tensor { operation, message: error.message().to_owned() }
    }
}

/// So that `?` works on tch's fallible operations.
impl From<tch::TchError> for Error {
    fn from(error: tch::TchError) -> Self {
        Error::Tensor { operation: "a tensor operation", message: without_backtrace(&error) }
    }
}

/// Refuses a value with [`Error::argument`] unless it is `ok`.
pub fn check(
    ok: bool,
    what: impl Display,
    found: impl Display,
    expected: impl Display,
) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::argument(what, found, expected)) }
}

/// Refuses a file's contents with [`Error::format`] unless they are `ok`.
pub fn check_file(
    ok: bool,
    path: &Path,
    found: impl Display,
    expected: impl Display,
) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::format(path, found, expected)) }
}

/// An error and its causes in one line.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&cause| cause.source()) {
        let cause = cause.to_string();
        // Many errors already quote their cause.
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

/// Removes the C++ backtrace that libtorch appends to the text of an error.
pub fn without_backtrace(error: &tch::TchError) -> String {
    let text = match error {
        tch::TchError::Torch(text) => text.clone(),
        other => other.to_string(),
    };
    // When memory runs out, the backtrace has no headline.
    let ends = ["\nException raised from", "\nframe #0"].into_iter().filter_map(|it| text.find(it));
    text[..ends.min().unwrap_or(text.len())].trim().to_owned()
}

/// The message of a panic. tch's operations panic with libtorch's text in debug format.
pub fn of_panic(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("a panic without a message");
    let torchs = text.split_once("Torch(\"").map_or(text, |(_, rest)| rest);
    let end = torchs.find("\\nException raised from").unwrap_or(torchs.len());
    torchs[..end].replace("\\n", "\n").replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_told_once() {
        let full = io::Error::other("No space left on device");
        let error = Error::io("write", "model.safetensors")(full);
        let told = "cannot write model.safetensors: No space left on device";
        assert_eq!(with_causes(&error), told);
        assert_eq!(with_causes(&Error::other(error)), told);
    }
}
