//! How a rank learns its place if ranks come and go: over a socket that `tch_parallel_contract::ELASTIC` describes.

use crate::prelude::*;
use serde::Serialize;
use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};

pub(crate) enum Said {
    /// It takes part, and waits for its place.
    TakesPart(UnixStream),
    /// The group of this generation has failed.
    Broken(u32),
    /// It has finished in this generation, and waits until all others have.
    Finished(u32),
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    Place {
        generation: u32,
        /// Whether a rank of the last generation is gone.
        is_loss: bool,
        variables: BTreeMap<&'static str, String>,
    },
    Leave,
}

/// Waits on a new socket for what one rank says.
pub(crate) fn listen(path: &Path, hear: impl Fn(Said) + Send + 'static) -> Result<()> {
    let listener = UnixListener::bind(path)?;
    let listen = move || {
        // One that does not take part never connects: then `stop` does.
        let Ok((stream, _)) = listener.accept() else { return };
        let Ok(outgoing) = stream.try_clone() else { return };
        hear(Said::TakesPart(outgoing));
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            match line.split_once(' ').map(|(what, generation)| (what, generation.parse::<u32>())) {
                Some(("broken", Ok(generation))) => hear(Said::Broken(generation)),
                Some(("finished", Ok(generation))) => hear(Said::Finished(generation)),
                _ => {}
            }
        }
    };
    thread::Builder::new().spawn(listen)?;
    Ok(())
}

/// Ends the wait for a rank that has ended.
pub(crate) fn stop(path: &Path) {
    // Nobody waits any more if the rank has ever connected.
    let _ = UnixStream::connect(path);
    let _ = fs::remove_file(path);
}

pub(crate) fn tell(mut stream: &UnixStream, told: &Told) {
    let line = serde_json::to_string(told).unwrap_or_default();
    // One that has just ended needs to know nothing.
    let _ = writeln!(stream, "{line}");
}
