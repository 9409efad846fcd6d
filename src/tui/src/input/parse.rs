//! Parses the bytes of a terminal: UTF-8, control characters, CSI and SS3 sequences, SGR mouse reports and bracketed paste. Older
//! mouse reports are ignored.

use std::time::Duration;

use crate::event::{Event, Key, Mouse, MouseAction};

/// Most bytes of an incomplete sequence; a longer one is dropped.
const MAX_SEQUENCE: usize = 64;
/// Most bytes of a paste; the rest is dropped.
const MAX_PASTE: usize = 1 << 20;
const PASTE_END: &[u8] = b"\x1b[201~";
/// The beginning of an X10 mouse report. Three bytes follow: button, column and line.
const X10: &[u8] = b"\x1b[M";
/// Bytes of a whole X10 report.
const X10_LEN: usize = X10.len() + 3;
/// How long a sequence may take to arrive. After that time, Escape alone is a key.
const PATIENCE: Duration = Duration::from_millis(40);
/// The same for an X10 report. No key begins like one, so this delays no key, and its last bytes must not be taken for keys.
const X10_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that are not a whole key yet.
#[derive(Debug, Default)]
pub(super) struct Parser {
    bytes: Vec<u8>,
    /// Text of an incomplete paste.
    paste: Option<Vec<u8>>,
}

/// What the first bytes were parsed as.
enum Found {
    /// This many bytes are an event, or something unknown.
    Whole(usize, Option<Event>),
    /// A paste begins after this many bytes.
    PasteBegins(usize),
    /// More bytes are needed.
    Partial,
}

impl Parser {
    /// Adds bytes and returns the events that they complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.bytes.extend_from_slice(bytes);
        let mut events = Vec::new();
        while !self.bytes.is_empty() {
            if self.paste.is_some() {
                match self.continue_paste() {
                    Some(event) => events.push(event),
                    None => break,
                }
                continue;
            }
            match first(&self.bytes) {
                Found::Whole(len, event) => {
                    self.bytes.drain(..len);
                    events.extend(event);
                }
                Found::PasteBegins(len) => {
                    self.bytes.drain(..len);
                    self.paste = Some(Vec::new());
                }
                Found::Partial if self.bytes.len() > MAX_SEQUENCE => self.bytes.clear(),
                Found::Partial => break,
            }
        }
        events
    }

    /// Returns how long to wait for the rest of an incomplete sequence; `None` if there is none.
    pub(super) fn patience(&self) -> Option<Duration> {
        let incomplete = !self.bytes.is_empty() && self.paste.is_none();
        let patience = if self.bytes.starts_with(X10) {
            X10_PATIENCE
        } else {
            PATIENCE
        };
        incomplete.then_some(patience)
    }

    /// Drops an incomplete sequence. A lone escape becomes a key.
    pub(super) fn give_up(&mut self) -> Option<Event> {
        let escape = self.bytes == b"\x1b";
        self.bytes.clear();
        escape.then_some(Event::Key(Key::Esc))
    }

    /// Adds pasted bytes, and returns the paste once it is complete.
    fn continue_paste(&mut self) -> Option<Event> {
        let text = self.paste.as_mut()?;
        let end = self.bytes.windows(PASTE_END.len()).position(|w| w == PASTE_END);
        // The last bytes may be the beginning of the end sequence.
        let len = end.unwrap_or(self.bytes.len().saturating_sub(PASTE_END.len() - 1));
        let room = MAX_PASTE.saturating_sub(text.len());
        text.extend(self.bytes.drain(..len).take(room));
        end?;
        self.bytes.drain(..PASTE_END.len());
        let text = self.paste.take()?;
        Some(Event::Paste(String::from_utf8_lossy(&text).into_owned()))
    }
}

