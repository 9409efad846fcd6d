//! Command lines: the program, and its options.

use std::io;

use crate::Root;

mod interpreter;

/// Bytes read of a command line. Any user can make one of megabytes.
const LIMIT: u64 = 128 << 10;
/// Most arguments that are looked at.
const MOST: usize = 1024;
/// Longest argument that is kept, in bytes; longer ones are cut. No option of interest is near this.
const LONGEST: usize = 512;

/// The arguments of a process. They are text from outside: parse what is wanted, and show nothing else of them.
#[derive(Debug)]
pub(crate) struct Arguments {
    list: Vec<String>,
    /// Whether these are all arguments.
    pub(crate) complete: bool,
}

impl Arguments {
    /// Reads the arguments of a process. Any user may read them, unless `/proc` is mounted with `hidepid`.
    pub(crate) fn read(root: &Root, pid: u32) -> io::Result<Self> {
        let (bytes, whole) = Self::read_bytes(root, pid)?;
        Ok(Self::parse(&bytes, whole))
    }

    /// Reads the beginning of a command line, and whether that is all of it.
    pub(crate) fn read_bytes(root: &Root, pid: u32) -> io::Result<(Vec<u8>, bool)> {
        let bytes = root.read(format!("proc/{pid}/cmdline"), LIMIT)?;
        let whole = (bytes.len() as u64) < LIMIT;
        Ok((bytes, whole))
    }

    /// Splits a command line; `whole` says that nothing was cut off its end.
    pub(crate) fn parse(bytes: &[u8], whole: bool) -> Self {
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
    pub(crate) fn are_of_a_worker(&self) -> bool {
        self.are_a_title() || self.list.iter().any(|argument| argument == "--multiprocessing-fork")
    }

    /// Returns the process title, if this is one: a program that renames itself leaves one argument, with `::` or blanks in it.
    pub(crate) fn title(&self) -> Option<&str> {
        match self.list.as_slice() {
            [title] if !title.starts_with('/') && (title.contains("::") || title.contains(' ')) => Some(title),
            _ => None,
        }
    }

    /// Whether this is a process title. `setproctitle` writes it over the arguments and clears the environment behind them.
    pub(crate) fn are_a_title(&self) -> bool {
        matches!(self.list.as_slice(), [title] if title.contains("::"))
    }

    /// Returns the program and what follows it: for an interpreter, the script or module.
    pub(crate) fn program(&self) -> Option<(Program<'_>, Options<'_>)> {
        let (program, after) = interpreter::program(&self.list)?;
        Some((program, Options(after)))
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program<'a> {
    /// A program or a script, by its path.
    File(&'a str),
    /// A module of Python.
    Module(&'a str),
    /// Code on the command line: the name of the interpreter, and the option with the code.
    Code(&'a str, &'a str),
}

impl<'a> Program<'a> {
    /// Returns the name of the file, the package of the module, or the interpreter of code.
    pub(crate) fn name(self) -> &'a str {
        match self {
            Program::File(path) => base(path),
            Program::Code(interpreter, _) => interpreter,
            Program::Module(module) => module.split('.').next().unwrap_or(module),
        }
    }

    /// Whether it is a file in this folder, which is given with a slash at each end.
    pub(crate) fn is_below(self, folder: &str) -> bool {
        matches!(self, Program::File(path) if path.contains(folder))
    }
}

/// The arguments after the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a>(&'a [String]);

impl<'a> Options<'a> {
    /// Returns the value of an option, which has several spellings. The last one counts, as in Python's `argparse` and in
    /// llama.cpp. A long option may have dashes or underscores, and its value may be a part of the argument, after `=`.
    pub(crate) fn value(self, spellings: &[&str]) -> Option<&'a str> {
        let is = |name: &str| spellings.iter().any(|spelling| alike(name, spelling));
        let each = self.0.iter().enumerate().rev();
        each.filter_map(|(place, argument)| match argument.split_once('=') {
            Some((name, value)) => is(name).then_some(value),
            None if is(argument) => self.0.get(place + 1).map(String::as_str),
            None => None,
        })
        .next()
    }

    /// Iterates over the arguments.
    pub(crate) fn all(self) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(String::as_str)
    }

    /// Iterates over the arguments before the first option.
    pub(crate) fn words(self) -> impl Iterator<Item = &'a str> {
        self.all().take_while(|argument| !argument.starts_with('-'))
    }

    /// Whether a switch is on: `--name`, unless `--no-name` follows.
    pub(crate) fn has(self, name: &str) -> bool {
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

/// Returns the last part of a path.
pub(crate) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
