//! Whether this process may trace another one, and if not, what would allow it.

use std::io;

use crate::Root;
use crate::facts::{Facts, PtraceScope};
use crate::stat::Stat;

/// Checks what can be seen of a process without tracing it. Returns its number in its own pid namespace.
pub(super) fn check(root: &Root, pid: u32, stat: &Stat) -> Result<u32, String> {
    match stat.state {
        'Z' | 'X' | 'x' => return Err("it has ended".to_owned()),
        'T' => return Err("it is stopped, so nothing would run in it: continue it first (kill -CONT)".to_owned()),
        _ => {}
    }
    let status = root.read(format!("proc/{pid}/status"), 16 << 10).unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        // Of several, as in `NSpid`, the last one is that of the innermost namespace.
        line.split_whitespace().next_back()?.parse::<u32>().ok()
    };
    match field("TracerPid:") {
        Some(tracer @ 1..) => Err(format!("process {tracer} traces it already, such as a debugger")),
        _ => Ok(field("NSpid:").unwrap_or(pid)),
    }
}

/// Says why the kernel refuses to let this process look into another one, and which command would allow it.
pub(super) fn refused(root: &Root, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return match error.raw_os_error() {
            Some(libc::ESRCH) => "it has ended".to_owned(),
            _ => error.to_string(),
        };
    }
    let why = match Facts::gather(root, None).ptrace_scope {
        Ok(PtraceScope::Restricted) => {
            "Yama lets a process trace its children only (kernel.yama.ptrace_scope is 1): use sudo, or run `sudo sysctl \
             kernel.yama.ptrace_scope=0`"
        }
        Ok(PtraceScope::AdminOnly) => "only administrators may trace here (kernel.yama.ptrace_scope is 2): use sudo",
        Ok(PtraceScope::Nobody) => {
            "tracing is switched off until the next boot (kernel.yama.ptrace_scope is 3): start the program with `gpumem-tui run --`"
        }
        _ => {
            "it is another user's, or protects itself, or this container has no CAP_SYS_PTRACE: use sudo, or start the container with \
             --cap-add=SYS_PTRACE"
        }
    };
    format!("there is no permission to trace it: {why}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Each sentence ends in what grants the right, or in another way if nothing does.
    #[test]
    fn refusal_has_the_command_that_grants_the_right() {
        let folder = tempfile::tempdir().unwrap();
        let scope = folder.path().join("proc/sys/kernel/yama/ptrace_scope");
        std::fs::create_dir_all(scope.parent().unwrap()).unwrap();
        let root = Root::at(folder.path());
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        let expected = [
            ("0\n", "--cap-add=SYS_PTRACE"),
            ("1\n", "sudo sysctl kernel.yama.ptrace_scope=0"),
            ("2\n", "use sudo"),
            ("3\n", "gpumem-tui run --"),
        ];
        for (value, grants) in expected {
            std::fs::write(&scope, value).unwrap();
            let text = refused(&root, &denied);
            assert!(
                text.starts_with("there is no permission to trace it: ") && text.contains(grants),
                "{text}"
            );
        }
        std::fs::remove_file(scope).unwrap();
        let text = refused(&root, &denied);
        assert!(text.contains("use sudo"), "{text}");
        assert_eq!(
            refused(&root, &io::Error::from_raw_os_error(libc::ESRCH)),
            "it has ended"
        );
    }
}