fn first(bytes: &[u8]) -> Found {
    match bytes {
        [0x1b] => Found::Partial,
        _ if bytes.starts_with(X10) => x10(bytes),
        [0x1b, b'[', ..] => csi(bytes),
        [0x1b, b'O'] => Found::Partial,
        // Enter of the keypad.
        [0x1b, b'O', b'M', ..] => Found::Whole(3, Some(Event::Key(Key::Enter))),
        [0x1b, b'O', letter, ..] => Found::Whole(3, letter_key(*letter).map(Event::Key)),
        // Escape followed by another key is two keys, not Alt: no key with Alt is bound.
        [0x1b, ..] => Found::Whole(1, Some(Event::Key(Key::Esc))),
        [byte, ..] if *byte < 0x20 || *byte == 0x7f => Found::Whole(1, control(*byte).map(Event::Key)),
        _ => character(bytes),
    }
}

/// A mouse report of a terminal without SGR reports. It cannot report columns beyond 223, so it is ignored.
fn x10(bytes: &[u8]) -> Found {
    if bytes.len() < X10_LEN {
        Found::Partial
    } else {
        Found::Whole(X10_LEN, None)
    }
}

fn control(byte: u8) -> Option<Key> {
    match byte {
        b'\r' | b'\n' => Some(Key::Enter),
        b'\t' => Some(Key::Tab),
        0x7f | 0x08 => Some(Key::Backspace),
        1..=26 => Some(Key::Ctrl((b'a' + byte - 1) as char)),
        _ => None,
    }
}

fn character(bytes: &[u8]) -> Found {
    let len = match bytes[0] {
        0..0x80 => 1,
        0xc2..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf5 => 4,
        _ => return Found::Whole(1, None),
    };
    let Some(whole) = bytes.get(..len) else {
        return Found::Partial;
    };
    match std::str::from_utf8(whole) {
        Ok(text) => Found::Whole(len, text.chars().next().map(|c| Event::Key(Key::Char(c)))),
        Err(_) => Found::Whole(1, None),
    }
}

/// `ESC [ parameters final`, where the final byte is in `@` to `~`.
fn csi(bytes: &[u8]) -> Found {
    let Some(len) = bytes[2..].iter().position(|b| !(0x20..0x40).contains(b)) else {
        return Found::Partial;
    };
    let parameters = &bytes[2..2 + len];
    let end = bytes[2 + len];
    let whole = 2 + len + 1;
    if !(0x40..0x7f).contains(&end) {
        // A control character or a new sequence ends this one early.
        return Found::Whole(2 + len, None);
    }
    if end == b'~' && parameters == b"200" {
        return Found::PasteBegins(whole);
    }
    let event = match end {
        b'M' | b'm' if parameters.first() == Some(&b'<') => mouse(&parameters[1..], end == b'M').map(Event::Mouse),
        b'~' => number_key(parameters).map(Event::Key),
        b'Z' => Some(Event::Key(Key::BackTab)),
        letter => letter_key(letter).map(Event::Key),
    };
    Found::Whole(whole, event)
}

fn letter_key(letter: u8) -> Option<Key> {
    Some(match letter {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'P'..=b'S' => Key::F(letter - b'P' + 1),
        _ => return None,
    })
}

fn number_key(parameters: &[u8]) -> Option<Key> {
    Some(match numbers(parameters).next()? {
        1 | 7 => Key::Home,
        3 => Key::Delete,
        4 | 8 => Key::End,
        5 => Key::PageUp,
        6 => Key::PageDown,
        n @ 11..=15 => Key::F(n as u8 - 10),
        n @ 17..=21 => Key::F(n as u8 - 11),
        _ => return None,
    })
}

/// `button ; column ; line`, from 1. Bit 5 of the button is motion, bit 6 the wheel, bits 2 to 4 modifiers.
fn mouse(parameters: &[u8], pressed: bool) -> Option<Mouse> {
    let mut numbers = numbers(parameters);
    let (button, x, y) = (numbers.next()?, numbers.next()?, numbers.next()?);
    let action = match button & 0b1110_0011 {
        0 if pressed => MouseAction::Click,
        32 if pressed => MouseAction::Drag,
        64 => MouseAction::WheelUp,
        65 => MouseAction::WheelDown,
        _ => return None,
    };
    Some(Mouse {
        action,
        x: x.checked_sub(1)?,
        y: y.checked_sub(1)?,
    })
}

fn numbers(parameters: &[u8]) -> impl Iterator<Item = u16> {
    let text = std::str::from_utf8(parameters).unwrap_or_default();
    text.split(';').map_while(|number| number.parse().ok())
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
