//! Replaces what is private in a text by placeholders, the same text always by the same one.
//!
//! What is known to be private is learned first, wherever it was found, and is then replaced in every text. Paths below home directories and
//! values of environment variables are also recognised by their form.

use std::collections::BTreeMap;

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A user's name.
    User,
    /// A machine's name.
    Host,
    /// A job's name.
    Job,
    /// The name of a memory pool.
    Pool,
    /// The name of a process in the kernel's log.
    Program,
    /// An argument of a command.
    Argument,
    /// The value of an environment variable.
    Value,
    /// A path that may be below a home directory.
    Path,
}

impl Kind {
    /// Returns the first part of its placeholders.
    fn word(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Host => "host",
            Kind::Job => "job",
            Kind::Pool => "pool",
            Kind::Program => "program",
            Kind::Argument => "argument",
            Kind::Value => "value",
            Kind::Path => "path",
        }
    }
}

/// The shortest text that is also replaced within a longer word.
const WITHIN_WORDS: usize = 5;

/// Placeholders, and what they stand for.
#[derive(Debug, Default)]
pub(super) struct Placeholders {
    known: BTreeMap<String, Known>,
    /// The lengths in bytes of the texts that are replaced everywhere, longest first.
    lengths: Vec<usize>,
    /// Home directories, without a slash at the end.
    homes: Vec<String>,
}

/// A placeholder.
#[derive(Clone, Copy, Debug)]
struct Known {
    kind: Kind,
    number: usize,
    /// Whether its text is replaced in every text.
    everywhere: bool,
}

impl Placeholders {
    /// Creates placeholders for a machine with these home directories, besides `/home/*` and `/root`.
    pub(super) fn new(homes: impl IntoIterator<Item = String>) -> Placeholders {
        let homes = homes.into_iter().map(|home| home.trim_end_matches('/').to_owned());
        let mut homes: Vec<String> = homes.filter(|home| home.len() > 1).collect();
        homes.extend(["/home".to_owned(), "/root".to_owned()]);
        homes.sort_by_key(|home| std::cmp::Reverse(home.len()));
        Placeholders {
            homes,
            ..Placeholders::default()
        }
    }

    /// Learns a text, which is replaced in every text from now on.
    pub(super) fn learn(&mut self, kind: Kind, text: &str) {
        if text.is_empty() {
            return;
        }
        self.stand_in(kind, text);
        if let Some(known) = self.known.get_mut(text) {
            known.everywhere = true;
        }
        if let Err(at) = self.lengths.binary_search_by(|length| text.len().cmp(length)) {
            self.lengths.insert(at, text.len());
        }
    }

    /// Returns the placeholder of a text. Other texts are not searched for it, unless it was learned.
    pub(super) fn stand_in(&mut self, kind: Kind, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let number = self.count(kind) + 1;
        let known = self.known.entry(text.to_owned()).or_insert(Known {
            kind,
            number,
            everywhere: false,
        });
        format!("{}-{}", known.kind.word(), known.number)
    }

    /// Returns how many texts of a kind are known.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.known.values().filter(|known| known.kind == kind).count()
    }

    /// Returns the text with placeholders.
    pub(super) fn apply(&mut self, text: &str) -> String {
        let (mut out, mut rest, mut before) = (String::new(), text, None);
        while let Some(next) = rest.chars().next() {
            let starts_word = !before.is_some_and(char::is_alphanumeric);
            let (length, shown) = if let Some(length) = self.known_at(rest, starts_word) {
                (length, self.stand_in(Kind::Value, &rest[..length]))
            } else if let Some(length) = self.home_at(rest).filter(|_| starts_word) {
                (length, self.stand_in(Kind::Path, &rest[..length]))
            } else if let Some((name, value)) = assignment_at(rest).filter(|_| starts_word) {
                let end = name + 1 + value;
                let value = self.stand_in(Kind::Value, &rest[name + 1..end]);
                (end, format!("{}={value}", &rest[..name]))
            } else {
                (next.len_utf8(), next.to_string())
            };
            out.push_str(&shown);
            before = rest[..length].chars().next_back();
            rest = &rest[length..];
        }
        out
    }

    /// Returns the length of the longest known text at the start of `rest`.
    fn known_at(&self, rest: &str, starts_word: bool) -> Option<usize> {
        let fits = |length: usize| {
            let (Some(text), Some(after)) = (rest.get(..length), rest.get(length..)) else {
                return false;
            };
            let ends_word = !after.starts_with(char::is_alphanumeric);
            self.known.get(text).is_some_and(|known| known.everywhere)
                && (length >= WITHIN_WORDS || (starts_word && ends_word))
        };
        self.lengths.iter().copied().find(|&length| fits(length))
    }

    /// Returns the length of a path below a home directory at the start of `rest`. Names in it may have blanks, so it ends only where a
    /// sentence goes on.
    fn home_at(&self, rest: &str) -> Option<usize> {
        let home = self.homes.iter().find(|home| rest.starts_with(home.as_str()))?;
        let below = &rest[home.len()..];
        if below.starts_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_') {
            return None;
        }
        let ends = ["\n", "\"", "'", "`", ": ", ", ", "; ", " (", ")", " is ", " and "];
        let end = ends.iter().filter_map(|end| below.find(end)).min();
        Some(home.len() + end.unwrap_or(below.len()))
    }
}

