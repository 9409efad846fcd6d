//! Who holds the memory, told to a C program: reports, snapshots, and the cache made compact.

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use gpumem_snapshot::{Action, Snapshot};

use super::abi::Abi;
use super::{library, passes};

const MIB: usize = 1 << 20;
const STACKS_NONE: c_int = 0;
const STACKS_ALLOC: c_int = 1;

/// What a report function says with room for as many bytes, and how long it says that all of it is.
fn told(room: usize, report: impl Fn(*mut std::ffi::c_char, usize) -> i64) -> (String, i64) {
    let mut text = vec![b'?'; room + 1];
    let length = report(text.as_mut_ptr().cast(), room);
    assert_eq!(text[room], b'?', "no more than there is room for");
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
    (String::from_utf8(text[..end].to_vec()).unwrap(), length)
}

fn path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

#[test]
fn who_holds_the_memory_is_told() {
    let stderr = passes("history::inner_reports", &[]);
    assert!(
        stderr.contains("gpumem_leak_report: no history is recorded"),
        "{stderr}"
    );
    let stderr = passes("history::inner_snapshots", &[]);
    assert!(stderr.contains("gpumem_snapshot: writing the snapshot"), "{stderr}");
    let virtually = [("GPUMEM_ALLOC_CONF", "segments:virtual")];
    assert_eq!(passes("history::inner_compacts", &virtually), "");
    assert_eq!(passes("history::inner_names_frames", &[]), "");
    // The environment begins one, too.
    let told = [("GPUMEM_ALLOC_CONF", "history:on")];
    assert_eq!(passes("history::inner_has_a_history", &told), "");
}

#[test]
fn inner_has_a_history() {
    let Some(abi) = library() else { return };
    abi.alloc(MIB, 0, null_mut());
    assert!(abi.peak_report(0, null_mut(), 0) > 0, "{:?}", abi.error());
}

/// Ten steps, each of which forgets 1 MiB in a scope.
fn forgets(abi: &Abi) {
    abi.scope_push(c"forgött".as_ptr());
    for _ in 0..10 {
        assert!(!abi.alloc(MIB, 0, null_mut()).is_null());
        assert_eq!(abi.step(), 0);
    }
    abi.scope_pop();
}

#[test]
fn inner_reports() {
    let Some(abi) = library() else { return };
    // There is no allocator yet: it is made.
    assert_eq!(abi.record_history(0, STACKS_NONE, 0), 0);
    forgets(&abi);
    let (peak, length) = told(1000, |text, room| abi.peak_report(0, text, room));
    assert!(peak.starts_with("peak: 10.0 MiB held"), "{peak}");
    assert!(peak.contains("100.0 %    10.0 MiB     10 blocks  forgött"), "{peak}");
    assert_eq!(length, peak.len() as i64);
    let (leaks, _) = told(1000, |text, room| abi.leak_report(0, 3, text, room));
    assert!(leaks.contains("GROWS 1.0 MiB a step"), "{leaks}");
    // What is cut is cut between characters, and says how long it would be: a peak's age may have another digit by then.
    let whole = abi.leak_report(0, 3, null_mut(), 0);
    assert_eq!(whole, leaks.len() as i64);
    for room in 1..leaks.len() {
        let (cut, length) = told(room, |text, room| abi.leak_report(0, 3, text, room));
        assert_eq!((length, leaks.starts_with(&cut)), (whole, true), "{cut}");
        assert!(cut.len() < room && cut.len() + 2 >= room, "{cut}");
    }
    // A part of the program is measured.
    let used = abi.alloc(5 * MIB, 0, null_mut());
    abi.free(used, 5 * MIB, 0, null_mut());
    assert_eq!(abi.reset_peaks(0), 0);
    assert_eq!(abi.figures(0)["all.allocated_bytes.peak"], 10 << 20);
    let used = abi.alloc(3 * MIB, 0, null_mut());
    abi.free(used, 3 * MIB, 0, null_mut());
    assert_eq!(abi.figures(0)["all.allocated_bytes.peak"], 13 << 20);
    let (peak, _) = told(1000, |text, room| abi.peak_report(0, text, room));
    assert!(peak.starts_with("peak: 13.0 MiB held"), "{peak}");
    assert_eq!([0, -1, 5].map(|device| abi.has_history(device)), [1, 1, 0]);
    assert_eq!(abi.stop_history(-1), 0);
    assert_eq!([0, -1].map(|device| abi.has_history(device)), [0, 0]);
    assert_eq!(abi.error_count(), 0);
    assert_eq!(abi.leak_report(0, 3, null_mut(), 0), -1);
    abi.refused("no history is recorded: gpumem_record_history begins one");
    // It is begun anew.
    assert_eq!(abi.record_history(-1, STACKS_NONE, 0), 0);
    let (leaks, _) = told(1000, |text, room| abi.leak_report(0, 1, text, room));
    assert!(leaks.contains("of 0 steps") && leaks.contains("nothing"), "{leaks}");
}

