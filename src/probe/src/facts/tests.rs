#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Tree(tempfile::tempdir().unwrap())
    }
    fn put(self, path: &str, bytes: impl AsRef<[u8]>) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }
    fn link(self, path: &str, to: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
        self
    }
    fn facts(&self) -> Facts {
        Facts::gather(&Root::at(self.0.path()), None)
    }
}

#[test]
fn kernel_module_version_is_found_in_either_wording() {
    for line in [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jan  1 10:11:12\nGCC: 13.2.0\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.159.04  Release Build  (a@b)\n",
    ] {
        assert_eq!(
            Tree::new()
                .put("proc/driver/nvidia/version", line)
                .facts()
                .driver_module
                .unwrap(),
            "580.159.04"
        );
    }
    let garbage = Tree::new().put("proc/driver/nvidia/version", b"\xff\x1b[2J 1. .2 a.b");
    assert!(garbage.facts().driver_module.is_err());
    assert!(Tree::new().facts().driver_module.unwrap_err().contains("not loaded"));
}

#[test]
fn unusable_device_files_give_the_reason() {
    let tree = Tree::new()
        .link("dev/nvidiactl", "/dev/null")
        .link("dev/nvidia10", "/dev/null")
        .put("dev/nvidia2", "")
        .link("dev/nvidia3", "nvidia3")
        .put("dev/nvidia-caps", "");
    let nodes = tree.facts().device_nodes;
    let paths: Vec<&str> = nodes.iter().map(|n| n.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia2",
            "/dev/nvidia3",
            "/dev/nvidia10"
        ]
    );
    assert_eq!(nodes[0].access, Ok(()));
    assert_eq!(nodes[1].access, Err("does not exist".into()));
    assert_eq!(nodes[2].access, Err("is not a device".into()));
    assert!(nodes[3].access.is_err());
}

#[test]
fn ptrace_scope_and_capabilities_are_read() {
    let tree = Tree::new()
        .put("proc/sys/kernel/yama/ptrace_scope", "1\n")
        .put("proc/self/status", "CapEff:\t0000000000080000\n");
    let facts = tree.facts();
    assert_eq!(facts.ptrace_scope, Ok(PtraceScope::Restricted));
    assert_eq!(
        facts.capabilities,
        Ok(Capabilities {
            sys_ptrace: true,
            sys_admin: false
        })
    );
    assert_eq!(Tree::new().facts().ptrace_scope, Ok(PtraceScope::NoYama));
    assert!(Tree::new().facts().capabilities.is_err());
    assert!(
        Tree::new()
            .put("proc/sys/kernel/yama/ptrace_scope", "\x1b7")
            .facts()
            .ptrace_scope
            .is_err()
    );
}

#[test]
fn containers_are_recognised() {
    assert_eq!(Tree::new().facts().container, None);
    assert!(Tree::new().put(".dockerenv", "").facts().container.is_some());
    assert!(
        Tree::new()
            .put("proc/1/cgroup", "0::/kubepods.slice/x\n")
            .facts()
            .container
            .unwrap()
            .contains("kubepods")
    );
    assert_eq!(
        Tree::new().put("proc/1/cgroup", "0::/init.scope\n").facts().container,
        None
    );
    assert_eq!(
        Tree::new()
            .link("proc/self/ns/pid", "pid:[4026531836]")
            .facts()
            .host_pids,
        Ok(true)
    );
    assert_eq!(
        Tree::new()
            .link("proc/self/ns/pid", "pid:[4026532000]")
            .facts()
            .host_pids,
        Ok(false)
    );
    assert!(
        Tree::new()
            .link("proc/self/ns/pid", "elsewhere")
            .facts()
            .host_pids
            .is_err()
    );
}

#[test]
fn runtime_directory_must_belong_to_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let of = |path: Option<&Path>| Facts::gather(&Root::at("/nonexistent-root"), path).runtime_dir;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(of(Some(dir.path())).unwrap().path, dir.path());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(of(Some(dir.path())).unwrap_err().contains("755"));
    assert!(of(None).unwrap_err().contains("not set"));
    assert!(of(Some(Path::new("run"))).unwrap_err().contains("absolute"));
    assert!(of(Some(Path::new("/nonexistent-dir"))).is_err());
}

#[test]
fn facts_of_this_machine_are_gathered() {
    let facts = Facts::gather(&Root::default(), None);
    assert!(facts.capabilities.is_ok() && facts.host_pids.is_ok(), "{facts:?}");
    assert!(facts.device_nodes.len() >= 3);
}
