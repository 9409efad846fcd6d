//! Programs in namespaces of their own, with other mounts and other process ids, where the machine allows that.

use std::process::{Command, Stdio};

/// Returns a command that runs `command` in new namespaces (`flags` of unshare(1)), after the shell commands `setup`. Prints a line and
/// returns `None` where that is not permitted.
pub fn unshared(flags: &[&str], setup: &str, command: &Command) -> Option<Command> {
    let in_there = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(flags)
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::null());
        unshare
    };
    let trial = in_there(setup).output();
    if !trial.as_ref().is_ok_and(|trial| trial.status.success()) {
        eprintln!("SKIPPED: no right to unshare {flags:?} and {setup}: {trial:?}");
        return None;
    }
    let mut unshare = in_there(&format!("{setup} && exec \"$0\" \"$@\""));
    unshare.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    Some(unshare)
}
