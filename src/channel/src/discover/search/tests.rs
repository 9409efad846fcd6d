#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{DirBuilderExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::{Life, OpenError, Options, Publisher, ReadError};

/// A machine's root, on tmpfs.
fn machine() -> tempfile::TempDir {
    let root = tempfile::Builder::new()
        .prefix("gpumem-test-")
        .tempdir_in("/dev/shm")
        .unwrap();
    fs::create_dir_all(root.path().join("dev/shm")).unwrap();
    root
}

/// A private directory there.
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

/// The user's own directory by number.
fn own_name() -> String {
    format!("gpumem-{}", rustix::process::geteuid().as_raw())
}

fn scan(root: &Path) -> Scan {
    within(&[], [root.to_owned()])
}

fn has(scan: &Scan, publisher: &Publisher) -> bool {
    scan.found.iter().any(|found| found.path == publisher.path())
}

/// Gives something to another user. Only root can.
fn give(path: &Path, uid: u32) -> bool {
    let given = std::os::unix::fs::chown(path, Some(uid), Some(uid)).is_ok();
    if !given {
        eprintln!("SKIPPED: only root can give a file to another user");
    }
    given
}

/// Has a thread stop, also where the test fails that it belongs to.
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
fn junk_names_take_no_place_of_a_live_channel() {
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
fn junk_that_is_named_as_channels_are_leaves_the_live_one_and_is_told() {
    let root = machine();
    let dir = directory(root.path(), &own_name());
    let publisher = publisher(&dir);
    for number in 0..JUNK {
        fs::write(dir.join(format!("{number}-1-0.gpumem")), [1; 4096]).unwrap();
    }
    for found in [scan(root.path()), within(std::slice::from_ref(&dir), [])] {
        assert!(has(&found, &publisher), "what has most memory comes first");
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
fn one_users_directories_and_files_take_no_place_of_anothers() {
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
    let told: Vec<&str> = overflows(&found)
        .iter()
        .map(|problem| problem.reason.as_str())
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("3689 channel directories"), "{told:?}");
    assert!(told[1].starts_with("105 channel files of its owner"), "{told:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_containers_root_takes_no_place_of_anothers() {
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

/// Opened for reading without care, a FIFO holds the reader up, and a device does what it does.
#[test]
fn what_is_no_regular_file_is_not_opened() {
    let root = machine();
    let dir = directory(root.path(), &own_name());
    let publisher = publisher(&dir);
    let fifo = dir.join("1-1-0.gpumem");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    symlink("/dev/zero", dir.join("1-2-0.gpumem")).unwrap();
    fs::create_dir(dir.join("1-3-0.gpumem")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("1-4-0.gpumem")).unwrap();
    // What the kernel's watchdog does with who opens its device is not for a test: this one ends nobody.
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
    // In place of users' directories, too.
    rustix::fs::mkfifoat(rustix::fs::CWD, root.path().join("dev/shm/gpumem-7"), mode).unwrap();
    symlink(&dir, root.path().join("dev/shm/gpumem-8")).unwrap();
    // And of the directory that those are in.
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::create_dir(other.path().join("dev")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, other.path().join("dev/shm"), mode).unwrap();
    let found = within(&[], [other.path().to_owned(), root.path().to_owned()]);
    assert!(has(&found, &publisher));
    assert_eq!((found.found.len(), found.problems), (1, vec![]));
    // A writer that does not wait learns whether somebody has it open.
    let is_read = || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).is_ok()
    };
    let handle = place::open_directory(&dir).unwrap();
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
                assert!(place::open_in(&handle, OsStr::new(name)).is_err());
            }
        }
        drop(stop);
        assert!(!watch.join().unwrap(), "it was opened before it was looked at");
    });
}

#[test]
fn a_foreign_directory_that_is_not_in_memory_is_refused_and_told() {
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

/// A mapped file that is cut short ends its reader by SIGBUS. Root of a container has the number that we have.
#[test]
fn a_foreign_file_is_not_mapped_and_may_be_cut_short_while_it_is_read() {
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
    eprintln!("read whole {whole} times, cut short {cut} times, and never ended");
    assert!(whole > 0 && cut > 0, "{whole} {cut}");
}

#[test]
fn another_file_under_the_name_of_one_that_was_found_is_not_opened() {
    let root = machine();
    let dir = directory(root.path(), &own_name());
    let publisher = publisher(&dir);
    let found = scan(root.path()).found.remove(0);
    let copy = fs::read(publisher.path()).unwrap();
    fs::rename(publisher.path(), dir.join("kept")).unwrap();
    fs::write(publisher.path(), copy).unwrap();
    assert!(matches!(found.open(), Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound));
}
