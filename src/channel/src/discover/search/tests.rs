#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{DirBuilderExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::{Life, OpenError, Options, Publisher, ReadError};

/// Makes a directory on tmpfs that stands for a machine's root.
fn machine() -> tempfile::TempDir {
    let root = tempfile::Builder::new()
        .prefix("gpumem-test-")
        .tempdir_in("/dev/shm")
        .unwrap();
    fs::create_dir_all(root.path().join("dev/shm")).unwrap();
    root
}

/// Makes a private directory below the root.
fn directory(root: &Path, name: &str) -> PathBuf {
    let dir = root.join("dev/shm").join(name);
    fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    dir
}

fn publisher(dir: &Path) -> Publisher {
    let options = Options {
        dir: Some(dir.to_owned()),
        blocks: 1024,
        segments: 64,
        events: 64,
        strings: 64,
        ..Options::default()
    };
    Publisher::create(&options).unwrap()
}

/// Returns the name of this user's own directory.
fn own_name() -> String {
    format!("gpumem-{}", rustix::process::geteuid().as_raw())
}

fn scan(root: &Path) -> Scan {
    within(&[], [root.to_owned()])
}

fn has(scan: &Scan, publisher: &Publisher) -> bool {
    scan.found.iter().any(|found| found.path == publisher.path())
}

/// Changes the owner of a file. Only root can.
fn give(path: &Path, uid: u32) -> bool {
    let given = std::os::unix::fs::chown(path, Some(uid), Some(uid)).is_ok();
    if !given {
        eprintln!("SKIPPED: only root can give a file to another user");
    }
    given
}

/// Stops a thread at the end of its test, even if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const JUNK: usize = 4200;

fn overflows(scan: &Scan) -> Vec<&Problem> {
    scan.problems
        .iter()
        .filter(|problem| problem.kind == ProblemKind::Overflow)
        .collect()
}

#[test]
fn junk_names_do_not_displace_a_live_channel() {
    let root = machine();
    let dir = directory(root.path(), &own_name());
    for number in 0..JUNK {
        directory(root.path(), &format!("other-{number}"));
        fs::write(dir.join(format!("junk-{number}")), "").unwrap();
    }
    let publisher = publisher(&dir);
    for found in [scan(root.path()), within(&[dir], [])] {
        assert!(has(&found, &publisher));
        assert_eq!((found.found.len(), found.problems.len()), (1, 0));
    }
}

#[test]
fn junk_with_channel_names_is_reported_and_not_preferred() {
    let root = machine();
    let dir = directory(root.path(), &own_name());
    let publisher = publisher(&dir);
    for number in 0..JUNK {
        fs::write(dir.join(format!("{number}-1-0.gpumem")), [1; 4096]).unwrap();
    }
    for found in [scan(root.path()), within(std::slice::from_ref(&dir), [])] {
        assert!(has(&found, &publisher), "the file with the most memory comes first");
        assert_eq!(found.found.len(), FOUND_MAX);
        let [overflow] = overflows(&found)[..] else {
            unreachable!("{:?}", found.problems)
        };
        assert_eq!(overflow.path, dir);
        assert!(
            overflow.reason.starts_with("105 channel files of its owner"),
            "{}",
            overflow.reason
        );
    }
}

#[test]
fn one_user_cannot_displace_channels_of_another() {
    let root = machine();
    let victim = directory(root.path(), "gpumem-54321");
    let publisher = publisher(&victim);
    if !give(&victim, 54321) || !give(publisher.path(), 54321) {
        return;
    }
    let flood = directory(root.path(), "gpumem-1000");
    for number in 0..JUNK {
        give(&directory(root.path(), &format!("gpumem-{number:07}-x")), 1000);
        let file = flood.join(format!("{number}-1-0.gpumem"));
        fs::write(&file, [1; 64]).unwrap();
        give(&file, 1000);
    }
    give(&flood, 1000);
    let start = Instant::now();
    let found = scan(root.path());
    eprintln!("{JUNK} directories and {JUNK} files: {:?}", start.elapsed());
    assert!(has(&found, &publisher));
    assert_eq!(found.found.len(), FOUND_MAX);
    let reported: Vec<&str> = overflows(&found)
        .iter()
        .map(|problem| problem.reason.as_str())
        .collect();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[0].starts_with("3689 channel directories"), "{reported:?}");
    assert!(
        reported[1].starts_with("105 channel files of its owner"),
        "{reported:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn root_of_a_container_cannot_displace_other_channels() {
    let (flooded, other) = (machine(), machine());
    let dir = directory(flooded.path(), &own_name());
    for number in 0..JUNK {
        fs::write(dir.join(format!("{number}-1-0.gpumem")), [1; 64]).unwrap();
    }
    let publisher = publisher(&directory(other.path(), &own_name()));
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root looks at other roots' files");
        return;
    }
    let found = within(&[], [flooded.path().to_owned(), other.path().to_owned()]);
    assert!(has(&found, &publisher));
    assert_eq!(overflows(&found).len(), 1);
}

