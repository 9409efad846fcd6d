//! What this process may see of others.

use gpumem_text::clean_line;

use super::Fact;
use crate::Root;
use crate::stat::Status;

/// `/proc/sys/kernel/yama/ptrace_scope`, described in the kernel's `Documentation/admin-guide/LSM/Yama.rst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceScope {
    /// The kernel has no Yama: any process of the same user.
    NoYama,
    /// 0: any process of the same user.
    Classic,
    /// 1: descendants, and processes that allow it.
    Restricted,
    /// 2: only with `CAP_SYS_PTRACE`.
    AdminOnly,
    /// 3: nobody, until the next boot.
    Nobody,
}

/// The effective capabilities that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Look into processes of other users.
    pub sys_ptrace: bool,
    /// Many administrative calls.
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
