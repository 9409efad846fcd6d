//! Alive, closed or died; the owner of the file; and which files are kept or removed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpumem_channel::{CreateError, Life, Options, Publisher, Reader};

use crate::common::{Heap, channel_dir, files, options, publisher, victim};

#[test]
fn publisher_is_alive_until_dropped_then_closed() {
    let dir = channel_dir();
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    let path = publisher.path().to_owned();
    let metadata = path.metadata().unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert!(
        metadata.blocks() * 512 >= metadata.len(),
        "all of its memory is allocated at creation, so no store can fail later"
    );
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.refresh().unwrap().life, Life::Alive);
    drop(publisher);
    assert_eq!(reader.refresh().unwrap().life, Life::Closed);
    assert_eq!(
        Reader::open(&path).unwrap().refresh().unwrap().life,
        Life::Closed,
        "its black box stays"
    );
    assert_eq!(files(dir.path()).len(), 1, "and nothing else");
    let status = victim("life::victim_beside_a_channel", path.file_name().unwrap().as_ref())
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert!(status.success(), "a directory that has a channel is accepted");
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_beside_a_channel() {
    if let Some(name) = std::env::var_os("GPUMEM_TEST_VICTIM") {
        Reader::open(name.as_ref()).unwrap();
    }
}

/// A directory that its owner could not search or write would be refused later.
#[test]
fn umask_does_not_restrict_the_channel() {
    for mask in ["0177", "0277"] {
        let dir = channel_dir();
        let inside = dir.path().join("made");
        let mut masked = victim("life::victim_with_a_mask", &inside);
        assert!(masked.env("GPUMEM_TEST_MASK", mask).status().unwrap().success());
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&inside), mode(&files(&inside)[0])), (0o700, 0o600), "{mask}");
    }
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_with_a_mask() {
    let (Some(dir), Ok(mask)) = (
        std::env::var_os("GPUMEM_TEST_VICTIM"),
        std::env::var("GPUMEM_TEST_MASK"),
    ) else {
        return;
    };
    let mask = u32::from_str_radix(&mask, 8).unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
    Publisher::create(&options(dir.as_ref())).unwrap();
}

/// For example in an old locale: invalid UTF-8 is replaced, as in the program's name.
#[test]
fn job_name_may_be_invalid_utf8() {
    let dir = channel_dir();
    let mut named = victim("life::victim_of_a_job", dir.path());
    assert!(
        named
            .env("GPUMEM_JOB", OsStr::from_bytes(b"caf\xe9 7"))
            .status()
            .unwrap()
            .success()
    );
    let snapshot = Reader::open(&files(dir.path())[0]).unwrap().refresh().unwrap().clone();
    assert_eq!(snapshot.identity.job, "caf\u{fffd} 7");
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_of_a_job() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    let named = Options {
        job: Options::default().job,
        ..options(Path::new(&dir))
    };
    Publisher::create(&named).unwrap();
}

/// Each copy of this library counts its own channels. A process has several copies if it executed itself, or if a
/// library that it loaded has one.
#[test]
fn name_taken_by_another_copy_is_skipped() {
    let dir = channel_dir();
    let status = victim("life::victim_that_executes_itself", dir.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let mut lives: Vec<(PathBuf, Life)> = files(dir.path())
        .into_iter()
        .map(|path| (path.clone(), Reader::open(&path).unwrap().life().unwrap()))
        .collect();
    lives.sort_by(|one, other| one.0.cmp(&other.0));
    let (names, lives): (Vec<_>, Vec<_>) = lives.into_iter().unzip();
    assert_eq!(lives, [Life::Died, Life::Died, Life::Closed], "{names:?}");
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_that_executes_itself() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    let publisher = || Publisher::create(&options(dir.as_ref())).unwrap();
    let first = publisher();
    if std::env::var_os("GPUMEM_TEST_AGAIN").is_some() {
        return;
    }
    let second = publisher();
    let error = victim("life::victim_that_executes_itself", dir.as_ref())
        .env("GPUMEM_TEST_AGAIN", "")
        .exec();
    drop((first, second));
    unreachable!("{error}");
}

/// Twice as many as a C program has devices. One more fails, keeps no descriptor open, and leaves no file.
#[test]
fn process_may_have_256_channels() {
    let dir = channel_dir();
    let status = victim("life::victim_with_many_channels", dir.path()).status().unwrap();
    assert!(status.success(), "{status}");
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_with_many_channels() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    let dir = Path::new(&dir);
    let options = Options {
        blocks: 16,
        ..options(dir)
    };
    let open = || files(Path::new("/proc/self/fd")).len();
    let before = open();
    let publishers: Vec<Publisher> = (0..256).map(|_| Publisher::create(&options).unwrap()).collect();
    let too_many = Publisher::create(&options).err().map(|error| error.to_string());
    assert_eq!(
        too_many.as_deref(),
        Some("this process has too many channels open (256)")
    );
    assert_eq!((files(dir).len(), open() - before), (256, 256));
    drop(publishers);
    assert_eq!(open(), before);
    assert!(Publisher::create(&options).is_ok(), "a channel was dropped");
}

#[test]
fn concurrent_readers_are_not_taken_for_a_publisher() {
    let dir = channel_dir();
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    let path = publisher.path().to_owned();
    drop(publisher);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert_eq!(Reader::open(&path).unwrap().refresh().unwrap().life, Life::Closed);
                }
            });
        }
    });
}

