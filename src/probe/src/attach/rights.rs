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
