//! `--conf`: the options of the allocator, or the list of them.

use std::ffi::OsStr;

use clap::builder::{StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};
use gpumem_demo::Conf;

/// Reads `--conf TEXT`; `help` prints the list and ends the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parser;

impl TypedValueParser for Parser {
    type Value = Conf;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Conf, Error> {
        if value == "help" {
            let list = Command::new("conf").override_help(Conf::help());
            list.try_get_matches_from(["conf", "--help"])?;
        }
        let read = |text: String| text.parse::<Conf>();
        StringValueParser::new().try_map(read).parse_ref(command, arg, value)
    }
}