#[test]
fn directory_open_to_others_or_on_disk_is_refused() {
    let open = channel_dir();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = |dir: &Path| match Publisher::create(&Options {
        dir: Some(dir.into()),
        ..options(dir)
    }) {
        Err(CreateError::NoDirectory(why)) => why.join("; "),
        Err(other) => other.to_string(),
        Ok(_) => String::new(),
    };
    assert!(refused(open.path()).contains("0700"), "{}", refused(open.path()));
    let target = channel_dir();
    let link = target.path().join("link");
    let inner = target.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&inner, &link).unwrap();
    for end in ["", "/", "//", "/.", "/./"] {
        let mut link = link.clone().into_os_string();
        link.push(end);
        let said = refused(link.as_ref());
        let why = ": cannot open it: it is a symbolic link: name the directory itself";
        assert!(said.ends_with(why), "{link:?}: {said}");
    }
    assert_eq!(refused(&inner.join("./")), "", "the directory itself is accepted");
    assert!(refused(Path::new("/proc/self")).contains("/proc/self"));
    assert!(refused(Path::new("/nonexistent/gpumem")).contains("cannot make it"));

    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let made = disk.path().join("made");
    match refused(&made) {
        said if said.is_empty() => println!("SKIPPED: the target folder is in memory"),
        said => {
            assert!(said.contains("not in memory"), "{said}");
            assert!(!made.exists(), "the created directory is removed again");
            assert!(!refused(disk.path()).is_empty() && disk.path().exists());
        }
    }
}

