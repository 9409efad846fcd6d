//! The publisher's identity on systems that give little or unusual information about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpumem_channel::{Life, Publisher, Reader};

use crate::common::{channel_dir, files, options, victim};

/// Returns the directory of a test that runs in a child process; `None` if it was started directly.
fn folder() -> Option<PathBuf> {
    std::env::var_os("GPUMEM_TEST_VICTIM").map(PathBuf::from)
}

fn life(path: &Path) -> Life {
    Reader::open(path).unwrap().life().unwrap()
}

/// The kernel truncates the name of a program to 15 bytes, even within a character.
#[test]
fn program_name_may_be_cut_within_a_character() {
    let dir = channel_dir();
    assert!(
        victim("identity::victim_with_half_a_name", dir.path())
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(files(dir.path()).len(), 1);
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_with_half_a_name() {
    let Some(dir) = folder() else { return };
    let name = &"обучение_модели".as_bytes()[..15];
    assert!(std::str::from_utf8(name).is_err());
    fs::write("/proc/self/comm", name).unwrap();
    Publisher::create(&options(&dir)).unwrap();
}

/// The `/proc` of a sandboxed service may show processes only, and then has no boot id.
#[test]
fn channels_work_without_a_boot_id() {
    let dir = channel_dir();
    let outside = Publisher::create(&options(dir.path())).unwrap();
    let victim = victim("identity::victim_without_a_boot_id", dir.path());
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
    assert_eq!(left.len(), 1, "the channel published there: {left:?}");
    assert_eq!(life(left[0]), Life::Closed);
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_without_a_boot_id() {
    let Some(dir) = folder() else { return };
    let outside = files(&dir).remove(0);
    assert_eq!(life(&outside), Life::Alive);
    let publisher = Publisher::create(&options(&dir)).unwrap();
    assert_eq!(life(publisher.path()), Life::Alive);
}