/// Returns the lengths of name and value of `NAME=value` at the start of `rest`. Names are in capitals, as those of environment variables.
fn assignment_at(rest: &str) -> Option<(usize, usize)> {
    let name = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
    let value = rest.get(name..)?.strip_prefix('=').filter(|_| name >= 2)?;
    let ends = |c: char| c.is_whitespace() || "\"'`;,()".contains(c);
    let value = value.find(ends).unwrap_or(value.len());
    (value > 0).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_text_has_the_same_placeholder() {
        let mut all = Placeholders::new([]);
        all.learn(Kind::User, "ana");
        all.learn(Kind::User, "");
        assert_eq!(all.stand_in(Kind::User, "ben"), "user-2");
        assert_eq!(all.stand_in(Kind::Job, "ana"), "user-1", "what it was first");
        assert_eq!(all.stand_in(Kind::Job, "llama"), "job-1");
        assert_eq!(all.count(Kind::User), 2);
        assert_eq!(all.stand_in(Kind::User, ""), "");
        // Only what was learned is looked for.
        assert_eq!(all.apply("ana ben llama"), "user-1 ben llama");
    }

    #[test]
    fn known_texts_are_replaced_wherever_they_stand() {
        let mut all = Placeholders::new([]);
        all.learn(Kind::User, "ana");
        all.learn(Kind::Job, "llama run 7");
        all.learn(Kind::Host, "node17");
        for (text, expected) in [
            (
                "ana's banana, ana_x and /data/ana/",
                "user-1's banana, user-1_x and /data/user-1/",
            ),
            ("llama run 7 on xnode17y", "job-1 on xhost-1y"),
            ("llama run", "llama run"),
            ("é ana é", "é user-1 é"),
            ("", ""),
        ] {
            assert_eq!(all.apply(text), expected);
        }
        // The longest one wins, and a placeholder is not read again.
        all.learn(Kind::Job, "ana llama");
        all.learn(Kind::Argument, "user");
        assert_eq!(all.apply("ana llama ana"), "job-2 user-1");
    }

    #[test]
    fn paths_below_homes_are_recognised() {
        let mut all = Placeholders::new(["/data/people/ana/".to_owned()]);
        for (text, expected) in [
            ("/home/ana/a secret/x: refused", "path-1: refused"),
            (
                "no file /root/x.so (GPUMEM_NVML names it)",
                "no file path-2 (GPUMEM_NVML names it)",
            ),
            ("/data/people/ana/key", "path-3"),
            ("/homestead/x /rooted", "/homestead/x /rooted"),
            ("/home/ana/a secret/x", "path-1"),
        ] {
            assert_eq!(all.apply(text), expected);
        }
    }

    #[test]
    fn values_of_variables_are_recognised() {
        let mut all = Placeholders::new([]);
        for (text, expected) in [
            ("TERM=xterm, HF_TOKEN=abc", "TERM=value-1, HF_TOKEN=value-2"),
            ("a=b X=1 CUDA_VISIBLE_DEVICES= 1", "a=b X=1 CUDA_VISIBLE_DEVICES= 1"),
            ("GPUMEM_DIR=abc again", "GPUMEM_DIR=value-2 again"),
            ("5 of DEVICES=5", "5 of DEVICES=value-3"),
        ] {
            assert_eq!(all.apply(text), expected);
        }
    }
}
