//! What a demo is.

use std::ffi::OsString;
use std::fmt::Debug;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error};

use crate::error::DemoError;
use crate::lab::Room;
use crate::protocol::{Kind, Outcome};
use crate::stage::{Stage, Stop};

/// A workload to look at. The type holds the demo's own arguments; [`crate::RunArgs`] has those of every demo.
pub trait Demo: Args + Debug + 'static {
    /// What the command line takes.
    const NAME: &'static str;
    /// What it shows, in one line.
    const SUMMARY: &'static str;
    /// When it goes on: which keys and commands it takes.
    const KIND: Kind;
    /// The subcommand of `gpumem-tui` that its user says. Only demos of `demo` are listed.
    const COMMAND: &'static str = "demo";

    /// What memory it has.
    fn room(&self) -> Room {
        Room::Program
    }

    /// The job that its channel names, unless its user says another.
    fn label(&self) -> String {
        format!("demo {}", Self::NAME)
    }

    /// Refuses arguments that cannot work, before a device is opened.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check(&self) -> Result<(), DemoError> {
        Ok(())
    }

    /// Runs from the first line, which `Stage::begin` says, to the result. All memory is free when this returns.
    ///
    /// # Errors
    /// It was told to end, or something failed.
    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop>;
}

/// A demo of any type.
pub(crate) trait AnyDemo: Debug {
    fn room(&self) -> Room;
    fn label(&self) -> String;
    fn check(&self) -> Result<(), DemoError>;
    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop>;
}

impl<D: Demo> AnyDemo for D {
    fn room(&self) -> Room {
        Demo::room(self)
    }

    fn label(&self) -> String {
        Demo::label(self)
    }

    fn check(&self) -> Result<(), DemoError> {
        Demo::check(self)
    }

    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop> {
        Demo::run(self, stage)
    }
}

/// A row of the list of demos.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// [`Demo::NAME`].
    pub name: &'static str,
    /// [`Demo::SUMMARY`].
    pub summary: &'static str,
    /// [`Demo::KIND`].
    pub kind: Kind,
    /// [`Demo::COMMAND`].
    pub command: &'static str,
    /// Adds the demo's own arguments.
    augment: fn(Command) -> Command,
    /// Reads them.
    read: fn(&ArgMatches) -> Result<Box<dyn AnyDemo>, Error>,
}

/// The row of a demo.
pub(crate) const fn row<D: Demo>() -> Entry {
    Entry {
        name: D::NAME,
        summary: D::SUMMARY,
        kind: D::KIND,
        command: D::COMMAND,
        augment: D::augment_args,
        read: read::<D>,
    }
}

fn read<D: Demo>(matches: &ArgMatches) -> Result<Box<dyn AnyDemo>, Error> {
    Ok(Box::new(D::from_arg_matches(matches)?))
}

impl Entry {
    /// Whether it is a demo of the list, and no other subcommand's.
    pub fn listed(&self) -> bool {
        self.command == "demo"
    }

    /// The subcommand of its name.
    pub(crate) fn command(&self) -> Command {
        (self.augment)(Command::new(self.name))
            .about(self.summary)
            .long_about(None)
            .hide(!self.listed())
    }

    /// Whether this flag is one of the demo's own, e.g. `--fix`.
    pub fn has_flag(&self, flag: &str) -> bool {
        let own = (self.augment)(Command::new(self.name));
        flag.strip_prefix("--")
            .is_some_and(|flag| own.get_arguments().any(|arg| arg.get_long() == Some(flag)))
    }

    /// The demo with the arguments of its subcommand.
    pub(crate) fn read(&self, matches: &ArgMatches) -> Result<Chosen, Error> {
        Ok(Chosen {
            entry: *self,
            flags: self.given(matches),
            demo: (self.read)(matches)?,
        })
    }

    /// The demo's own arguments as they were said.
    fn given(&self, matches: &ArgMatches) -> Vec<OsString> {
        let own = (self.augment)(Command::new(self.name));
        let (mut flags, mut words) = (Vec::new(), Vec::new());
        for arg in own.get_arguments() {
            let id = arg.get_id().as_str();
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let values = matches.get_raw(id).into_iter().flatten();
            match arg.get_long() {
                None => words.extend(values.map(OsString::from)),
                Some(long) if arg.get_action().takes_values() => flags.extend(values.map(|value| {
                    let mut flag = OsString::from(format!("--{long}="));
                    flag.push(value);
                    flag
                })),
                Some(long) => flags.push(format!("--{long}").into()),
            }
        }
        if !words.is_empty() {
            flags.push("--".into());
        }
        flags.extend(words);
        flags
    }
}

/// A demo that was chosen, with its own arguments.
#[derive(Debug)]
pub struct Chosen {
    entry: Entry,
    flags: Vec<OsString>,
    pub(crate) demo: Box<dyn AnyDemo>,
}

impl Chosen {
    /// Its row of the list.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Its own arguments as they were said on the command line, for a child that runs it. Where the demo has arguments without a
    /// flag these come last, behind `--`.
    pub fn flags(&self) -> &[OsString] {
        &self.flags
    }
}

impl<D: Demo> From<D> for Chosen {
    fn from(demo: D) -> Chosen {
        Chosen {
            entry: row::<D>(),
            flags: Vec::new(),
            demo: Box::new(demo),
        }
    }
}