#[test]
fn inner_snapshots() {
    let Some(abi) = library() else { return };
    assert_eq!(abi.record_history(0, STACKS_ALLOC, 1000), 0);
    forgets(&abi);
    let folder = tempfile::tempdir().unwrap();
    for name in ["state.pickle", "state.json"] {
        let file = folder.path().join(name);
        assert_eq!(abi.snapshot(0, path(&file).as_ptr()), 0, "{:?}", abi.error());
        let snapshot = Snapshot::read(&file).unwrap();
        assert_eq!(snapshot.check(), []);
        let held: u64 = snapshot.segments.iter().map(|segment| segment.allocated_size).sum();
        assert_eq!(held, 10 * MIB as u64);
        let allocated = snapshot.device_traces[0]
            .iter()
            .filter(|entry| entry.action == Action::Alloc);
        assert_eq!(allocated.count(), 10);
    }
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        2,
        "no part of a file is left"
    );
    assert_eq!(abi.error_count(), 0);
    let nowhere = folder.path().join("no/such/folder.pickle");
    assert_eq!(abi.snapshot(0, path(&nowhere).as_ptr()), -1);
    let words = abi.error().unwrap();
    assert!(
        words.contains("writing the snapshot") && words.contains("folder.pickle: No such file"),
        "{words}"
    );
}

#[test]
fn inner_compacts() {
    let Some(abi) = library() else { return };
    assert_eq!(abi.compact(-1), 0, "nothing is there yet");
    let held: Vec<_> = (0..8).map(|_| abi.alloc(20 * MIB, 0, null_mut())).collect();
    for ptr in held.iter().step_by(2) {
        abi.free(*ptr, 20 * MIB, 0, null_mut());
    }
    let before = abi.figures(0);
    assert_eq!(before["largest_free_bytes"], 20 * MIB as u64);
    assert_eq!(abi.compact(0), 0, "it is mapped together, and stays");
    let after = abi.figures(0);
    assert_eq!(after["largest_free_bytes"], 80 * MIB as u64);
    assert_eq!(
        after["all.reserved_bytes.current"],
        before["all.reserved_bytes.current"]
    );
    assert_eq!(abi.error_count(), 0);
}

/// The frames of an interpreter, as it would tell them.
static FRAMES: Mutex<Vec<u64>> = Mutex::new(Vec::new());

unsafe extern "C" fn nowhere(_: *mut u64, _: c_int) -> c_int {
    -1
}

unsafe extern "C" fn frames(to: *mut u64, most: c_int) -> c_int {
    let frames = FRAMES.lock().unwrap();
    assert!(frames.len() <= usize::try_from(most).unwrap());
    // SAFETY: there is room for so many words, says the header.
    unsafe { std::ptr::copy_nonoverlapping(frames.as_ptr(), to, frames.len()) };
    c_int::try_from(frames.len()).unwrap()
}

#[test]
fn inner_names_frames() {
    let Some(abi) = library() else { return };
    let name = |function: &CStr, line| abi.name_frame(function.as_ptr(), c"train.py".as_ptr(), line);
    let (inner, outer) = (name(c"forward", 7), name(c"main", 30));
    assert!(inner != 0 && inner != outer && inner == name(c"forward", 7) && inner != name(c"forward", 8));
    assert_ne!(
        abi.name_frame(null(), null(), -1),
        0,
        "a place of which nothing is known"
    );
    assert_eq!(abi.record_history(0, STACKS_ALLOC, 1000), 0);
    let report = || told(2000, |text, room| abi.peak_report(0, text, room)).0;
    *FRAMES.lock().unwrap() = vec![inner, outer];
    abi.set_stack_fn(Some(frames));
    abi.alloc(MIB, 0, null_mut());
    let named = report();
    assert!(
        named.contains("      forward (train.py:7)\n      main (train.py:30)\n"),
        "{named}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.pickle");
    assert_eq!(abi.snapshot(0, path(&file).as_ptr()), 0, "{:?}", abi.error());
    let bytes = std::fs::read(&file).unwrap();
    let has = |words: &[u8]| bytes.windows(words.len()).any(|part| part == words);
    assert!(has(b"forward") && has(b"train.py"));
    // Where nothing is named the native functions are told, and so they are when it has ended.
    abi.reset_peaks(0);
    FRAMES.lock().unwrap().clear();
    abi.alloc(2 * MIB, 0, null_mut());
    let native = report();
    assert!(native.contains("inner_names_frames"), "{native}");
    *FRAMES.lock().unwrap() = vec![outer];
    abi.set_stack_fn(None);
    abi.alloc(3 * MIB, 0, null_mut());
    assert_eq!(report().matches("train.py").count(), 2, "{}", report());
    let natives = |report: &str| report.matches("inner_names_frames").count();
    let before = natives(&report());
    abi.set_stack_fn(Some(nowhere));
    abi.alloc(64 * MIB, 0, null_mut());
    let without = report();
    assert!(without.contains("64.0 MiB") && natives(&without) == before, "{without}");
    abi.set_stack_fn(None);
    assert_eq!(abi.error_count(), 0);
}
