//! Lines of a child, with a bound on their length.

use gpumem_demo::protocol::MAX_LINE;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Splits a stream into lines of at most [`MAX_LINE`] bytes.
pub(super) struct Lines<R> {
    from: R,
    bytes: Vec<u8>,
    /// Bytes of `bytes` that hold no line end.
    searched: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R) -> Lines<R> {
        Lines {
            from,
            bytes: Vec::new(),
            searched: 0,
        }
    }

    /// The next line without its end, `None` at the end of the stream, an error for one that is too long (and the
    /// stream is over then: where the next line begins is not known).
    pub(super) async fn next(&mut self) -> Option<Result<String, String>> {
        loop {
            if let Some(end) = self.bytes[self.searched..].iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=self.searched + end).collect();
                self.searched = 0;
                return Some(Ok(String::from_utf8_lossy(&line[..line.len() - 1]).into_owned()));
            }
            self.searched = self.bytes.len();
            if self.searched > MAX_LINE {
                self.bytes.clear();
                self.searched = 0;
                return Some(Err(format!("it wrote a line of more than {MAX_LINE} bytes")));
            }
            let mut chunk = [0; 4096];
            match self.from.read(&mut chunk).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.bytes.extend_from_slice(&chunk[..n]),
            }
        }
    }
}

/// Reads to the end; the last line, cleaned and cut to `limit` characters.
pub(super) async fn tail(mut from: impl AsyncRead + Unpin, limit: usize) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..n]);
        let surplus = kept.len().saturating_sub(8 * limit);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept);
    let last = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    gpumem_channel::clean(last.trim()).chars().take(limit).collect()
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
            assert_eq!(
                all,
                ["one", "two", ""],
                "a line without an end was cut off and is not one"
            );
            let endless = vec![b'x'; 3 * MAX_LINE];
            assert!(Lines::new(&endless[..]).next().await.unwrap().is_err());
        });
    }

    #[test]
    fn the_last_complaint_is_kept_and_cleaned() {
        let text = run(tail(&b"first\nlast \x1b[31mword\n\n"[..], 100));
        assert_eq!(text, "last \u{fffd}[31mword");
    }
}
