//! Reads the lines of a child, with a limit on their length.

use gpumem_demo::protocol::MAX_LINE;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::mpsc;

use super::translate;
use crate::event::DemoEvent;

/// Splits a stream into lines of at most [`MAX_LINE`] bytes.
pub(super) struct Lines<R>(BufReader<R>);

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R) -> Lines<R> {
        Lines(BufReader::new(from))
    }

    /// Returns the next line without its newline, `None` at the end of the stream, or an error for a line that is too long. Nothing can
    /// be read after an error, since it is not known where the next line begins.
    pub(super) async fn next(&mut self) -> Option<Result<String, String>> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.0).take(MAX_LINE as u64 + 1);
        bounded.read_until(b'\n', &mut line).await.ok()?;
        match line.pop() {
            Some(b'\n') => Some(Ok(String::from_utf8_lossy(&line).into_owned())),
            Some(_) if line.len() == MAX_LINE => Some(Err(format!("it wrote a line of more than {MAX_LINE} bytes"))),
            _ => None,
        }
    }
}

/// Reads stderr to its end and returns the last line, cleaned and cut to `limit` characters. Lines that are events are sent at once.
pub(super) async fn tail(mut from: impl AsyncRead + Unpin, limit: usize, sender: mpsc::Sender<DemoEvent>) -> String {
    let (mut line, mut last) = (Vec::new(), String::new());
    let mut chunk = [0; 1024];
    loop {
        let n = from.read(&mut chunk).await.unwrap_or(0);
        // The last line may lack its newline.
        let read = match n {
            0 => &b"\n"[..],
            n => &chunk[..n],
        };
        for &byte in read {
            if byte != b'\n' {
                if line.len() < 4 * limit {
                    line.push(byte);
                }
                continue;
            }
            let text = gpumem_text::clean(String::from_utf8_lossy(&std::mem::take(&mut line)).trim());
            if text.is_empty() {
                continue;
            }
            last = text.chars().take(limit).collect();
            if let Some(event) = translate::complaint(&last) {
                // If the receiver is gone, the pipe is still read to its end.
                let _ = sender.send(event).await;
            }
        }
        if n == 0 {
            return last;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn splits_lines_and_refuses_endless_ones() {
        run(async {
            let mut lines = Lines::new(&b"one\ntwo\n\nrest"[..]);
            let mut all = Vec::new();
            while let Some(Ok(line)) = lines.next().await {
                all.push(line);
            }
            assert_eq!(all, ["one", "two", ""], "a line without a newline is incomplete");
            let endless = vec![b'x'; 3 * MAX_LINE];
            assert!(Lines::new(&endless[..]).next().await.unwrap().is_err());
        });
    }

    #[test]
    fn last_complaint_is_kept_and_cleaned() {
        let (sender, mut events) = mpsc::channel(4);
        let stderr = b"first\ngpumem: not publishing: no\x1b room\nlast \x1b[31mword\n\n";
        let text = run(tail(&stderr[..], 100, sender.clone()));
        assert_eq!(text, "last \u{fffd}[31mword");
        assert_eq!(events.try_recv(), Ok(DemoEvent::Unpublished("no\u{fffd} room".into())));
        assert!(events.try_recv().is_err(), "the others are reported when it has ended");
        assert_eq!(run(tail(&b"one\ncut short"[..], 5, sender)), "cut s");
    }
}
