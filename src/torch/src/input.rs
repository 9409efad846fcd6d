//! Reads messages from the PyTorch process.

use std::io::{self, BufRead, Read};

use crate::message::Message;

/// Longest line in bytes.
const MAX_LINE: u64 = 1 << 20;
/// Largest map in bytes: a million blocks take 250 MiB.
const MAX_MAP: u64 = 512 << 20;

/// A message with what follows it.
#[derive(Debug)]
pub(crate) enum Input {
    /// A message.
    Message(Message),
    /// The pickle of a map, and why it lacks a history.
    Map(Vec<u8>, String),
}

/// Reads the next message; `None` at the end of input. A message of an unknown kind is skipped.
///
/// # Errors
/// If reading fails, or the input is not understood: nothing after it would be.
pub(crate) fn next(input: &mut dyn BufRead) -> io::Result<Option<Input>> {
    loop {
        let mut line = Vec::new();
        let read = input.take(MAX_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(invalid("a line is too long, or was cut off"));
        }
        match serde_json::from_slice(&line) {
            Ok(Message::Map { bytes, events_skipped }) if bytes <= MAX_MAP => {
                let mut map = Vec::new();
                // What is not there takes no memory, whatever the message says.
                let read = input.take(bytes).read_to_end(&mut map)?;
                return match read as u64 == bytes {
                    true => Ok(Some(Input::Map(map, events_skipped))),
                    false => Ok(None),
                };
            }
            Ok(Message::Map { .. }) => return Err(invalid("a map is too large")),
            Ok(message) => return Ok(Some(Input::Message(message))),
            // Newer versions may have more kinds. None of these is followed by bytes.
            Err(error) if error.is_data() => {}
            Err(_) => return Err(invalid("a line is no JSON")),
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all(text: &[u8]) -> (Vec<String>, Option<io::ErrorKind>) {
        let mut input = text;
        let mut found = Vec::new();
        loop {
            match next(&mut input) {
                Ok(None) => return (found, None),
                Err(error) => return (found, Some(error.kind())),
                Ok(Some(Input::Map(map, _))) => found.push(format!("map of {}", map.len())),
                Ok(Some(Input::Message(message))) => found.push(format!("{message:?}")),
            }
        }
    }

    #[test]
    fn maps_are_followed_by_their_bytes() {
        let (found, error) = all(b"{\"type\":\"map\",\"bytes\":3}\n\n\n\n{\"type\":\"bye\"}\n");
        assert_eq!(found, ["map of 3", "Bye"]);
        assert_eq!(error, None);
        // The program was killed in the middle of it.
        assert_eq!(all(b"{\"type\":\"map\",\"bytes\":3}\nxx").0, Vec::<String>::new());
        let huge = format!("{{\"type\":\"map\",\"bytes\":{}}}\nx", u64::MAX);
        assert_eq!(all(huge.as_bytes()).1, Some(io::ErrorKind::InvalidData));
    }

    #[test]
    fn unknown_messages_are_skipped_and_garbage_ends() {
        let (found, error) = all(b"{\"type\":\"later\"}\n{\"type\":\"bye\"}\nnonsense\n{\"type\":\"bye\"}\n");
        assert_eq!(found, ["Bye"]);
        assert_eq!(error, Some(io::ErrorKind::InvalidData));
        let long = vec![b' '; (MAX_LINE + 1) as usize];
        assert_eq!(all(&long).1, Some(io::ErrorKind::InvalidData));
    }
}
