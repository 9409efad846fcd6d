//! The list of demos, and their subcommands.

use clap::error::ErrorKind;
use clap::{ArgMatches, Command, Error, FromArgMatches, Subcommand};

use crate::demo::{Chosen, Entry};
use crate::demos::LIST;

/// Returns the demos of `gpumem-tui demo`, in the order of the list.
pub fn list() -> impl Iterator<Item = Entry> {
    LIST.iter().copied().filter(Entry::listed)
}

fn find(name: &str) -> Option<Entry> {
    LIST.iter().copied().find(|entry| entry.name == name)
}

impl FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Chosen, Error> {
        let (name, own) = matches
            .subcommand()
            .ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let entry = find(name).ok_or_else(|| Error::new(ErrorKind::InvalidSubcommand))?;
        entry.read(own)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Chosen::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Chosen {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(LIST.iter().map(Entry::command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Chosen::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        find(name).is_some()
    }
}
