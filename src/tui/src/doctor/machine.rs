//! What a bundle says of the machine, besides the checks and the report: versions, driver, limits and the kernel's log.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use gpumem_probe::{Fact, Root, driver_log};
use gpumem_text::{clean, clean_line};

use crate::cli::VERSION;

/// The most bytes that are read of a file.
const MAX: u64 = 1 << 20;

/// The least id of users who are people.
const PEOPLE: u32 = 1000;
/// The id of `nobody`.
const NOBODY: u32 = 65534;

/// Texts about a machine, and what is known to be private on it.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Versions of this program, the kernel and the distribution.
    pub versions: String,
    /// Files of the driver: its version, its parameters and its cards.
    pub driver: String,
    /// Limits of this process and of the machine.
    pub limits: String,
    /// Lines of the driver in the kernel's log.
    pub log: Fact<Vec<String>>,
    /// Names of users.
    pub users: Vec<String>,
    /// Home directories.
    pub homes: Vec<String>,
    /// Names of this machine.
    pub hosts: Vec<String>,
    /// Names and values of this process's environment variables.
    pub environment: Vec<(String, String)>,
}

impl Machine {
    /// Looks at this machine.
    pub(super) fn look() -> Machine {
        let (mut users, mut homes) = people(&read("/etc/passwd"));
        // A directory service has more users than the file.
        for home in names_in("/home") {
            homes.push(format!("/home/{home}"));
            users.push(home);
        }
        let text = |text: OsString| clean(&text.to_string_lossy());
        let environment: Vec<(String, String)> = std::env::vars_os()
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        for (name, value) in &environment {
            match name.as_str() {
                "HOME" => homes.push(value.clone()),
                "USER" | "LOGNAME" | "SUDO_USER" => users.push(value.clone()),
                _ => {}
            }
        }
        Machine {
            versions: versions(),
            driver: files(&driver_files()),
            limits: limits(),
            log: driver_log(&Root::default()),
            users,
            homes,
            hosts: vec![read("/etc/hostname").trim().to_owned()],
            environment,
        }
    }
}

/// Reads a text. An unreadable file is empty.
fn read(path: impl AsRef<Path>) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // What was read until an error is kept.
        let _ = file.take(MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes)
        .lines()
        .map(clean)
        .fold(String::new(), |text, line| text + &line + "\n")
}

/// Returns the names in a folder, in order.
fn names_in(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(4096);
    let mut names: Vec<String> = entries
        .map(|entry| clean(&entry.file_name().to_string_lossy()))
        .collect();
    names.sort();
    names
}

/// Returns the names and home directories of people in a text like `/etc/passwd`.
fn people(passwd: &str) -> (Vec<String>, Vec<String>) {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let people = fields.filter_map(|fields| {
        let uid: u32 = fields.get(2)?.parse().ok()?;
        let name = fields.first().filter(|_| uid >= PEOPLE && uid != NOBODY)?;
        Some(((*name).to_owned(), (*fields.get(5)?).to_owned()))
    });
    people.unzip()
}

fn versions() -> String {
    let kernel = rustix::system::uname();
    let part = |text: &std::ffi::CStr| clean_line(text.to_bytes(), 200);
    let release = read("/etc/os-release");
    let distribution = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    // Without the kernel's build line, which has the name of who built it.
    format!(
        "gpumem-tui {VERSION}\n{} {} {}\n{}\n",
        part(kernel.sysname()),
        part(kernel.release()),
        part(kernel.machine()),
        distribution.unwrap_or("distribution not known").trim_matches('"')
    )
}

fn driver_files() -> Vec<String> {
    let mut files: Vec<String> = ["version", "params"]
        .map(|name| format!("/proc/driver/nvidia/{name}"))
        .into();
    for bus in names_in("/proc/driver/nvidia/gpus") {
        files.push(format!("/proc/driver/nvidia/gpus/{bus}/information"));
    }
    for module in ["nvidia", "nvidia_uvm"] {
        files.push(format!("/sys/module/{module}/version"));
        for parameter in names_in(format!("/sys/module/{module}/parameters")) {
            files.push(format!("/sys/module/{module}/parameters/{parameter}"));
        }
    }
    files
}

/// Returns the contents of files, each below its name. Says so if none is there.
fn files(names: &[String]) -> String {
    let mut out = String::new();
    for name in names {
        let text = read(name);
        // Writing to a string cannot fail.
        let _ = match text.lines().count() {
            0 => Ok(()),
            1 => writeln!(out, "{name}: {}", text.trim()),
            _ => writeln!(out, "{name}:\n{text}"),
        };
    }
    match out.is_empty() {
        true => "no file of the NVIDIA driver can be read here\n".to_owned(),
        false => out,
    }
}

fn limits() -> String {
    let places = [
        "/proc/sys/kernel/dmesg_restrict",
        "/proc/sys/kernel/yama/ptrace_scope",
        "/proc/sys/vm/max_map_count",
        "/proc/sys/vm/nr_hugepages",
        "/proc/sys/vm/overcommit_memory",
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/pids.max",
        "/proc/self/limits",
    ];
    files(&places.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_from_the_system() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nana:x:1000:1000:Ana:/data/ana:/bin/sh\nnobody:x:65534:1::/:/x\nbroken\n";
        assert_eq!(people(passwd), (vec!["ana".to_owned()], vec!["/data/ana".to_owned()]));
    }

    #[test]
    fn this_machine_has_versions_and_limits() {
        let machine = Machine::look();
        assert!(
            machine.versions.contains("Linux ") && machine.versions.contains(VERSION),
            "{}",
            machine.versions
        );
        assert!(machine.limits.contains("Max open files"), "{}", machine.limits);
        assert!(!machine.driver.is_empty() && !machine.environment.is_empty());
    }
}
