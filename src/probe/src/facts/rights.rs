//! Rights of this process that decide what it can see of other processes.

use gpumem_text::clean_line;

use super::Fact;
use crate::Root;
use crate::stat::Status;

/// The value of `/proc/sys/kernel/yama/ptrace_scope`, described in the kernel's
/// `Documentation/admin-guide/LSM/Yama.rst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceScope {
    /// The kernel has no Yama: a process may inspect any process of the same user.
    NoYama,
    /// 0: a process may inspect any process of the same user.
    Classic,
    /// 1: a process may inspect its descendants, and processes that allow it.
    Restricted,
    /// 2: only processes with `CAP_SYS_PTRACE` may inspect others.
    AdminOnly,
    /// 3: no process may inspect another until the next boot.
    Nobody,
}

/// The effective capabilities of this process that matter for what it can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// `CAP_SYS_PTRACE`: it may inspect processes of other users.
    pub sys_ptrace: bool,
    /// `CAP_SYS_ADMIN`.
    pub sys_admin: bool,
}

pub(super) fn ptrace_scope(root: &Root) -> Fact<PtraceScope> {
    let file = "proc/sys/kernel/yama/ptrace_scope";
    match root.read(file, 64) {
        Ok(bytes) => match bytes.trim_ascii() {
            b"0" => Ok(PtraceScope::Classic),
            b"1" => Ok(PtraceScope::Restricted),
            b"2" => Ok(PtraceScope::AdminOnly),
            b"3" => Ok(PtraceScope::Nobody),
            other => Err(format!(
                "/{file} holds {:?}, which is none of 0 to 3",
                clean_line(other, 16)
            )),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(PtraceScope::NoYama),
        Err(e) => Err(format!("/{file}: {e}")),
    }
}

pub(super) fn capabilities(root: &Root) -> Fact<Capabilities> {
    /// Bit numbers of linux/capability.h.
    const SYS_PTRACE: u32 = 19;
    const SYS_ADMIN: u32 = 21;
    let status = Status::read(root, "self").map_err(|e| format!("/proc/self/status: {e}"))?;
    let set = status.capabilities.ok_or("/proc/self/status has no CapEff")?;
    let has = |bit: u32| set >> bit & 1 == 1;
    Ok(Capabilities {
        sys_ptrace: has(SYS_PTRACE),
        sys_admin: has(SYS_ADMIN),
    })
}
