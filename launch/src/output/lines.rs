//! Splits a stream of bytes into lines, and remembers the last of them.

use std::collections::VecDeque;

/// Longer lines are cut, so that a program that never ends a line cannot fill the memory.
const MAX_LINE: usize = 1 << 20;

/// How many lines the report of a failed rank shows.
const REMEMBERED: usize = 20;

/// Splits a stream into lines. A carriage return ends a line too: progress bars write nothing else.
#[derive(Default)]
pub(crate) struct LineSplitter {
    pending: Vec<u8>,
}

impl LineSplitter {
    /// Takes the next bytes and calls `each` with every line that they complete, line ending included.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        self.pending.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = line_length(&self.pending[start..]) {
            each(&self.pending[start..start + length]);
            start += length;
        }
        self.pending.drain(..start);
    }

    /// Ends the stream: what is left is the last line, without a line ending.
    pub(crate) fn finish(self, each: impl FnOnce(&[u8])) {
        if !self.pending.is_empty() {
            each(&self.pending);
        }
    }
}

fn line_length(bytes: &[u8]) -> Option<usize> {
    match bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        Some(at) if bytes[at] == b'\n' => Some(at + 1),
        // Only the next byte tells whether this is a progress bar's return or the start of "\r\n".
        Some(at) => bytes.get(at + 1).map(|next| if *next == b'\n' { at + 2 } else { at + 1 }),
        None => (bytes.len() >= MAX_LINE).then_some(MAX_LINE),
    }
}

#[derive(Default)]
pub(crate) struct Tail {
    lines: VecDeque<Vec<u8>>,
}

impl Tail {
    pub(crate) fn push(&mut self, line: &[u8]) {
        // A progress bar overwrites its last state, as on a terminal.
        if self.lines.back().is_some_and(|last| last.ends_with(b"\r")) {
            self.lines.pop_back();
        }
        self.lines.push_back(line.to_vec());
        if self.lines.len() > REMEMBERED {
            self.lines.pop_front();
        }
    }

    /// The lines, oldest first, without line endings.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().map(|line| String::from_utf8_lossy(line).trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        pieces.iter().for_each(|piece| splitter.push(piece, |line| lines.push(line.to_vec())));
        splitter.finish(|line| lines.push(line.to_vec()));
        lines
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_arrive() {
        let text = b"one\n\ntwo\r\n10%\r20%\rlast \xff";
        let expected: [&[u8]; 6] = [b"one\n", b"\n", b"two\r\n", b"10%\r", b"20%\r", b"last \xff"];
        assert_eq!(split(&[text]), expected);
        assert_eq!(split(&text.chunks(1).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let lengths: Vec<usize> = split(&[&[b'x'; MAX_LINE], b"yy"]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [MAX_LINE, 2]);
    }

    #[test]
    fn the_tail_keeps_the_last_lines_and_one_state_of_a_bar() {
        let mut tail = Tail::default();
        (0..30).for_each(|number| tail.push(format!("line {number}\n").as_bytes()));
        tail.push(b"10%\r");
        tail.push(b"20%\r");
        tail.push(b"failed: \xff\n");
        let lines = tail.lines();
        assert_eq!(lines.len(), REMEMBERED);
        assert_eq!(lines.first().unwrap(), "line 11");
        assert_eq!(lines.last().unwrap(), "failed: \u{fffd}");
    }
}
