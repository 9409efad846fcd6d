//! Interpreters: which of their arguments is the script, module or code that they run.

use super::{Program, base};

/// What an option of an interpreter means.
#[derive(Clone, Copy)]
enum Meaning {
    /// Its value is code.
    Code,
    /// Its value is the module that runs.
    Module,
    /// It has a value of no interest here.
    Value,
}

use Meaning::{Code, Module, Value};

/// A program that runs another one, which is named among its arguments.
struct Interpreter {
    /// Its names, without a version.
    names: &'static [&'static str],
    /// Its options that have a value; all others are switches.
    options: &'static [(&'static str, Meaning)],
    /// Whether letters share a dash: `-um` is `-u -m`.
    joins: bool,
}

const INTERPRETERS: [Interpreter; 5] = [
    Interpreter {
        names: &["python", "pypy"],
        options: &[("-c", Code), ("-m", Module), ("-W", Value), ("-X", Value)],
        joins: true,
    },
    Interpreter {
        names: &["sh", "bash", "dash", "zsh", "ksh", "fish"],
        options: &[("-c", Code), ("-o", Value), ("-O", Value), ("--rcfile", Value)],
        joins: true,
    },
    Interpreter {
        names: &["perl", "ruby", "lua", "julia", "Rscript"],
        options: &[("-e", Code), ("-E", Code), ("-I", Value)],
        joins: true,
    },
    Interpreter {
        names: &["node", "nodejs"],
        options: &[
            ("-e", Code),
            ("--eval", Code),
            ("-p", Code),
            ("--print", Code),
            ("-r", Value),
            ("--require", Value),
            ("--import", Value),
        ],
        joins: false,
    },
    // `-jar` and `-m` are switches here: the argument after them is the program.
    Interpreter {
        names: &["java"],
        options: &[
            ("-cp", Value),
            ("-classpath", Value),
            ("--class-path", Value),
            ("-p", Value),
            ("--module-path", Value),
            ("--add-modules", Value),
            ("--add-opens", Value),
            ("--add-exports", Value),
        ],
        joins: false,
    },
];

impl Interpreter {
    /// Returns the interpreter of this name: `python3.12` is `python`.
    fn of(name: &str) -> Option<&'static Interpreter> {
        let bare = name.split(|c: char| c.is_ascii_digit()).next().unwrap_or(name);
        INTERPRETERS
            .iter()
            .find(|interpreter| interpreter.names.contains(&bare))
    }

    /// Returns an option that has a value, and the part of the value that is in the same argument.
    fn option<'a>(&self, argument: &'a str) -> Option<(&'static str, Meaning, &'a str)> {
        if let Some(&(name, meaning)) = self.options.iter().find(|(name, _)| *name == argument) {
            return Some((name, meaning, ""));
        }
        if !self.joins || argument.starts_with("--") {
            return None;
        }
        argument.char_indices().skip(1).find_map(|(at, letter)| {
            let is = |name: &str| name.strip_prefix('-').is_some_and(|name| name.chars().eq([letter]));
            let &(name, meaning) = self.options.iter().find(|(name, _)| is(name))?;
            Some((name, meaning, &argument[at + letter.len_utf8()..]))
        })
    }
}

/// Returns the program that a list of arguments starts, and the arguments after it. An interpreter that is given no program is
/// the program itself.
pub(super) fn program(list: &[String]) -> Option<(Program<'_>, &[String])> {
    let (first, mut rest) = list.split_first()?;
    // A login shell has a dash before its name.
    let name = base(first).trim_start_matches('-');
    let Some(interpreter) = Interpreter::of(name) else {
        return Some((Program::File(first), rest));
    };
    while let Some((argument, after)) = rest.split_first() {
        // A single dash is standard input.
        if argument == "-" {
            break;
        }
        if !argument.starts_with('-') {
            return Some((Program::File(argument), after));
        }
        rest = after;
        match interpreter.option(argument) {
            None => {}
            Some((option, Code, _)) => return Some((Program::Code(name, option), &[])),
            Some((_, Value, value)) => rest = if value.is_empty() { rest.get(1..)? } else { rest },
            Some((_, Module, "")) => {
                let (module, after) = rest.split_first()?;
                return Some((Program::Module(module), after));
            }
            Some((_, Module, module)) => return Some((Program::Module(module), after)),
        }
    }
    Some((Program::File(name), &[]))
}
