#![allow(clippy::unwrap_used)]

use super::*;
use crate::model::Rgb;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "x.toml").map_err(|wrong| wrong.to_string())
}

const FULL: &str = r##"
interval = "500ms"
color = "256"
ascii = true
columns = ["user", "reserved", "command-line"]

[theme]
allocated = "#00FF00"
dim = "#808080"

[[alert]]
device = "all"
used_percent = 90
for = "30s"
bell = true
command = ["notify-send", "two words"]

[[alert]]
device = 1
free_below = "2GiB"

[[alert]]
device = "GPU-6f5ae4c5"
out_of_memory = true
"##;

#[test]
fn every_field_is_read() {
    let config = parse(FULL).unwrap();
    assert_eq!(config.interval.0, Duration::from_millis(500));
    assert_eq!((config.color, config.ascii), (ColorArg::Ansi256, true));
    assert_eq!(config.columns, ["user", "reserved", "command-line"]);
    assert_eq!(config.theme.allocated, Some(Rgb(0, 255, 0)));
    assert_eq!(
        (config.theme.dim, config.theme.cached),
        (Some(Rgb(128, 128, 128)), None)
    );
    let [first, second, third] = &config.alerts()[..] else {
        unreachable!("three alerts")
    };
    assert_eq!(
        *first,
        Alert {
            device: None,
            condition: Condition::UsedPercent(90.0),
            hold: 30_000_000_000,
            bell: true,
            command: vec!["notify-send".into(), "two words".into()],
        }
    );
    assert_eq!(
        (&second.device, second.condition),
        (&Some(Only::Index(1)), Condition::FreeBelow(2 << 30))
    );
    assert_eq!((second.hold, second.bell, second.command.len()), (0, false, 0));
    assert_eq!(third.device, Some(Only::Uuid("GPU-6f5ae4c5".into())));
    assert_eq!(third.condition, Condition::OutOfMemory);
    assert_eq!(parse("").unwrap(), Config::default());
}

/// `--print-config > config.toml` changes nothing.
#[test]
fn printed_configuration_is_read_as_the_same() {
    for text in [
        FULL,
        "",
        "interval = \"1.5s\"\n[[alert]]\nused_percent = 99.5\ndevice = \"0:1\"\nfor = \"1500ms\"",
    ] {
        let config = parse(text).unwrap();
        let printed = config.to_toml().unwrap();
        assert_eq!(parse(&printed).unwrap(), config, "{printed}");
    }
}

#[test]
fn errors_name_the_line_and_what_is_allowed() {
    for (text, line, expected) in [
        (
            "\n\nintervall = \"1s\"",
            3,
            "unknown field `intervall`, expected one of `interval`, `color`, `ascii`, `columns`, `theme`, `alert`",
        ),
        ("interval = \"1ms\"", 1, "must be from 50ms to 1h"),
        ("ascii = true\ninterval = 1", 2, "string"),
        (
            "color = \"pink\"",
            1,
            "expected one of `auto`, `true`, `256`, `16`, `mono`",
        ),
        ("ascii = \"yes\"", 1, "boolean"),
        (
            "columns = [\"user\", \"size\"]",
            1,
            "column \"size\": expected one of pid, user, command",
        ),
        ("[theme]\nfree = \"grey\"", 2, "expected \"#rrggbb\""),
        ("[theme]\nfree = \"#12345\"", 2, "expected \"#rrggbb\""),
        ("[theme]\nfree = \"#+12345\"", 2, "expected \"#rrggbb\""),
        ("[theme]\nfree = \"#äöü\"", 2, "expected \"#rrggbb\""),
        (
            "[theme]\nused = \"#123456\"",
            2,
            "unknown field `used`, expected one of `allocated`",
        ),
        ("ascii = ", 1, ""),
        (
            "[[alert]]\nused_percent = 90\nsound = true",
            3,
            "unknown field `sound`, expected one of `device`",
        ),
        (
            "ascii = true\n[[alert]]\nbell = true",
            2,
            "exactly one of used_percent = 90, free_below",
        ),
        ("[[alert]]\nused_percent = 90\nfree_below = \"1G\"", 1, "exactly one of"),
        ("[[alert]]\nout_of_memory = false", 1, "exactly one of"),
        ("[[alert]]\nused_percent = 100", 1, "above 0 and below 100"),
        ("[[alert]]\nused_percent = nan", 1, "above 0 and below 100"),
        ("[[alert]]\nfree_below = \"lots\"", 1, "write 512MiB, 2GiB"),
        ("[[alert]]\nfree_below = \"0\"", 1, "never free"),
        ("[[alert]]\nused_percent = 90\nfor = \"25h\"", 1, "from 0s to 24h"),
        ("[[alert]]\nused_percent = 90\nfor = 30", 3, "string"),
        (
            "[[alert]]\nused_percent = 90\ndevice = \"sim\"",
            1,
            "\"all\", an index such as 0",
        ),
        (
            "[[alert]]\nused_percent = 90\ndevice = -1",
            1,
            "\"all\", an index such as 0",
        ),
        (
            "[[alert]]\nused_percent = 90\ndevice = true",
            3,
            "\"all\", an index such as 0",
        ),
        ("[[alert]]\nused_percent = 90\ncommand = \"notify\"", 3, "sequence"),
        (
            "[[alert]]\nused_percent = 90\ncommand = [\"\"]",
            1,
            "a program and its arguments",
        ),
        ("\"\\u001b[2J\" = 1", 1, "unknown field"),
    ] {
        let why = parse(text).unwrap_err();
        assert!(why.starts_with(&format!("x.toml:{line}: ")), "{text:?}: {why}");
        assert!(why.contains(expected), "{text:?}: {why}");
        assert!(!why.contains('\n') && !why.contains('\u{1b}'), "{text:?}: {why:?}");
    }
}

#[test]
fn file_that_is_named_has_to_exist() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let load = || Config::load(Some(&file)).map_err(|wrong| wrong.to_string());
    assert!(load().unwrap_err().contains("No such file"));
    std::fs::write(&file, "ascii = true").unwrap();
    assert!(load().unwrap().ascii);
    std::fs::write(&file, " ".repeat(2 << 20)).unwrap();
    assert!(load().unwrap_err().contains("large"));
    let all = "[[alert]]\nused_percent = 90\n";
    assert!(parse(&all.repeat(ALERTS)).is_ok());
    assert!(parse(&all.repeat(ALERTS + 1)).unwrap_err().contains("at most 100"));
}
