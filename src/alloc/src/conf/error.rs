//! What is wrong with a configuration, and where.

use std::fmt;

use super::VARIABLE;
use super::lex::Word;

/// A configuration that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfError {
    /// The environment variable it is from, if it is from there.
    pub variable: Option<&'static str>,
    /// Where in the text, counted in characters from 1.
    pub column: usize,
    /// The option, where one was recognised.
    pub option: Option<&'static str>,
    /// What is wrong, and what is right.
    pub reason: String,
}

impl std::error::Error for ConfError {}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(variable) = self.variable {
            write!(f, "{variable}, ")?;
        }
        write!(f, "column {}: ", self.column)?;
        if let Some(option) = self.option {
            write!(f, "{option} ")?;
        }
        f.write_str(&self.reason)
    }
}

impl ConfError {
    pub(super) fn not_text() -> ConfError {
        let reason = "is not valid UTF-8".to_owned();
        Bad { column: 1, reason }.into_error().of_variable()
    }

    pub(super) fn of_variable(self) -> ConfError {
        ConfError {
            variable: Some(VARIABLE),
            ..self
        }
    }
}

/// The same before it is known whose value it is.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) column: usize,
    pub(super) reason: String,
}

impl Bad {
    /// The same of the value of a part of a list, which is named; what is wrong with the key itself is the list's.
    pub(super) fn within(self, key: &Word, value: &Word) -> Bad {
        match self.column == value.column {
            true => Bad {
                reason: format!("({}) {}", key.text, self.reason),
                ..self
            },
            false => self,
        }
    }

    pub(super) fn of(self, option: &'static str) -> ConfError {
        ConfError {
            option: Some(option),
            ..self.into_error()
        }
    }

    pub(super) fn into_error(self) -> ConfError {
        ConfError {
            variable: None,
            column: self.column,
            option: None,
            reason: self.reason,
        }
    }
}

/// The name that was probably meant.
pub(super) fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let given: Vec<char> = given.chars().take(64).collect();
    names
        .map(|name| (distance(&given, name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1) && *distance < given.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Characters to insert, delete or replace to get from one to the other.
fn distance(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[to.len()]
}
