//! A mutant: a base and the changes made to it, written as one line of text from which it can be made again.
//!
//! ```text
//! heap: stats 0 9 = 18446744073709551615; lanes 1 20 = 7
//! ```
//!
//! | step | what it does |
//! |---|---|
//! | `SECTION RECORD WORD = VALUE` | sets a word of a section's record |
//! | `file WORD = VALUE` | sets a word of the file |
//! | `bit N` | flips a bit of the file |
//! | `copy FROM TO WORDS` | copies words over others |
//! | `from BASE WORD WORDS` | takes words from another base, at the same place |
//! | `cut BYTES`, `grow BYTES` | shortens the file to that many bytes, appends that many zeros |

use std::fmt;
use std::str::FromStr;

use super::bases::Base;
use super::words::{SECTIONS, section, set_word, word};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Set {
        section: &'static str,
        record: usize,
        word: usize,
        value: u64,
    },
    File {
        word: usize,
        value: u64,
    },
    Bit(usize),
    Copy {
        from: usize,
        to: usize,
        words: usize,
    },
    From {
        base: String,
        word: usize,
        words: usize,
    },
    Cut(usize),
    Grow(usize),
}

/// A base and its changes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) base: String,
    pub(crate) steps: Vec<Step>,
}

impl Mutant {
    /// Returns its base.
    pub(crate) fn base<'a>(&self, bases: &'a [Base]) -> &'a Base {
        find(bases, &self.base)
    }

    /// Applies the changes to `bytes`, which are those of its base.
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>, bases: &[Base]) {
        for step in &self.steps {
            step.apply(bytes, bases);
        }
    }
}

fn find<'a>(bases: &'a [Base], name: &str) -> &'a Base {
    let base = bases.iter().find(|base| base.name == name);
    base.unwrap_or_else(|| panic!("there is no base {name:?}"))
}

impl Step {
    fn apply(&self, bytes: &mut Vec<u8>, bases: &[Base]) {
        match self {
            Step::Set {
                section: name,
                record,
                word,
                value,
            } => {
                if let Some(section) = section(bytes, name) {
                    set_word(bytes, section.record(*record) + word, *value);
                }
            }
            Step::File { word, value } => set_word(bytes, *word, *value),
            Step::Bit(bit) => {
                if let Some(byte) = bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Step::Copy { from, to, words } => {
                let copy: Vec<u64> = (0..*words).map(|n| word(bytes, from + n)).collect();
                for (n, value) in copy.into_iter().enumerate() {
                    set_word(bytes, to + n, value);
                }
            }
            Step::From { base, word: at, words } => {
                let other = &find(bases, base).bytes;
                for n in *at..at + words {
                    set_word(bytes, n, word(other, n));
                }
            }
            Step::Cut(length) => bytes.truncate(*length),
            Step::Grow(by) => bytes.resize(bytes.len() + by, 0),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Set {
                section,
                record,
                word,
                value,
            } => write!(f, "{section} {record} {word} = {value}"),
            Step::File { word, value } => write!(f, "file {word} = {value}"),
            Step::Bit(bit) => write!(f, "bit {bit}"),
            Step::Copy { from, to, words } => write!(f, "copy {from} {to} {words}"),
            Step::From { base, word, words } => write!(f, "from {base} {word} {words}"),
            Step::Cut(length) => write!(f, "cut {length}"),
            Step::Grow(by) => write!(f, "grow {by}"),
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        write!(f, "{}: {}", self.base, steps.join("; "))
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
        let place = |text: &str| number(text).map(|n| n as usize);
        Ok(match parts.as_slice() {
            ["file", word, "=", value] => Step::File {
                word: place(word)?,
                value: number(value)?,
            },
            ["bit", bit] => Step::Bit(place(bit)?),
            ["copy", from, to, words] => Step::Copy {
                from: place(from)?,
                to: place(to)?,
                words: place(words)?,
            },
            ["from", base, word, words] => Step::From {
                base: (*base).to_owned(),
                word: place(word)?,
                words: place(words)?,
            },
            ["cut", length] => Step::Cut(place(length)?),
            ["grow", by] => Step::Grow(place(by)?),
            [name, record, word, "=", value] => Step::Set {
                section: SECTIONS
                    .iter()
                    .find(|(_, known)| known == name)
                    .map(|(_, known)| *known)
                    .ok_or_else(|| format!("there is no section {name:?}"))?,
                record: place(record)?,
                word: place(word)?,
                value: number(value)?,
            },
            _ => return Err(format!("{text:?} is no step")),
        })
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(line: &str) -> Result<Mutant, String> {
        let (base, steps) = line.split_once(':').ok_or_else(|| format!("{line:?} names no base"))?;
        let steps = steps.split(';').map(str::trim).filter(|step| !step.is_empty());
        Ok(Mutant {
            base: base.trim().to_owned(),
            steps: steps.map(Step::from_str).collect::<Result<_, _>>()?,
        })
    }
}
