//! A small file system: what ended programs left takes a part of it at most, and makes way for those that begin.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use gpumem_channel::{CreateError, Device, DeviceStats, Life, Options, Publisher, Reader, Touched, left_behind};

use crate::common::{channel_dir, files, options, victim};

const MIB: u64 = 1 << 20;

/// Runs a test of this binary, which fails as it does, with its folder on a file system of its own of this size; where that is permitted.
fn in_small_tmpfs(size: &str, test: &str) {
    let dir = channel_dir();
    let mount = format!("mount -t tmpfs -o size={size},mode=700 gpumem-test \"$GPUMEM_TEST_VICTIM\"");
    let run = |script: &str| {
        let victim = victim(test, dir.path());
        let mut unshare = Command::new("unshare");
        unshare
            .args(["-rm", "--", "sh", "-c", script])
            .arg(victim.get_program());
        let unshare = unshare.args(victim.get_args()).arg("--nocapture");
        unshare.env("GPUMEM_TEST_VICTIM", dir.path()).output()
    };
    let trial = run(&mount);
    if !trial.as_ref().is_ok_and(|trial| trial.status.success()) {
        println!("SKIPPED: no right to mount a small tmpfs here ({trial:?})");
        return;
    }
    let output = run(&format!("{mount} && exec \"$0\" \"$@\"")).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

/// The folder of a test that another one runs in such a file system.
fn small_tmpfs() -> Option<PathBuf> {
    std::env::var_os("GPUMEM_TEST_VICTIM").map(PathBuf::from)
}

/// A black box of so many hours, of a channel with so many blocks.
fn black_box(dir: &Path, blocks: u32, hours: u64) -> PathBuf {
    let publisher = Publisher::create(&Options { blocks, ..options(dir) }).unwrap();
    let path = publisher.path().to_owned();
    drop(publisher);
    aged(&path, hours);
    path
}

fn aged(path: &Path, hours: u64) {
    let made = SystemTime::now() - Duration::from_secs(hours * 3600);
    File::open(path).unwrap().set_modified(made).unwrap();
}

fn life(publisher: &Publisher) -> Life {
    Reader::open(publisher.path()).unwrap().life().unwrap()
}

/// What is free of the file system.
fn free(dir: &Path) -> u64 {
    let about = rustix::fs::statvfs(dir).unwrap();
    about.f_bfree * about.f_frsize
}

/// Leaves so much of the file system to others.
fn fill(dir: &Path, left: u64) {
    let filler = File::create(dir.join("others")).unwrap();
    let size = free(dir) - left;
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, size).unwrap();
}

/// As Docker's `/dev/shm`, in which programs run one after the other.
#[test]
fn black_boxes_take_a_quarter_of_their_file_system_at_most() {
    in_small_tmpfs("64m", "room::one_program_after_the_other");
}

#[test]
fn one_program_after_the_other() {
    let Some(dir) = small_tmpfs() else { return };
    let options = Options {
        dir: Some(dir.clone()),
        fit: false,
        ..Options::default()
    };
    let mut before = None;
    for _ in 0..8 {
        let publisher = Publisher::create(&options).unwrap();
        let path = publisher.path().to_owned();
        let black_boxes: Vec<PathBuf> = files(&dir).into_iter().filter(|file| *file != path).collect();
        assert_eq!(
            black_boxes,
            Vec::from_iter(before),
            "the newest, while the next one runs"
        );
        before = Some(path);
    }
    assert!(free(&dir) > 40 * MIB);
}

#[test]
fn the_ranks_of_a_job_leave_room_to_those_that_load_its_data() {
    in_small_tmpfs("64m", "room::eight_ranks");
}

#[test]
fn eight_ranks() {
    let Some(dir) = small_tmpfs() else { return };
    let options = Options {
        dir: Some(dir.clone()),
        ..Options::default()
    };
    let mut ranks: Vec<Publisher> = (0..8).map(|_| Publisher::create(&options).unwrap()).collect();
    assert!(free(&dir) > 32 * MIB, "{} bytes are free", free(&dir));
    for rank in &mut ranks {
        let len = rank.path().metadata().unwrap().len();
        assert_eq!(len, options.file_len_within(64 * MIB));
        assert!(rank.has_slot(16_383) && !rank.has_slot(16_384));
    }
}

/// They go before the file is made, not only where there is no room for both.
#[test]
fn a_black_box_beyond_a_quarter_goes_and_smaller_older_ones_stay() {
    in_small_tmpfs("8m", "room::large_and_small_ones");
}

#[test]
fn large_and_small_ones() {
    let Some(dir) = small_tmpfs() else { return };
    let large = black_box(&dir, 40_000, 1);
    let small = black_box(&dir, 4096, 2);
    let publisher = Publisher::create(&options(&dir)).unwrap();
    assert!(!large.exists() && small.exists(), "{:?}", files(&dir));
    assert_eq!(life(&publisher), Life::Alive);
}

#[test]
fn who_finds_no_room_takes_that_of_black_boxes_the_oldest_first() {
    in_small_tmpfs("8m", "room::no_room");
}

