//! What the terminal supports, as far as the environment says. Querying the terminal would cost a round trip before the first
//! frame.

use crate::model::Colors;

/// The environment variables that are used, read once at start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// `NO_COLOR`.
    pub no_color: Option<String>,
    /// `COLORTERM`.
    pub colorterm: Option<String>,
    /// `TERM`.
    pub term: Option<String>,
    /// The first of `LC_ALL`, `LC_CTYPE`, `LANG` that is set and not empty.
    pub locale: Option<String>,
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn read() -> Environment {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        Environment {
            no_color: var("NO_COLOR"),
            colorterm: var("COLORTERM"),
            term: var("TERM"),
            locale: var("LC_ALL").or_else(|| var("LC_CTYPE")).or_else(|| var("LANG")),
        }
    }
}

/// Returns how many colours to use.
pub(crate) fn colors(env: &Environment) -> Colors {
    let term = env.term.as_deref().unwrap_or("dumb");
    let knows = |names: &[&str]| names.iter().any(|name| term.contains(name));
    if env.no_color.is_some() || term == "dumb" {
        return Colors::Mono;
    }
    if matches!(env.colorterm.as_deref(), Some("truecolor" | "24bit")) || knows(&["direct", "kitty", "ghostty"]) {
        return Colors::True;
    }
    if knows(&["256color", "alacritty", "wezterm", "foot"]) {
        Colors::Ansi256
    } else {
        Colors::Ansi16
    }
}

/// Checks whether the terminal is UTF-8. It is assumed to be one if no locale is set.
pub(crate) fn utf8(env: &Environment) -> bool {
    let names_utf8 = |locale: &String| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    };
    env.locale.as_ref().is_none_or(names_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(no_color: &str, colorterm: &str, term: &str) -> Environment {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Environment {
            no_color: some(no_color),
            colorterm: some(colorterm),
            term: some(term),
            locale: None,
        }
    }

    #[test]
    fn colours_follow_the_environment() {
        let cases = [
            ("", "truecolor", "xterm-256color", Colors::True),
            ("", "24bit", "screen", Colors::True),
            ("", "", "xterm-direct", Colors::True),
            ("", "", "tmux-256color", Colors::Ansi256),
            ("", "yes", "xterm", Colors::Ansi16),
            ("", "", "linux", Colors::Ansi16),
            ("", "truecolor", "dumb", Colors::Mono),
            ("", "truecolor", "", Colors::Mono),
            ("1", "truecolor", "xterm-256color", Colors::Mono),
        ];
        for (no_color, colorterm, term, expected) in cases {
            assert_eq!(
                colors(&env(no_color, colorterm, term)),
                expected,
                "{no_color:?} {colorterm:?} {term:?}"
            );
        }
    }

    #[test]
    fn only_another_locale_turns_utf8_off() {
        let locale = |text: &str| Environment {
            locale: Some(text.into()),
            ..Environment::default()
        };
        for (text, expected) in [
            ("en_US.UTF-8", true),
            ("C.utf8", true),
            ("C", false),
            ("de_DE.ISO-8859-1", false),
        ] {
            assert_eq!(utf8(&locale(text)), expected, "{text}");
        }
        assert!(utf8(&Environment::default()));
    }
}
