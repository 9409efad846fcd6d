//! The trait of demos, and the rows of their list.

use std::ffi::OsString;
use std::fmt::Debug;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error};

use crate::error::DemoError;
use crate::lab::MemoryPlan;
use crate::protocol::{Kind, Outcome};
use crate::stage::{Stage, Stop};

/// A workload for the dashboard. The type holds the demo's own arguments; [`crate::RunArgs`] has those of every demo.
pub trait Demo: Args + Debug + 'static {
    /// Its name on the command line.
    const NAME: &'static str;
    /// A summary of what it shows, in one line.
    const SUMMARY: &'static str;
    /// When it goes on. The kind decides which keys and commands it takes.
    const KIND: Kind;
    /// The subcommand of `gpumem-tui` that runs it. Only demos of `demo` are listed.
    const COMMAND: &'static str = "demo";

    /// Returns how its memory is set up.
    fn memory_plan(&self) -> MemoryPlan {
        MemoryPlan::Program
    }

    /// Returns the job that its channel names, unless the user sets another one.
    fn label(&self) -> String {
        format!("demo {}", Self::NAME)
    }

    /// Checks the arguments before a device is opened.
    ///
    /// # Errors
    /// When an argument cannot work.
    fn check(&self) -> Result<(), DemoError> {
        Ok(())
    }

    /// Runs from the first line, which `Stage::begin` writes, to the result. All memory is free when this returns.
    ///
    /// # Errors
    /// When it was told to end, or something failed.
    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop>;
}

/// An object-safe [`Demo`].
pub(crate) trait AnyDemo: Debug {
    fn memory_plan(&self) -> MemoryPlan;
    fn label(&self) -> String;
    fn check(&self) -> Result<(), DemoError>;
    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop>;
}

impl<D: Demo> AnyDemo for D {
    fn memory_plan(&self) -> MemoryPlan {
        Demo::memory_plan(self)
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
    /// Reads the demo's own arguments.
    read: fn(&ArgMatches) -> Result<Box<dyn AnyDemo>, Error>,
}

/// Returns the row of a demo.
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
    /// Checks whether `gpumem-tui demo` lists it. Other subcommands have demos, too.
    pub fn listed(&self) -> bool {
        self.command == "demo"
    }

    /// Returns the subcommand with its name.
    pub(crate) fn command(&self) -> Command {
        (self.augment)(Command::new(self.name))
            .about(self.summary)
            .long_about(None)
            .hide(!self.listed())
    }

    /// Checks whether a flag is one of the demo's own, for example `--fix`.
    pub fn has_flag(&self, flag: &str) -> bool {
        let own = (self.augment)(Command::new(self.name));
        flag.strip_prefix("--")
            .is_some_and(|flag| own.get_arguments().any(|arg| arg.get_long() == Some(flag)))
    }

    /// Reads the demo from the arguments of its subcommand.
    pub(crate) fn read(&self, matches: &ArgMatches) -> Result<Chosen, Error> {
        Ok(Chosen {
            entry: *self,
            flags: self.given(matches),
            demo: (self.read)(matches)?,
        })
    }

    /// Returns the demo's own arguments as they were given.
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

/// A chosen demo with its own arguments.
#[derive(Debug)]
pub struct Chosen {
    entry: Entry,
    flags: Vec<OsString>,
    pub(crate) demo: Box<dyn AnyDemo>,
}

impl Chosen {
    /// Returns its row of the list.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Returns its own arguments as they were given on the command line, for a child that runs it. Arguments without a flag come
    /// last, after `--`.
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
