//! Bytes of a terminal to keys: UTF-8, control characters, CSI and SS3 sequences, SGR mouse, bracketed paste. Older
//! mouse reports are passed over.

use std::time::Duration;

use crate::event::{Event, Key, Mouse, MouseAction};

/// Longest sequence that is waited for; what is longer is no key.
const MAX_SEQUENCE: usize = 64;
/// Longest paste that is kept; the rest of it is dropped.
const MAX_PASTE: usize = 4096;
const PASTE_END: &[u8] = b"\x1b[201~";
/// How an X10 mouse report begins; three bytes follow, for the button, the column and the line.
const X10: &[u8] = b"\x1b[M";
/// How many bytes it has.
const X10_LEN: usize = X10.len() + 3;
/// How long a sequence may take to arrive in full. Escape alone is known to be a key only after that time.
const PATIENCE: Duration = Duration::from_millis(40);
/// The same for an X10 report. No key begins like one, so nobody waits for this; and its last bytes look like keys.
const X10_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that are not a whole key yet.
#[derive(Debug, Default)]
pub(super) struct Parser {
    bytes: Vec<u8>,
    /// Text of a paste under way.
    paste: Option<Vec<u8>>,
}

/// What the first bytes are.
enum Found {
    /// So many bytes are this (or nothing we know).
    Whole(usize, Option<Event>),
    /// A paste begins after so many bytes.
    PasteBegins(usize),
    /// More bytes are needed.
    Partial,
}

impl Parser {
    /// Takes bytes; the events they complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.bytes.extend_from_slice(bytes);
        let mut events = Vec::new();
        while !self.bytes.is_empty() {
            if self.paste.is_some() {
                match self.paste_on() {
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

    /// How long the rest of a sequence that has begun is waited for; `None` where none has.
    pub(super) fn patience(&self) -> Option<Duration> {
        let incomplete = !self.bytes.is_empty() && self.paste.is_none();
        let patience = if self.bytes.starts_with(X10) {
            X10_PATIENCE
        } else {
            PATIENCE
        };
        incomplete.then_some(patience)
    }

    /// No more bytes came in time: a lone escape is the key, anything else is dropped.
    pub(super) fn give_up(&mut self) -> Option<Event> {
        let escape = self.bytes == b"\x1b";
        self.bytes.clear();
        escape.then_some(Event::Key(Key::Esc))
    }

    /// Takes pasted bytes; the paste, once it ends.
    fn paste_on(&mut self) -> Option<Event> {
        let text = self.paste.as_mut()?;
        let end = self.bytes.windows(PASTE_END.len()).position(|w| w == PASTE_END);
        // Without the end in sight, its first bytes may be the last ones here.
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
        // The keypad's.
        [0x1b, b'O', b'M', ..] => Found::Whole(3, Some(Event::Key(Key::Enter))),
        [0x1b, b'O', letter, ..] => Found::Whole(3, letter_key(*letter).map(Event::Key)),
        // Escape and another key at once: two keys, not Alt, which nothing here is bound to.
        [0x1b, ..] => Found::Whole(1, Some(Event::Key(Key::Esc))),
        [byte, ..] if *byte < 0x20 || *byte == 0x7f => Found::Whole(1, control(*byte).map(Event::Key)),
        _ => character(bytes),
    }
}

/// The mouse as a terminal tells of it that does not know SGR reports: past column 223 it cannot say where.
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
        // A new sequence or a control character cuts this one off.
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