#[test]
fn channel_that_does_not_fit_fails_and_leaves_no_file() {
    let dir = channel_dir();
    let note = channel_dir();
    let script = "mount -t tmpfs -o size=64k,mode=700 gpumem-test \"$GPUMEM_TEST_VICTIM\" && \"$0\" --exact life::cramped_victim";
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("GPUMEM_TEST_VICTIM", dir.path())
        .env("GPUMEM_TEST_NOTE", note.path().join("error"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let Ok(said) = std::fs::read_to_string(note.path().join("error")) else {
        println!("SKIPPED: no right to mount a small tmpfs here ({status:?})");
        return;
    };
    assert!(
        said.starts_with("no room for a channel of ") && said.ends_with("files left: 0"),
        "{said}"
    );
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn cramped_victim() {
    let (Some(dir), Some(note)) = (
        std::env::var_os("GPUMEM_TEST_VICTIM"),
        std::env::var_os("GPUMEM_TEST_NOTE"),
    ) else {
        return;
    };
    let error = Publisher::create(&options(dir.as_ref()))
        .err()
        .map_or("it fitted".into(), |e| e.to_string());
    std::fs::write(note, format!("{error}; files left: {}", files(dir.as_ref()).len())).unwrap();
}

#[test]
fn only_old_black_boxes_are_swept() {
    let dir = channel_dir();
    let alive = Publisher::create(&options(dir.path())).unwrap();
    for _ in 0..30 {
        drop(Publisher::create(&options(dir.path())).unwrap());
    }
    std::fs::write(dir.path().join("unrelated.txt"), "not ours").unwrap();
    let newest = Publisher::create(&options(dir.path())).unwrap();
    let left = files(dir.path());
    // Two live channels, sixteen dead ones, and a file that is not a channel.
    assert_eq!(left.len(), 2 + 16 + 1);
    assert!(left.contains(&alive.path().to_owned()) && left.contains(&newest.path().to_owned()));
    let day_old = std::time::SystemTime::now() - std::time::Duration::from_secs(25 * 3600);
    for path in &left {
        std::fs::File::open(path).unwrap().set_modified(day_old).unwrap();
    }
    drop(Publisher::create(&options(dir.path())).unwrap());
    let left = files(dir.path());
    assert!(
        left.contains(&alive.path().to_owned()),
        "a live channel stays, however old"
    );
    assert_eq!(
        left.len(),
        2 + 1 + 1,
        "the live ones, the new one, and the other file: {left:?}"
    );
}

/// The wall clock was set back after the program ended.
#[test]
fn black_box_from_the_future_counts_as_new() {
    let dir = channel_dir();
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    let path = publisher.path().to_owned();
    drop(publisher);
    let next_month = std::time::SystemTime::now() + std::time::Duration::from_secs(30 * 24 * 3600);
    let file = std::fs::File::open(&path).unwrap();
    file.set_modified(next_month).unwrap();
    drop(Publisher::create(&options(dir.path())).unwrap());
    assert!(path.exists());
}

#[test]
fn long_run_that_just_died_is_not_old() {
    let dir = channel_dir();
    let mut publisher = Publisher::create(&options(dir.path())).unwrap();
    publisher.event(&Default::default());
    let path = publisher.path().to_owned();
    drop(publisher);
    // The file's time is a month old, but its last event is new.
    let month_old = std::time::SystemTime::now() - std::time::Duration::from_secs(30 * 24 * 3600);
    std::fs::File::open(&path).unwrap().set_modified(month_old).unwrap();
    drop(Publisher::create(&options(dir.path())).unwrap());
    assert!(path.exists());
}

/// The machine slept over the weekend, or its clock was set, while a program ran. The monotonic clock of the events
/// does not show that.
#[test]
fn wall_clock_changes_do_not_age_a_black_box() {
    let dir = channel_dir();
    let mut publisher = Publisher::create(&options(dir.path())).unwrap();
    publisher.event(&Default::default());
    let path = publisher.path().to_owned();
    drop(publisher);
    let identity = Reader::open(&path).unwrap().identity().clone();
    let month = std::time::Duration::from_secs(30 * 24 * 3600);
    let begun = identity.created_realtime - month.as_nanos() as u64;
    let mut bytes = std::fs::read(&path).unwrap();
    let known = identity.created_realtime.to_le_bytes();
    let at = bytes.windows(8).position(|word| word == known).unwrap();
    bytes[at..at + 8].copy_from_slice(&begun.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let month_old = std::time::SystemTime::now() - month;
    std::fs::File::open(&path).unwrap().set_modified(month_old).unwrap();
    drop(Publisher::create(&options(dir.path())).unwrap());
    assert!(path.exists());
}

#[test]
fn root_reads_other_users_channels_without_mapping() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give a file to another user");
        return;
    }
    let dir = channel_dir();
    let mut publisher = publisher(dir.path());
    let mut heap = Heap::after(11, 500, &mut publisher);
    std::os::unix::fs::chown(publisher.path(), Some(12_345), None).unwrap();
    let mut reader = Reader::open(publisher.path()).unwrap();
    for _ in 0..200 {
        let snapshot = reader.refresh().unwrap();
        assert_eq!(
            snapshot.identity.uid, 12_345,
            "the owner comes from the kernel, not from the publisher"
        );
        heap.assert_shown_by(&snapshot, &snapshot.devices[0]);
        assert_eq!(snapshot.devices[0].stats, Some(heap.stats));
        heap.step(&mut publisher);
    }
    let path = publisher.path().to_str().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert_eq!(
        maps.lines().filter(|line| line.ends_with(path)).count(),
        1,
        "only the publisher maps it"
    );
}
