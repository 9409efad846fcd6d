//! Who publishes, where the system says little of it or says it oddly.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpumem_channel::{Life, Publisher, Reader};

use crate::common::{channel_dir, files, options, victim};

/// The folder of a test that another one runs in a process of its own.
fn folder() -> Option<PathBuf> {
    std::env::var_os("GPUMEM_TEST_VICTIM").map(PathBuf::from)
}

fn life(path: &Path) -> Life {
    Reader::open(path).unwrap().life().unwrap()
}

/// The kernel cuts the name of a program after 15 bytes, and cares for no characters.
#[test]
fn a_name_that_is_cut_in_a_character_keeps_nobody_from_publishing() {
    let dir = channel_dir();
    assert!(victim("who::of_half_a_name", dir.path()).status().unwrap().success());
    assert_eq!(files(dir.path()).len(), 1);
}

/// The other process of the test above; does nothing by itself.
#[test]
fn of_half_a_name() {
    let Some(dir) = folder() else { return };
    let name = &"обучение_модели".as_bytes()[..15];
    assert!(std::str::from_utf8(name).is_err());
    fs::write("/proc/self/comm", name).unwrap();
    Publisher::create(&options(&dir)).unwrap();
}

/// A service in a sandbox has a `/proc` of processes only, which does not tell boots apart.
#[test]
fn who_does_not_know_the_boot_publishes_and_sees_who_lives() {
    let dir = channel_dir();
    let outside = Publisher::create(&options(dir.path())).unwrap();
    let victim = victim("who::where_the_boot_is_not_known", dir.path());
    let run = |script: &str| {
        let mut unshare = Command::new("unshare");
        let unshare = unshare
            .args(["-rmpf", "--", "sh", "-c", script])
            .arg(victim.get_program());
        let unshare = unshare.args(victim.get_args()).arg("--nocapture");
        unshare.env("GPUMEM_TEST_VICTIM", dir.path()).output()
    };
    let mount = "mount -t proc -o subset=pid gpumem-test /proc";
    let trial = run(mount);
    if !trial.as_ref().is_ok_and(|trial| trial.status.success()) {
        println!("SKIPPED: no right to mount such a /proc here ({trial:?})");
        return;
    }
    let output = run(&format!("{mount} && exec \"$0\" \"$@\"")).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    let left = files(dir.path());
    let left: Vec<_> = left.iter().filter(|path| *path != outside.path()).collect();
    assert_eq!(left.len(), 1, "what published in there: {left:?}");
    assert_eq!(life(left[0]), Life::Closed);
}

/// The other process of the test above; does nothing by itself.
#[test]
fn where_the_boot_is_not_known() {
    let Some(dir) = folder() else { return };
    let outside = files(&dir).remove(0);
    assert_eq!(life(&outside), Life::Alive);
    let publisher = Publisher::create(&options(&dir)).unwrap();
    assert_eq!(life(publisher.path()), Life::Alive);
}
