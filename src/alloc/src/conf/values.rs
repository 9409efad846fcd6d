//! Reading one value.

use super::error::Bad;
use super::lex::{Given, Value, Word, quote};

const MIB: u64 = 1 << 20;

impl Word {
    pub(super) fn bad(&self, reason: String) -> Bad {
        Bad {
            column: self.column,
            reason,
        }
    }

    /// It is not what an option takes.
    pub(super) fn not(&self, expected: &str) -> Bad {
        self.bad(format!("takes {expected}, not {}", quote(&self.written)))
    }

    pub(super) fn number(&self, expected: &str) -> Result<u64, Bad> {
        self.text.parse().map_err(|_| self.not(expected))
    }

    pub(super) fn boolean(&self) -> Result<bool, Bad> {
        match self.text.as_str() {
            "True" | "on" => Ok(true),
            "False" | "off" => Ok(false),
            _ => Err(self.not("True or False")),
        }
    }

    /// A finite number.
    pub(super) fn decimal(&self, expected: &str) -> Result<f64, Bad> {
        let number = self.text.parse::<f64>().ok();
        number.filter(|n| n.is_finite()).ok_or_else(|| self.not(expected))
    }

    /// One of several words.
    pub(super) fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, Bad> {
        let found = choices.iter().find(|(name, _)| *name == self.text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.not(&names.join(" or "))
        })
    }

    pub(super) fn mebibytes(&self, least: u64) -> Result<u64, Bad> {
        let mib = self.number("a whole number of MiB")?;
        if mib < least {
            return Err(self.bad(format!("must be at least {least}, not {mib}")));
        }
        mib.checked_mul(MIB)
            .ok_or_else(|| self.bad(format!("must be less than {}, not {mib}", 1u64 << 44)))
    }

    /// A fraction above 0 and below 1, or at most 1.
    pub(super) fn part(&self, whole: bool) -> Result<f64, Bad> {
        let most = if whole { "at most 1" } else { "below 1" };
        let expected = format!("a number above 0 and {most}");
        let part = self.decimal(&expected)?;
        if part > 0.0 && (part < 1.0 || whole && part == 1.0) {
            Ok(part)
        } else {
            Err(self.not(&expected))
        }
    }
}

impl Given {
    /// The value, which is no list.
    pub(super) fn word(&self) -> Result<&Word, Bad> {
        match &self.value {
            Value::Word(word) => Ok(word),
            Value::List(_) => Err(Bad {
                column: self.column,
                reason: "takes one value, not a list".to_owned(),
            }),
        }
    }

    /// MiB, as bytes, at least `least` MiB.
    pub(super) fn mebibytes(&self, least: u64) -> Result<u64, Bad> {
        self.word()?.mebibytes(least)
    }

    /// A fraction above 0 and below 1, or at most 1.
    pub(super) fn fraction(&self, whole: bool) -> Result<f64, Bad> {
        self.word()?.part(whole)
    }
}
