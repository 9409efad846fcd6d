//! The configuration: a TOML file with defaults for the command line, and alerts.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpumem_demo::parse_duration;
use gpumem_text::clean;
use gpumem_text::units::parse_bytes;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::cli::{ColorArg, Device, parse_device, parse_interval};
use crate::model::{Alert, Column, Condition, OTHER_COLUMNS, Only, Palette};

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

/// The most bytes of a file. A path may name any file.
const MAX: u64 = 1 << 20;
/// The most alerts. Each is judged with each sample.
const ALERTS: usize = 100;
/// The longest time for a condition to hold.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The configuration as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Time between samples.
    pub interval: Interval,
    /// How many colours to use.
    pub color: ColorArg,
    /// Whether to draw with ASCII characters only.
    pub ascii: bool,
    /// The columns that the process table may have; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "columns")]
    pub columns: Vec<String>,
    /// Colours in place of the built-in ones.
    #[serde(skip_serializing_if = "is_default")]
    pub theme: Palette,
    /// The alerts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alert: Vec<AlertConfig>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Why the configuration cannot be used. The text says where, and what is allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Config {
    /// Reads the file that is named, else that of the user. Without a file it is the default.
    ///
    /// # Errors
    /// When the file cannot be read, or something in it is not understood. A file that is named has to exist.
    pub(crate) fn load(named: Option<&Path>) -> Result<Config, Wrong> {
        let Some(path) = named.map(Path::to_owned).or_else(place) else {
            return Ok(Config::default());
        };
        let shown = clean(&path.display().to_string());
        match read(&path) {
            Ok(text) => Config::parse(&text, &shown),
            Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => Ok(Config::default()),
            Err(error) => Err(Wrong(format!("cannot read the configuration {shown}: {error}"))),
        }
    }

    /// Parses the text of the file `name`.
    fn parse(text: &str, name: &str) -> Result<Config, Wrong> {
        let config: Config = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            // It may quote the file.
            let why: Vec<String> = error.message().lines().map(clean).collect();
            Wrong(format!("{name}:{line}: {}", why.join(", ")))
        })?;
        match config.alert.len() > ALERTS {
            true => Err(Wrong(format!("{name}: at most {ALERTS} alerts are allowed"))),
            false => Ok(config),
        }
    }

    /// Returns the alerts.
    pub(crate) fn alerts(&self) -> Vec<Alert> {
        self.alert.iter().map(|alert| alert.0.clone()).collect()
    }

    /// Formats it as TOML.
    ///
    /// # Errors
    /// When it cannot be written as TOML, which is a bug.
    pub(crate) fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// Returns the place of the user's file (XDG Base Directory Specification). A path that is not absolute is ignored there.
fn place() -> Option<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let configurations = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(configurations.join("gpumem").join("config.toml"))
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let file = std::fs::File::open(path)?;
    let mut text = String::new();
    file.take(MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX {
        true => Err(ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

/// Reads names of columns.
fn columns<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let sorted = Column::ALL.into_iter().map(Column::name);
    let known: Vec<String> = sorted.chain(OTHER_COLUMNS.map(str::to_owned)).collect();
    match names.iter().find(|name| !known.contains(name)) {
        Some(name) => Err(D::Error::custom(format!(
            "column {name:?}: expected one of {}",
            known.join(", ")
        ))),
        None => Ok(names),
    }
}

/// A time between samples, as `--interval` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub Duration);

impl Default for Interval {
    fn default() -> Self {
        Interval(Duration::from_secs(1))
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let time = parse_interval(&text)
            .map_err(|why| D::Error::custom(format!("interval {text:?}: {why}, such as \"500ms\"")))?;
        Ok(Interval(time))
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&time_text(self.0))
    }
}

/// Formats a time so that it is read as the same one, to the millisecond.
fn time_text(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

/// An alert as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AlertConfig(Alert);

/// The fields of `[[alert]]`.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_below: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_memory: Option<bool>,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    hold: Option<String>,
    bell: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
}

/// `"all"`, an index as a number or a text, or a UUID.
#[derive(Serialize)]
#[serde(transparent)]
struct DeviceName(String);

impl<'de> Deserialize<'de> for DeviceName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = DeviceName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\", an index such as 0 or \"0:1\", or a UUID such as \"GPU-6f5ae4c5\"")
            }
            fn visit_str<E>(self, text: &str) -> Result<DeviceName, E> {
                Ok(DeviceName(text.to_owned()))
            }
            fn visit_i64<E>(self, index: i64) -> Result<DeviceName, E> {
                Ok(DeviceName(index.to_string()))
            }
        }
        from.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for AlertConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(from)?;
        check(fields).map(AlertConfig).map_err(D::Error::custom)
    }
}

/// Checks the fields of an alert.
fn check(fields: Fields) -> Result<Alert, String> {
    let device = match fields.device {
        None => None,
        Some(DeviceName(name)) if name == "all" => None,
        Some(DeviceName(name)) => match parse_device(&name) {
            Ok(Device::Only(only)) if only != Only::Simulated => Some(only),
            _ => {
                return Err(format!(
                    "device {name:?}: use \"all\", an index such as 0 or \"0:1\", or a UUID such as \"GPU-6f5ae4c5\""
                ));
            }
        },
    };
    let condition = match (fields.used_percent, fields.free_below, fields.out_of_memory) {
        (Some(percent), None, None) if percent > 0.0 && percent < 100.0 => Condition::UsedPercent(percent),
        (Some(percent), None, None) => {
            return Err(format!("used_percent {percent}: use a number above 0 and below 100"));
        }
        (None, Some(size), None) => match parse_bytes(&size) {
            Ok(0) => return Err("free_below: less than 0 bytes is never free".to_owned()),
            Ok(bytes) => Condition::FreeBelow(bytes),
            Err(why) => return Err(format!("free_below: {why}")),
        },
        (None, None, Some(true)) => Condition::OutOfMemory,
        _ => {
            return Err(
                "an alert needs exactly one of used_percent = 90, free_below = \"2GiB\" and out_of_memory = true"
                    .to_owned(),
            );
        }
    };
    let hold = match fields.hold {
        None => Duration::ZERO,
        Some(text) => parse_duration(&text)
            .ok()
            .filter(|hold| *hold <= DAY)
            .ok_or_else(|| format!("for {text:?}: use a time from 0s to 24h, such as \"30s\""))?,
    };
    if fields.command.first().is_some_and(String::is_empty) {
        return Err("command: use a program and its arguments, such as [\"notify-send\", \"GPU memory\"]".to_owned());
    }
    Ok(Alert {
        device,
        condition,
        hold: hold.as_nanos() as u64,
        bell: fields.bell,
        command: fields.command,
    })
}

impl Serialize for AlertConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let alert = &self.0;
        let mut fields = Fields {
            device: Some(DeviceName(
                alert.device.as_ref().map_or("all".to_owned(), Only::to_string),
            )),
            hold: Some(time_text(Duration::from_nanos(alert.hold))),
            bell: alert.bell,
            command: alert.command.clone(),
            ..Fields::default()
        };
        match alert.condition {
            Condition::UsedPercent(percent) => fields.used_percent = Some(percent),
            Condition::FreeBelow(bytes) => fields.free_below = Some(bytes.to_string()),
            Condition::OutOfMemory => fields.out_of_memory = Some(true),
        }
        fields.serialize(to)
    }
}
