//! The arguments of `demo`. The demos with their arguments and help come from the demo crate.

use std::time::Duration;

use clap::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use gpumem_demo::{Chosen, RunArgs};

use super::{LookArgs, parse_interval};

/// `demo`.
#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "NAME",
    subcommand_help_heading = "Demos",
    disable_help_subcommand = true,
    next_display_order = 100,
    mut_args = |argument| argument.global(true)
)]
pub(crate) struct DemoCli {
    /// Which one, with its own arguments
    #[command(subcommand)]
    pub demo: Option<Chosen>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub run: RunArgs,
    /// How often the dashboard samples: 500ms, 2s; from 50ms to 1h [default: 1s, or what the configuration says]
    #[arg(long, short = 'i', value_name = "TIME", allow_hyphen_values = true, value_parser = parse_interval, conflicts_with = "headless")]
    pub interval: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub look: LookArgs,
}

/// Explains an error that clap cannot explain: an unknown demo, or a flag of another demo. `words` are the words of the command
/// line after `demo`.
pub(crate) fn explain(error: &clap::Error, words: &[String]) -> Option<String> {
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = said(ContextKind::InvalidSubcommand)?;
            let alike = said(ContextKind::SuggestedSubcommand);
            let alike = alike.map_or(String::new(), |alike| format!(", but {alike:?}"));
            Some(format!("there is no demo {name:?}{alike}: gpumem-tui demo lists them"))
        }
        ErrorKind::UnknownArgument => {
            let flag = said(ContextKind::InvalidArg)?;
            let of: Vec<&str> = gpumem_demo::list()
                .filter(|demo| demo.has_flag(flag))
                .map(|demo| demo.name)
                .collect();
            let instead = match of.iter().any(|name| words.iter().any(|word| word == name)) {
                true => "put it after the demo's name",
                false => "leave it out",
            };
            (!of.is_empty()).then(|| format!("{flag} is for demo {}: {instead}", of.join(" or ")))
        }
        _ => None,
    }
}
