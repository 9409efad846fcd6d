//! Completions for shells, and manual pages. Both are made from the command line's own description, without what is hidden.

use std::io;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::Cli;

/// Returns a command without its hidden subcommands and arguments, which are for the program itself. Clap cannot remove any, so the command
/// is made anew from what completions and pages use.
fn visible(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .after_help(command.get_after_help().cloned().unwrap_or_default())
        .disable_help_subcommand(command.is_disable_help_subcommand_set())
        .args_conflicts_with_subcommands(command.is_args_conflicts_with_subcommands_set());
    if let Some(name) = command.get_subcommand_value_name() {
        shown = shown.subcommand_value_name(name.to_owned());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        shown = shown.arg(argument.clone());
    }
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.subcommands(subcommands.map(visible))
}

/// This program's name, and a name for it without a hyphen.
const NAME: &str = env!("CARGO_PKG_NAME");
const PLAIN: &str = "gpumem_tui";

/// Returns the completions for a shell.
pub(crate) fn completions(shell: Shell) -> String {
    // For bash, clap_complete spells a name with a hyphen in two ways, so nothing after a subcommand is completed
    // (https://github.com/clap-rs/clap/issues/6421). The name of the command itself is in the last lines only.
    let name = if shell == Shell::Bash { PLAIN } else { NAME };
    let mut script = Vec::new();
    generate(shell, &mut visible(&Cli::command()), name, &mut script);
    let script = String::from_utf8_lossy(&script);
    script.replace(&format!("-o default {PLAIN}\n"), &format!("-o default {NAME}\n"))
}

/// Returns the manual page, or that of a subcommand, in roff. `None` if there is no such subcommand.
pub(crate) fn page(subcommand: Option<&str>) -> Option<io::Result<String>> {
    let mut command = visible(&Cli::command()).disable_help_subcommand(true);
    // This gives subcommands their full names.
    command.build();
    let command = match subcommand {
        Some(name) => command.find_subcommand(name)?.clone(),
        None => command,
    };
    let mut page = Vec::new();
    let rendered = Man::new(command).render(&mut page);
    // The crate has a name of its own for the section with exit codes and the like.
    Some(rendered.map(|()| String::from_utf8_lossy(&page).replacen(".SH EXTRA\n", ".SH NOTES\n", 1)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::ValueEnum;

    use super::*;

    /// They are in no shell's completions, and on no page.
    const HIDDEN: [&str; 4] = ["uvm-helper", "attached-to", "own-session", "--parent"];

    #[test]
    fn completions_have_what_is_visible() {
        for shell in Shell::value_variants() {
            let script = completions(*shell);
            for word in ["doctor", "bundle", "completions", "no-black-boxes", "headless"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            for word in HIDDEN {
                assert!(!script.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn each_visible_subcommand_has_a_page() {
        let all = Cli::command();
        let names = all.get_subcommands().filter(|command| !command.is_hide_set());
        let names: Vec<Option<&str>> = names.map(|command| Some(command.get_name())).chain([None]).collect();
        assert!(names.len() > 8);
        for name in names {
            let page = page(name).unwrap().unwrap();
            let title = name.map_or("gpumem-tui".to_owned(), |name| format!("gpumem-tui-{name}"));
            assert!(page.contains(&format!(".TH {title} 1 ")), "{page}");
            assert!(
                !HIDDEN.iter().any(|word| page.replace('\\', "").contains(word)),
                "{page}"
            );
        }
        assert!(page(Some("publisher")).is_none() && page(Some("")).is_none());
        let main = page(None).unwrap().unwrap();
        for word in ["NO_COLOR", "128 + n", "Keys: Blocks"] {
            assert!(main.contains(word), "{word}: {main}");
        }
    }
}
