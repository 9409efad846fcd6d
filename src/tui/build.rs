//! Passes the commit and the target to the program, for `--version`.
//!
//! It runs again only when a source file of the program changes, which rebuilds the program anyway; watching git's files would
//! rebuild it with every commit. Changes that are committed later therefore count as modified until the next build.
//! Outside of a git checkout, the commit is the one that `cargo package` recorded, or not known.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of this package in the repository, as git writes it.
const PACKAGE: &str = "src/tui/";

/// The sources of the program, relative to the root of the repository.
const SOURCES: [&str; 7] = [
    "src/text/src",
    "src/channel/src",
    "src/alloc/src",
    "src/snapshot/src",
    "src/probe/src",
    "src/tui/src",
    "demo/src",
];

fn main() {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
    for sources in SOURCES {
        watch(&package.join("../..").join(sources));
    }
    let commit = commit(&package).unwrap_or_else(|| "commit not known".into());
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=GPUMEM_BUILD={commit}, {target}");
}

/// Watches every source file below a directory, except those of tests.
fn watch(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "tests" || name == "snapshots" {
            continue;
        }
        if path.is_dir() {
            watch(&path);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// Returns the text for the commit; `None` if it is not known.
fn commit(package: &Path) -> Option<String> {
    // An unpacked package may be inside the checkout of another repository.
    let ours = git(package, &["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix == PACKAGE);
    if !ours {
        return packaged(package);
    }
    let commit = git(package, &["rev-parse", "--short=12", "HEAD"])?;
    let root = package.join("../..");
    let changes = git(&root, &[&["status", "--porcelain", "--"][..], &SOURCES].concat())?;
    let modified = if changes.is_empty() { "" } else { ", modified" };
    Some(format!("commit {commit}{modified}"))
}

/// Runs git and returns its output, trimmed.
fn git(folder: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(args).output().ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8(text).ok()?.trim().to_owned())
}

/// Returns the commit that `cargo package` recorded: `"sha1": "..."`.
fn packaged(package: &Path) -> Option<String> {
    let text = std::fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let rest = text.split_once("\"sha1\"")?.1;
    let sha = rest.split('"').nth(1)?;
    let short = sha.get(..12).filter(|sha| sha.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some(format!("commit {short}"))
}
