//! Command lines: the program, and its options.

use std::io;

use crate::Root;

/// Bytes read of a command line. Any user can make one of megabytes.
const LIMIT: u64 = 128 << 10;
/// Most arguments that are looked at.
const MOST: usize = 1024;
/// Longest argument that is kept, in bytes; longer ones are cut. No option of interest is near this.
const LONGEST: usize = 512;

/// The arguments of a process. They are text from outside: parse what is wanted, and show nothing else of them.
#[derive(Debug)]
pub(super) struct Arguments {
    list: Vec<String>,
    /// Whether these are all arguments.
    pub(super) complete: bool,
}

impl Arguments {
    /// Reads the arguments of a process. Any user may read them, unless `/proc` is mounted with `hidepid`.
    pub(super) fn read(root: &Root, pid: u32) -> io::Result<Self> {
        let bytes = root.read(format!("proc/{pid}/cmdline"), LIMIT)?;
        let whole = (bytes.len() as u64) < LIMIT;
        Ok(Self::parse(&bytes, whole))
    }

    /// Splits a command line; `whole` says that nothing was cut off its end.
    pub(super) fn parse(bytes: &[u8], whole: bool) -> Self {
        // A process title leaves zeros or blanks behind.
        let end = bytes
            .iter()
            .rposition(|b| ![0, b' '].contains(b))
            .map_or(0, |last| last + 1);
        let mut parts = bytes[..end].split(|&b| b == 0);
        let cut = |part: &[u8]| String::from_utf8_lossy(&part[..part.len().min(LONGEST)]).into_owned();
        let list = parts.by_ref().take(MOST).map(cut).collect();
        Arguments {
            list,
            complete: whole && parts.next().is_none(),
        }
    }

    /// Whether this is the title of a worker instead of a command line (`VLLM::EngineCore`, `sglang::scheduler`), or the command
    /// line by which Python's `multiprocessing` starts a worker. The options are then those of a parent.
    pub(super) fn are_of_a_worker(&self) -> bool {
        self.are_a_title() || self.list.iter().any(|argument| argument == "--multiprocessing-fork")
    }

    /// Whether this is a process title. `setproctitle` writes it over the arguments and clears the environment behind them.
    pub(super) fn are_a_title(&self) -> bool {
        matches!(self.list.as_slice(), [title] if title.contains("::"))
    }

    /// Returns the program and what follows it: for an interpreter, the script or module.
    pub(super) fn program(&self) -> Option<(Program<'_>, Options<'_>)> {
        let (first, mut rest) = self.list.split_first()?;
        let name = base(first);
        if !name.starts_with("python") && !name.starts_with("pypy") {
            return Some((Program::File(first), Options(rest)));
        }
        while let Some((argument, after)) = rest.split_first() {
            match argument.as_str() {
                "-m" => {
                    let (module, options) = after.split_first()?;
                    return Some((Program::Module(module), Options(options)));
                }
                "-c" => return None,
                "-W" | "-X" => rest = after.get(1..)?,
                option if option.starts_with('-') => rest = after,
                _ => return Some((Program::File(argument), Options(after))),
            }
        }
        None
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program<'a> {
    /// A program or a script, by its path.
    File(&'a str),
    /// A module of Python.
    Module(&'a str),
}

impl<'a> Program<'a> {
    /// Returns the name of the file, or the package of the module.
    pub(super) fn name(self) -> &'a str {
        match self {
            Program::File(path) => base(path),
            Program::Module(module) => module.split('.').next().unwrap_or(module),
        }
    }

    /// Whether it is a file in this folder, which is given with a slash at each end.
    pub(super) fn is_below(self, folder: &str) -> bool {
        matches!(self, Program::File(path) if path.contains(folder))
    }
}

/// The arguments after the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options<'a>(&'a [String]);

impl<'a> Options<'a> {
    /// Returns the value of an option, which has several spellings. The last one counts, as in Python's `argparse` and in
    /// llama.cpp. A long option may have dashes or underscores, and its value may be a part of the argument, after `=`.
    pub(super) fn value(self, spellings: &[&str]) -> Option<&'a str> {
        let is = |name: &str| spellings.iter().any(|spelling| alike(name, spelling));
        let each = self.0.iter().enumerate().rev();
        each.filter_map(|(place, argument)| match argument.split_once('=') {
            Some((name, value)) => is(name).then_some(value),
            None if is(argument) => self.0.get(place + 1).map(String::as_str),
            None => None,
        })
        .next()
    }

    /// Whether a switch is on: `--name`, unless `--no-name` follows.
    pub(super) fn has(self, name: &str) -> bool {
        let off = name.replacen("--", "--no-", 1);
        let last = self
            .0
            .iter()
            .rev()
            .find(|argument| alike(argument, name) || alike(argument, &off));
        last.is_some_and(|argument| alike(argument, name))
    }
}

/// Compares the names of two options; long ones may have dashes or underscores.
fn alike(a: &str, b: &str) -> bool {
    let dashed = |c: u8| if c == b'_' { b'-' } else { c };
    a.starts_with('-') && a.bytes().map(dashed).eq(b.bytes().map(dashed))
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
