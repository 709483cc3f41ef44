//! Where a rank's stdout and stderr go: to the console, to log files, and the end of stderr to memory.

mod lines;
mod logs;

use crate::{console::Console, prelude::*};
use lines::{LineSplitter, Tail};
use logs::LogFile;
pub(crate) use logs::Logs;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// After a rank has ended, how long its streams may stay silent before launch gives up on them.
const SILENCE: Duration = Duration::from_millis(500);

/// Where the two streams of one rank go. A stream that is `None` is inherited.
pub(crate) struct Routes {
    rank: Arc<AtomicU32>,
    stdout: Option<Sink>,
    stderr: Option<Sink>,
}

impl Routes {
    /// Reads the flags and opens the log files.
    pub(crate) fn new(
        args: &Args,
        logs: Option<&Logs>,
        generation: u32,
        local_rank: u16,
        rank: u32,
    ) -> Result<Self> {
        let (tee, redirects) = (args.tee(local_rank), args.redirects.of(local_rank));
        let logs = logs.filter(|_| tee.any() || redirects.any());
        let dir = logs.map(|logs| logs.rank_dir(generation, local_rank)).transpose()?;
        let filter = &args.local_ranks_filter;
        let shown = filter.is_empty() || filter.contains(&local_rank);
        let number = Arc::new(AtomicU32::new(rank));
        let to_file = |name: &str, console: Option<Console>| -> Result<Option<Sink>> {
            let log = dir.as_ref().map(|dir| LogFile::create(dir.join(name))).transpose()?;
            Ok(Some(Sink { console, prefix: Some(Arc::clone(&number)), log, tail: None }))
        };
        let stdout = match (tee.stdout, redirects.stdout) {
            (true, _) => to_file("stdout.log", shown.then_some(Console::Stdout))?,
            (false, true) => to_file("stdout.log", None)?,
            (false, false) if shown => None,
            (false, false) => Some(Sink::default()),
        };
        let mut stderr = match (tee.stderr, redirects.stderr) {
            (true, _) => to_file("stderr.log", shown.then_some(Console::Stderr))?,
            (false, true) => to_file("stderr.log", None)?,
            // A progress bar needs the terminal itself, and its output is on the screen anyway.
            (false, false) if shown && rank == 0 && std::io::stderr().is_terminal() => None,
            (false, false) => {
                Some(Sink { console: shown.then_some(Console::Stderr), ..Sink::default() })
            }
        };
        if let Some(sink) = &mut stderr {
            sink.tail = Some(Arc::default());
        }
        Ok(Routes { rank: number, stdout, stderr })
    }

    pub(crate) fn set(&self, command: &mut Command) {
        let stdio =
            |sink: &Option<Sink>| if sink.is_some() { Stdio::piped() } else { Stdio::inherit() };
        command.stdin(Stdio::null()).stdout(stdio(&self.stdout)).stderr(stdio(&self.stderr));
    }

    pub(crate) fn start(self, child: &mut Child) -> Result<Output> {
        let stderr = self.stderr.as_ref();
        let tail = stderr.and_then(|sink| sink.tail.clone());
        let stderr_log = stderr.and_then(|sink| Some(sink.log.as_ref()?.path.clone()));
        let is_shown = stderr.is_none_or(|sink| sink.console.is_some());
        let stdout = child.stdout.take().zip(self.stdout).map(|(from, to)| Pump::start(from, to));
        let stderr = child.stderr.take().zip(self.stderr).map(|(from, to)| Pump::start(from, to));
        let pumps = stdout.into_iter().chain(stderr).collect::<Result<_>>()?;
        Ok(Output { pumps, rank: self.rank, tail, is_shown, stderr_log })
    }
}

pub(crate) struct Output {
    pumps: Vec<Pump>,
    /// The number in front of lines on the console, which changes with the rank's place.
    pub(crate) rank: Arc<AtomicU32>,
    tail: Option<Arc<Mutex<Tail>>>,
    pub(crate) is_shown: bool,
    pub(crate) stderr_log: Option<PathBuf>,
}

impl Output {
    /// Waits until all output of the rank, which ended at this time, has been copied. Once the streams have had time
    /// for it, waits only for a slow console, if at all: ranks that end together have that time together.
    pub(crate) fn drain(&self, ended: Instant, waits_for_console: bool) {
        self.pumps.iter().for_each(|pump| pump.drain(ended + SILENCE, waits_for_console));
    }

    /// The last lines of stderr; `None` if the rank wrote to the terminal itself.
    pub(crate) fn last_lines(&self) -> Option<Vec<String>> {
        Some(self.tail.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).lines())
    }
}

struct Pump {
    /// Disconnected at the end of the stream.
    over: Receiver<()>,
    /// Whether the thread waits for the rank to write, rather than for the console to take it.
    idle: Arc<AtomicBool>,
}

impl Pump {
    fn start(mut source: impl Read + Send + 'static, mut sink: Sink) -> Result<Self> {
        let (running, over) = channel();
        let idle = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&idle);
        let copy = move || {
            let _running = running;
            let mut lines = LineSplitter::default();
            let mut bytes = vec![0; 64 * 1024];
            loop {
                flag.store(true, Ordering::SeqCst);
                let count = source.read(&mut bytes);
                flag.store(false, Ordering::SeqCst);
                match count {
                    Ok(0) => break,
                    Ok(count) => {
                        sink.log.iter_mut().for_each(|log| log.append(&bytes[..count]));
                        lines.push(&bytes[..count], |line| sink.show(line));
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            lines.finish(|line| sink.show(line));
        };
        thread::Builder::new().spawn(copy).context("cannot start a thread for a rank's output")?;
        Ok(Pump { over, idle })
    }

    fn drain(&self, deadline: Instant, waits_for_console: bool) {
        let mut limit = deadline.saturating_duration_since(Instant::now());
        while self.over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            // A process that has left the rank's group may keep the stream open forever.
            if !waits_for_console || self.idle.load(Ordering::SeqCst) {
                break;
            }
            limit = SILENCE;
        }
    }
}

#[derive(Default)]
struct Sink {
    console: Option<Console>,
    prefix: Option<Arc<AtomicU32>>,
    log: Option<LogFile>,
    tail: Option<Arc<Mutex<Tail>>>,
}

impl Sink {
    fn show(&self, line: &[u8]) {
        if let Some(tail) = &self.tail {
            tail.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
        if let Some(console) = self.console {
            let rank = self.prefix.as_ref().map(|rank| rank.load(Ordering::Relaxed));
            let prefix = rank.map(|rank| format!("[rank{rank}]: ")).unwrap_or_default();
            let mut text = [prefix.as_bytes(), line].concat();
            // Otherwise the next line, perhaps of another rank, would be joined to this one.
            if !line.ends_with(b"\n") && !line.ends_with(b"\r") {
                text.push(b'\n');
            }
            console.write(&text);
        }
    }
}