#[test]
fn no_room() {
    let Some(dir) = small_tmpfs() else { return };
    let small = Options {
        blocks: 1024,
        ..options(&dir)
    };
    let alive = Publisher::create(&small).unwrap();
    aged(alive.path(), 9);
    let black_boxes = [3, 2, 1].map(|hours| black_box(&dir, 1024, hours));
    let note = dir.join("note.gpumem");
    fs::write(&note, "no channel").unwrap();
    aged(&note, 10);
    // With one of them it does not fit, with two it does.
    let size = small.file_len();
    assert_eq!(left_behind(&dir), 3 * size.next_multiple_of(4096));
    fill(&dir, 16 * 1024);
    let blocks = small.blocks + u32::try_from(size / 2 / 64).unwrap();
    let publisher = Publisher::create(&Options {
        blocks,
        ..small.clone()
    })
    .unwrap();
    assert_eq!(black_boxes.each_ref().map(|path| path.exists()), [false, false, true]);

    // And where all of them are too little.
    let blocks = 40_000;
    let error = Publisher::create(&Options {
        blocks,
        ..small.clone()
    })
    .err();
    assert!(matches!(error, Some(CreateError::NoSpace { .. })), "{error:?}");
    let said = error.unwrap().to_string();
    assert!(
        said.contains("make room there") && said.contains("GPUMEM_DIR"),
        "{said}"
    );
    let mut left = files(&dir);
    left.sort();
    let mut expected = [alive.path(), publisher.path(), &note, &dir.join("others")];
    expected.sort();
    assert_eq!(left, expected, "who lives, and what is no channel");
    assert_eq!([&alive, &publisher].map(life), [Life::Alive; 2]);
    assert_eq!(left_behind(&dir), 0);
}

/// There is room, and not for one more file: a black box makes way, and where there is none that is said.
#[test]
fn a_file_system_without_inodes_is_not_called_full() {
    in_small_tmpfs("64m,nr_inodes=8", "room::no_inodes");
}

#[test]
fn no_inodes() {
    let Some(dir) = small_tmpfs() else { return };
    let left = black_box(&dir, 1024, 1);
    let take_all = || (0..).take_while(|_| tempfile::Builder::new().disable_cleanup(true).tempfile_in(&dir).is_ok());
    assert!(take_all().count() < 8 && left.exists());
    let alive = Publisher::create(&options(&dir)).unwrap();
    assert!(!left.exists() && free(&dir) > 32 * MIB);
    assert_eq!(take_all().count(), 0);
    let error = Publisher::create(&options(&dir)).err();
    assert!(matches!(error, Some(CreateError::NoInodes { .. })), "{error:?}");
    assert!(
        error
            .unwrap()
            .to_string()
            .starts_with("no inode is left for a channel in ")
    );
    assert_eq!(life(&alive), Life::Alive);
}

/// As the ranks of a job do. Who has a channel keeps it, whatever the others do for theirs; and few go without because others, that have
/// none in the end either, took a part of their room for a moment.
#[test]
fn who_begins_at_the_same_time_takes_nothing_from_another() {
    in_small_tmpfs("32m", "room::eight_at_once");
}

#[test]
fn eight_at_once() {
    let Some(dir) = small_tmpfs() else { return };
    let mut missing = 0;
    for _ in 0..100 {
        let black_boxes = [3, 2, 1].map(|hours| black_box(&dir, 24_000, hours));
        fill(&dir, 16 * 1024);
        let small = Options {
            blocks: 24_000,
            ..options(&dir)
        };
        let begin = || Publisher::create(&small).ok();
        let publishers = std::thread::scope(|scope| {
            let threads = [(); 8].map(|()| scope.spawn(begin));
            threads.map(|thread| thread.join().unwrap())
        });
        let publishers: Vec<Publisher> = publishers.into_iter().flatten().collect();
        for publisher in &publishers {
            assert_eq!(life(publisher), Life::Alive);
        }
        // Room for as many as were there before, and of the others nothing stays.
        missing += black_boxes.len() - publishers.len();
        let black_boxes = black_boxes.iter().filter(|path| path.exists());
        assert_eq!(files(&dir).len(), publishers.len() + black_boxes.count() + 1);
        drop(publishers);
        files(&dir).iter().for_each(|path| fs::remove_file(path).unwrap());
    }
    // On a busy machine that moment may last longer than anybody tries again.
    assert!(missing <= 60, "{missing} of 300, for all of which there was room");
}

#[test]
fn who_ran_out_of_memory_stays_however_many_begin_and_end_since() {
    let dir = channel_dir();
    let mut failed = Publisher::create(&options(dir.path())).unwrap();
    let stats = DeviceStats {
        num_ooms: 1,
        ..DeviceStats::default()
    };
    failed.set_device(0, &Device::default());
    failed.stats(0, &stats, Touched::ALL);
    let failed_path = failed.path().to_owned();
    drop(failed);
    aged(&failed_path, 2);
    let before = black_box(dir.path(), 16, 1);
    for _ in 0..17 {
        black_box(dir.path(), 16, 0);
    }
    assert!(failed_path.exists() && !before.exists());
    aged(&failed_path, 25);
    black_box(dir.path(), 16, 0);
    assert!(!failed_path.exists(), "for a day");
}

#[test]
fn what_is_no_black_box_of_this_user_is_not_swept_however_old() {
    let dir = channel_dir();
    let foreign = black_box(dir.path(), 16, 0);
    let mut stays = vec![dir.path().join("note.gpumem"), dir.path().join(".new-note")];
    for note in &stays {
        fs::write(note, "no channel").unwrap();
    }
    stays.push(dir.path().join("folder.gpumem"));
    fs::create_dir(&stays[2]).unwrap();
    match std::os::unix::fs::chown(&foreign, Some(12_345), None) {
        Ok(()) => stays.push(foreign),
        Err(error) => println!("SKIPPED: another user's channel ({error})"),
    }
    let abandoned = dir.path().join(".new-1-2-3.gpumem");
    fs::write(&abandoned, "").unwrap();
    stays.iter().chain([&abandoned]).for_each(|path| aged(path, 30 * 24));
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    stays.push(publisher.path().to_owned());
    stays.sort();
    let mut left = files(dir.path());
    left.sort();
    left.retain(|path| stays.contains(path) || *path == abandoned);
    assert_eq!(left, stays);
}
