//! Colours that the user chose.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Colours in place of the built-in ones; `None` keeps that. Their shades follow from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Palette {
    /// Held by the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<Rgb>,
    /// Reserved by the allocator, and not held by the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<Rgb>,
    /// Freed, and still in use by queued GPU work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Rgb>,
    /// Held by processes that do not publish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Rgb>,
    /// Held by the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<Rgb>,
    /// Free memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<Rgb>,
    /// Something to act on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<Rgb>,
    /// Something that went well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<Rgb>,
    /// Titles and keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accent: Option<Rgb>,
    /// Labels, frames, axes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dim: Option<Rgb>,
}

impl Palette {
    /// No colour is chosen.
    pub(crate) const BUILT_IN: Palette = Palette {
        allocated: None,
        cached: None,
        pending: None,
        other: None,
        driver: None,
        free: None,
        warning: None,
        good: None,
        accent: None,
        dim: None,
    };
}

/// A colour, written as `#rrggbb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rgb(pub u8, pub u8, pub u8);

impl FromStr for Rgb {
    type Err = ();

    fn from_str(text: &str) -> Result<Rgb, ()> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6).ok_or(())?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        let [_, r, g, b] = u32::from_str_radix(digits, 16).map_err(|_| ())?.to_be_bytes();
        Ok(Rgb(r, g, b))
    }
}

impl fmt::Display for Rgb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

impl<'de> Deserialize<'de> for Rgb {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = |()| D::Error::custom(format!("colour {text:?}: expected \"#rrggbb\", such as \"#5494e2\""));
        text.parse().map_err(wrong)
    }
}

impl Serialize for Rgb {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
