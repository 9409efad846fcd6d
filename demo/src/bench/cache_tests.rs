#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const NAME: &str = "report.json";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn folder_and_file_are_private() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache/gpumem");
    assert!(Folder::open(&path).unwrap().is_none());
    let folder = Folder::create(&path).unwrap();
    folder.write(NAME, b"one").unwrap();
    folder.write(NAME, b"two").unwrap();
    assert_eq!(folder.read(NAME).unwrap(), b"two");
    assert_eq!((mode(&path), mode(&path.join(NAME))), (0o700, 0o600));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn folders_that_others_control_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gpumem");
    let refused = |why: &str| {
        for error in [Folder::create(&path).unwrap_err(), Folder::open(&path).unwrap_err()] {
            assert!(error.to_string().contains(why), "{error}");
        }
    };
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), &path).unwrap();
    refused("symbolic link");
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"").unwrap();
    refused("not a folder");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
    refused("other users can write");
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        refused("another user");
    }
}

#[test]
fn only_small_regular_files_of_the_user_are_read() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::create(home.path()).unwrap();
    let refused = |name: &str, why: &str| {
        let error = folder.read(name).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(name), "{error}");
    };
    let at = |name: &str| home.path().join(name);
    refused("absent", "cannot read it");
    symlink("/etc/passwd", at("link")).unwrap();
    refused("link", "cannot read it");
    fs::create_dir(at("directory")).unwrap();
    refused("directory", "not a regular file");
    // A reader that waited for a writer would hang here.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("fifo"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    refused("fifo", "not a regular file");
    let most = usize::try_from(MAX_BYTES).unwrap();
    fs::write(at("most"), vec![b' '; most]).unwrap();
    assert_eq!(folder.read("most").unwrap().len(), most);
    fs::write(at("more"), vec![b' '; most + 1]).unwrap();
    refused("more", "too large");
    assert!(folder.write("more", &vec![b' '; most + 1]).is_err());
    if rustix::process::geteuid().is_root() {
        fs::write(at("foreign"), b"{}").unwrap();
        std::os::unix::fs::chown(at("foreign"), Some(12_345), None).unwrap();
        refused("foreign", "another user");
    }
}

#[test]
fn temporary_names_of_killed_processes_are_passed_over() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::create(home.path()).unwrap();
    fs::write(
        home.path().join(format!(".{NAME}.{}-0", std::process::id())),
        b"of another",
    )
    .unwrap();
    folder.write(NAME, b"whole").unwrap();
    assert_eq!(folder.read(NAME).unwrap(), b"whole");
}

#[test]
fn file_that_cannot_be_renamed_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::create(home.path()).unwrap();
    // A file cannot take the place of a directory.
    fs::create_dir(home.path().join(NAME)).unwrap();
    assert!(folder.write(NAME, b"whole").is_err());
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn names_are_those_with_prefix_and_suffix() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::create(home.path()).unwrap();
    for name in ["a-2.json", "a-1.json", ".a-1.json", "b-1.json", "a-1.txt"] {
        folder.write(name, b"").unwrap();
    }
    assert_eq!(folder.names("a-", ".json").unwrap(), ["a-1.json", "a-2.json"]);
}