/// Opening a FIFO for reading can block, and opening a device can have effects.
#[test]
fn only_regular_files_are_opened() {
    let root = machine();
    let dir = directory(root.path(), &own_name());
    let publisher = publisher(&dir);
    let fifo = dir.join("1-1-0.gpumem");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    symlink("/dev/zero", dir.join("1-2-0.gpumem")).unwrap();
    fs::create_dir(dir.join("1-3-0.gpumem")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("1-4-0.gpumem")).unwrap();
    // Opening a watchdog device would arm it. The test uses the number of `/dev/zero`, which is harmless.
    let device = rustix::fs::makedev(1, 5);
    let mode = rustix::fs::Mode::RUSR;
    if rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("1-5-0.gpumem"),
        FileType::CharacterDevice,
        mode,
        device,
    )
    .is_err()
    {
        eprintln!("SKIPPED in part: devices cannot be made here");
    }
    // Also in place of users' directories.
    rustix::fs::mkfifoat(rustix::fs::CWD, root.path().join("dev/shm/gpumem-7"), mode).unwrap();
    symlink(&dir, root.path().join("dev/shm/gpumem-8")).unwrap();
    // Also in place of the directory that holds them.
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::create_dir(other.path().join("dev")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, other.path().join("dev/shm"), mode).unwrap();
    let found = within(&[], [other.path().to_owned(), root.path().to_owned()]);
    assert!(has(&found, &publisher));
    assert_eq!((found.found.len(), found.problems), (1, vec![]));
    // A non-blocking open for writing succeeds only if a reader has the FIFO open.
    let is_read = || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).is_ok()
    };
    let handle = directory::open_directory(&dir).unwrap();
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut seen = false;
            while !stopped.load(Ordering::Relaxed) {
                seen |= is_read();
            }
            seen
        });
        let stop = StopAtEnd(&stopped);
        for _ in 0..2000 {
            for name in ["1-1-0.gpumem", "1-4-0.gpumem", "1-5-0.gpumem"] {
                assert!(directory::open_in(&handle, OsStr::new(name)).is_err());
            }
        }
        drop(stop);
        assert!(!watch.join().unwrap(), "it was opened before it was looked at");
    });
}

#[test]
fn foreign_directory_not_on_tmpfs_is_refused_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let kind = rustix::fs::statfs(root.path()).unwrap().f_type as u64;
    if kind == 0x0102_1994 {
        eprintln!("SKIPPED: the temporary directory is in memory here");
        return;
    }
    fs::create_dir_all(root.path().join("dev/shm")).unwrap();
    let dir = directory(root.path(), &own_name());
    fs::write(dir.join("1-1-0.gpumem"), "").unwrap();
    let found = scan(root.path());
    assert_eq!(found.found, []);
    let [problem] = &found.problems[..] else {
        unreachable!("{:?}", found.problems)
    };
    assert_eq!((&problem.path, problem.kind), (&dir, ProblemKind::Refused));
    assert!(
        problem.reason.starts_with("not in memory (tmpfs)"),
        "{}",
        problem.reason
    );
}

fn is_mapped(path: &Path) -> bool {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .contains(path.to_str().unwrap())
}

/// A reader of a mapped file that is truncated is killed by SIGBUS. The root of a container can have the uid of this
/// user.
#[test]
fn foreign_file_is_not_mapped_and_may_be_truncated() {
    let root = machine();
    let dir = directory(root.path(), &own_name());
    let publisher = publisher(&dir);
    let own = within(&[dir], []);
    let reader = own.found[0].open().unwrap();
    assert!(is_mapped(publisher.path()) && format!("{reader:?}").contains("Alive"));
    drop(reader);
    let path = publisher.path().to_owned();
    drop(publisher);
    let copy = fs::read(&path).unwrap();
    let stopped = AtomicBool::new(false);
    let (mut whole, mut cut) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(&path).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                file.set_len(4096).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &copy[4096..], 4096).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let _stop = StopAtEnd(&stopped);
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            let found = scan(root.path());
            let Ok(mut reader) = found.found[0].open() else {
                cut += 1;
                continue;
            };
            assert!(!is_mapped(&path));
            for _ in 0..20 {
                match reader.refresh() {
                    Ok(snapshot) => {
                        assert_eq!(snapshot.life, Life::Closed);
                        whole += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, ReadError::Truncated), "{error}");
                        cut += 1;
                    }
                }
            }
        }
    });
    eprintln!("read whole {whole} times, truncated {cut} times, and never killed");
    assert!(whole > 0 && cut > 0, "{whole} {cut}");
}

#[test]
fn file_that_replaced_a_found_one_is_not_opened() {
    let root = machine();
    let dir = directory(root.path(), &own_name());
    let publisher = publisher(&dir);
    let found = scan(root.path()).found.remove(0);
    let copy = fs::read(publisher.path()).unwrap();
    fs::rename(publisher.path(), dir.join("kept")).unwrap();
    fs::write(publisher.path(), copy).unwrap();
    assert!(matches!(found.open(), Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound));
}
