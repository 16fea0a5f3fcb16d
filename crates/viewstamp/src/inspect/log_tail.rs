//! The newest lines of the log, kept in memory for diagnostic archives.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use tracing_subscriber::fmt::MakeWriter;

/// Bytes kept: some ten thousand lines.
const SIZE_MAX: usize = 1 << 20;

/// The end of the log; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogTail(Arc<Mutex<VecDeque<u8>>>);

impl LogTail {
    /// What is kept, from the first whole line on.
    pub(crate) fn text(&self) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text: Vec<u8> = kept.iter().copied().collect();
        if text.len() == SIZE_MAX
            && let Some(end) = text.iter().position(|&byte| byte == b'\n')
        {
            text.drain(..=end);
        }
        text
    }
}

impl Write for LogTail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(SIZE_MAX);
        kept.drain(..excess);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogTail {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_lines_are_kept() {
        let mut tail = LogTail::default();
        tail.write_all(b"first\n").unwrap();
        assert_eq!(tail.text(), b"first\n");
        let line = [b"x".repeat(999), b"\n".to_vec()].concat();
        for _ in 0..2_000 {
            tail.write_all(&line).unwrap();
        }
        let text = tail.text();
        assert!(text.len() <= SIZE_MAX && text.len() > SIZE_MAX - 1_000);
        assert!(text.chunks(1_000).all(|chunk| chunk == line));
    }
}
