//! Where a file is written: first to a temporary file beside it, which is then renamed.

use crate::{Error, Result, check_file, file_size_limit};
use std::fs::{self, File, FileType, OpenOptions, Permissions};
use std::io::{self, ErrorKind::InvalidInput, ErrorKind::Unsupported};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most symbolic links that lead to a file, one after the other: Linux's own limit.
const MAX_LINKS: usize = 40;

/// Refuses a path to which [`replace`] could not write, before a long training. For the processes that will write.
///
/// # Errors
/// [`Error::Format`] for whatever exists and is not a regular file, such as a directory or a device, and for a file in
/// a directory that does not exist; [`Error::Io`] if the directory is not writable.
pub fn check_destination(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let (.., temporary) = destination(path)?;
    File::create(&temporary).map_err(Error::io("write to the directory of", path))?;
    fs::remove_file(&temporary).map_err(Error::io("remove", temporary))
}

/// Calls `write` with a temporary path, and renames that file to `path`. Even if the process or the machine stops,
/// `path` always holds the complete old file or the complete new one. All checkpoints are written in this way.
///
/// If `path` is a symbolic link, the file that it leads to is replaced, and the link stays. The new file has the
/// permissions of the old one. Its owner is whoever writes, and other hard links keep the old contents.
///
/// Removes what a killed run has left. Of two runs or threads that write to `path`, the last wins; on two hosts, one fails.
///
/// ```
/// use std::fs;
/// use tch_parallel::Error;
/// use tch_parallel::checkpoint::replace;
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("words.txt");
/// replace(&path, |temporary| {
///     fs::write(temporary, "one two").map_err(Error::io("write", &path))
/// })?;
/// assert_eq!(fs::read_to_string(&path).unwrap(), "one two");
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Format`] if `path` is not a regular file or its directory does not exist; [`Error::Io`]
/// if the file cannot be written. No half-written file stays behind.
pub fn replace(path: impl AsRef<Path>, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let path = path.as_ref();
    file_size_limit::is_an_error();
    let (file, old, temporary) = destination(path)?;
    remove_leftovers(&file).map_err(Error::io("write to the directory of", path))?;
    let begin = || {
        if old.is_some() {
            // The old file may be private.
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        }
        Ok(())
    };
    let end = || {
        if let Some(permissions) = &old {
            fs::set_permissions(&temporary, permissions.clone())?;
        }
        // Otherwise the name could reach the disk before the contents.
        sync(&temporary)?;
        fs::rename(&temporary, &file)?;
        // Otherwise a power failure could bring the old name back.
        match sync(directory(&file)) {
            // Some file systems, such as a virtual machine's shared folder, cannot do that.
            Err(error) if matches!(error.kind(), InvalidInput | Unsupported) => Ok(()),
            synced => synced,
        }
    };
    let result = begin()
        .map_err(Error::io("create a file beside", path))
        .and_then(|()| write(&temporary))
        .and_then(|()| end().map_err(Error::io("write", path)));
    if result.is_err() {
        // It may not exist, depending on where the write failed.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// The file that a path leads to, not a link; its permissions, if it exists; where the new contents are written first.
fn destination(path: &Path) -> Result<(PathBuf, Option<Permissions>, PathBuf)> {
    let file = target(path)?;
    let directory = directory(&file);
    let found = format!("the directory {} does not exist", directory.display());
    let expected = "a file in an existing directory; create it first";
    check_file(directory.is_dir(), path, found, expected)?;
    let old = match fs::symlink_metadata(&file) {
        Ok(metadata) if metadata.is_file() => Some(metadata.permissions()),
        Ok(metadata) => {
            let found = kind(metadata.file_type());
            return Err(Error::format(path, found, "the name of a regular file to write"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Error::io("write", path)(error)),
    };
    // In the same directory, since a rename across file systems is not atomic.
    let [begin, end] = around_thread_id(&file);
    let temporary = directory.join(format!("{begin}{}{end}", thread_id()));
    Ok((file, old, temporary))
}

/// Where the symbolic links lead, whether or not there is a file at the end.
///
/// # Errors
/// [`Error::Format`] for links in a circle.
pub fn target(path: &Path) -> Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            Ok(link) => target = directory(&target).join(link),
            // It is not a link, or there is nothing.
            Err(_) => return Ok(target),
        }
    }
    let found = format!("more than {MAX_LINKS} symbolic links, perhaps in a circle");
    Err(Error::format(path, found, "a regular file, or a link to one"))
}

fn kind(found: FileType) -> &'static str {
    match found {
        _ if found.is_dir() => "a directory",
        _ if found.is_fifo() => "a pipe",
        _ if found.is_socket() => "a socket",
        _ => "a device",
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The system's number of this thread: several threads of a process may write at once.
fn thread_id() -> u32 {
    let link = fs::read_link("/proc/thread-self").unwrap_or_default();
    let id = link.file_name().and_then(|id| id.to_str()?.parse().ok());
    id.unwrap_or_else(std::process::id)
}

/// The parts of a temporary file's name before and after the thread's number.
fn around_thread_id(path: &Path) -> [String; 2] {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [format!(".{name}."), ".tmp".into()]
}

/// The final name of a temporary file of [`replace`]; any other name as it is.
pub fn final_name(name: &str) -> &str {
    let temporary = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".tmp"));
    temporary.and_then(|rest| rest.rsplit_once('.')).map_or(name, |(file, _)| file)
}

fn remove_leftovers(path: &Path) -> io::Result<()> {
    let [begin, end] = around_thread_id(path);
    remove_beside(path, |name| {
        let thread_id = name.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(&end));
        thread_id.is_some_and(has_ended)
    })
}

/// Removes the files in the directory of `path` whose names are old ones.
pub fn remove_beside(path: &Path, is_old: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(directory(path))? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&is_old) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether a leftover's thread has ended. This thread itself has not begun to write.
fn has_ended(thread: &str) -> bool {
    thread
        .parse::<u32>()
        .is_ok_and(|id| id == thread_id() || !Path::new("/proc").join(id.to_string()).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::{sys::stat::Mode, unistd::mkfifo};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn write(path: &Path, text: &str) -> Result<()> {
        fs::write(path, text).unwrap();
        Ok(())
    }

    #[test]
    fn a_destination_in_a_missing_directory_is_found_before_training() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing/model.safetensors");
        for result in [check_destination(&missing), replace(&missing, |_| Ok(()))] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("missing does not exist; expected a file in"), "{error}");
        }
        assert!(check_destination(directory.path()).is_err());
        check_destination(directory.path().join("model.safetensors")).unwrap();
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        fs::write(&path, "old").unwrap();
        let refused = replace(&path, |temporary| {
            fs::write(temporary, "n").unwrap();
            let source = io::ErrorKind::StorageFull.into();
            Err(Error::Io { operation: "write", path: "model".into(), source })
        });
        refused.unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["model"]);
    }

    #[test]
    fn what_killed_runs_have_left_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        let running = std::os::unix::process::parent_id();
        let kept = ["", &running.to_string(), "best"].map(|of| format!(".model.{of}.tmp"));
        let own = format!(".model.{}.tmp", thread_id());
        for name in kept.iter().chain([&own, &".model.4294967295.tmp".to_owned()]) {
            fs::write(directory.path().join(name), "").unwrap();
        }
        replace(&path, |temporary| write(temporary, "new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(directory.path()), [&kept[..], &["model".to_owned()]].concat());
    }

    #[test]
    fn a_link_stays_and_the_file_that_it_leads_to_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("disk")).unwrap();
        symlink("disk/model", at("link")).unwrap();
        symlink(at("link"), at("link of a link")).unwrap();
        for text in ["new: the link led to nothing", "replaced"] {
            check_destination(at("link of a link")).unwrap();
            replace(at("link of a link"), |temporary| {
                assert_eq!(temporary.parent(), Some(&*at("./disk")), "on the same disk");
                write(temporary, text)
            })
            .unwrap();
            assert_eq!(fs::read_to_string(at("disk/model")).unwrap(), text);
            assert_eq!(names(directory.path()), ["disk", "link", "link of a link"]);
        }
        assert!(at("link").is_symlink() && names(&at("disk")) == ["model"]);
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
        symlink(&one, &two).unwrap();
        symlink(&two, &one).unwrap();
        let error = check_destination(&one).unwrap_err().to_string();
        assert!(error.contains("one: more than 40 symbolic links"), "{error}");
    }

    #[test]
    fn the_permissions_of_the_old_file_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        fs::write(&path, "old").unwrap();
        for mode in [0o600, 0o640, 0o444, 0o666] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            replace(&path, |temporary| {
                let while_written = fs::metadata(temporary).unwrap().permissions().mode();
                assert_eq!(while_written & 0o077, 0, "nobody else may read it");
                write(temporary, "new")
            })
            .unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let [pipe, socket, link] = ["pipe", "socket", "link"].map(|it| directory.path().join(it));
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(&socket).unwrap();
        symlink("/dev/null", &link).unwrap();
        for (path, found) in [
            (directory.path(), "a directory"),
            (&pipe, "a pipe"),
            (&socket, "a socket"),
            (&link, "a device"),
            (Path::new("/dev/null"), "a device"),
        ] {
            let before = fs::symlink_metadata(path).unwrap().file_type();
            let expected = "expected the name of a regular file to write";
            let expected = format!("{}: {found}; {expected}", path.display());
            assert_eq!(check_destination(path).unwrap_err().to_string(), expected);
            let replaced = replace(path, |_| unreachable!("nothing is written"));
            assert_eq!(replaced.unwrap_err().to_string(), expected);
            assert_eq!(fs::symlink_metadata(path).unwrap().file_type(), before);
        }
        assert_eq!(names(directory.path()), ["link", "pipe", "socket"]);
    }

    #[test]
    fn a_file_is_complete_whichever_thread_writes_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        let [begun, halfway, checked] = [(); 3].map(|()| std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                begun.wait();
                replace(&path, |temporary| {
                    write(temporary, "second, ha")?;
                    halfway.wait();
                    checked.wait();
                    write(temporary, "second, whole")
                })
            });
            let first = replace(&path, |temporary| {
                write(temporary, "first, whole")?;
                begun.wait();
                halfway.wait();
                Ok(())
            });
            let found = fs::read_to_string(&path);
            checked.wait();
            first.and(second.join().unwrap()).unwrap();
            assert_eq!(found.unwrap(), "first, whole");
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "second, whole");
    }
}
