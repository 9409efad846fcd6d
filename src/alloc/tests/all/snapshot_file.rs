//! Snapshots as files: whole, or not there.

use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Buffer, Config, History, Publish, Snapshot, Stream};

fn allocator(config: Config) -> Allocator {
    let publish = Publish::Off;
    Allocator::new(device::sim(SimConfig::default()), Config { publish, ..config }).unwrap()
}

#[test]
fn what_cannot_be_written_is_an_error_that_names_the_file() {
    let alloc = allocator(Config::default());
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").join("x.pickle");
    let error = alloc.write_snapshot(&missing).unwrap_err().to_string();
    assert!(error.contains("missing/x.pickle"), "{error}");
    // A folder in the way: nothing is left beside it.
    let taken = folder.path().join("taken.json");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("file"), "").unwrap();
    assert!(alloc.write_snapshot(&taken).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A device would be gone, for all programs, and whoever reads from a pipe would wait for ever. Sockets stand for all of them here: these tests may
/// run as root.
#[test]
fn what_is_no_file_is_not_replaced() {
    let alloc = allocator(Config::default());
    let folder = tempfile::tempdir().unwrap();
    let [socket, file, link, loose] = ["socket", "log", "link.json", "loose"].map(|name| folder.path().join(name));
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let error = alloc.write_snapshot(&socket).unwrap_err().to_string();
    assert!(error.ends_with("there is something that is no file"), "{error}");
    // As /dev/stderr leads to a log.
    std::fs::write(&file, "a line").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    std::os::unix::fs::symlink("nowhere", &loose).unwrap();
    for path in [&link, &loose] {
        let error = alloc.write_snapshot(path).unwrap_err().to_string();
        assert!(error.contains("there is a symbolic link"), "{error}");
        assert!(path.is_symlink());
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a line");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn a_name_may_be_as_long_as_names_are() {
    let alloc = allocator(Config::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x".repeat(250) + ".json");
    alloc.write_snapshot(&path).unwrap();
    assert_eq!(Snapshot::read(&path).unwrap().check(), []);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Whoever reads it meanwhile reads one that is whole.
#[test]
fn threads_write_the_same_snapshot() {
    let alloc = allocator(Config::default());
    alloc.record_history(History::ON).unwrap();
    let kept: Vec<Buffer<u8>> = (1..3000).map(|n| alloc.alloc(n, Stream::DEFAULT).unwrap()).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.pickle");
    alloc.write_snapshot(&path).unwrap();
    let events = Snapshot::read(&path).unwrap().device_traces[0].len();
    assert!(events > kept.len());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..5).for_each(|_| alloc.write_snapshot(&path).unwrap()));
        }
        for _ in 0..10 {
            assert_eq!(Snapshot::read(&path).unwrap().device_traces[0].len(), events);
        }
    });
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}
