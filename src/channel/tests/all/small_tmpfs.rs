//! Small file systems: black boxes take at most a part of them, and are removed for new channels.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use gpumem_channel::{CreateError, Device, DeviceStats, Life, Options, Publisher, Reader, Touched, left_behind};

use crate::common::{channel_dir, files, options, victim};

const MIB: u64 = 1 << 20;

/// Runs a test of this binary with its directory on a separate tmpfs of this size, and fails if that test fails. Skips
/// it if mounting is not permitted.
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

/// Returns the directory of a test that runs in such a file system; `None` if it was started directly.
fn small_tmpfs() -> Option<PathBuf> {
    std::env::var_os("GPUMEM_TEST_VICTIM").map(PathBuf::from)
}

/// Makes a black box that is `hours` old, of a channel with `blocks` blocks.
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

/// Returns the free bytes of the file system.
fn free(dir: &Path) -> u64 {
    let about = rustix::fs::statvfs(dir).unwrap();
    about.f_bfree * about.f_frsize
}

/// Fills the file system up to `left` free bytes.
fn fill(dir: &Path, left: u64) {
    let filler = File::create(dir.join("others")).unwrap();
    let size = free(dir) - left;
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, size).unwrap();
}

/// Like Docker's `/dev/shm`, in which programs run one after the other.
#[test]
fn black_boxes_take_at_most_a_quarter() {
    in_small_tmpfs("64m", "small_tmpfs::victim_of_sequential_programs");
}

#[test]
fn victim_of_sequential_programs() {
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
            "the newest stays while the next program runs"
        );
        before = Some(path);
    }
    assert!(free(&dir) > 40 * MIB);
}

#[test]
fn ranks_of_a_job_leave_space_for_data_loaders() {
    in_small_tmpfs("64m", "small_tmpfs::victim_of_eight_ranks");
}

#[test]
fn victim_of_eight_ranks() {
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

/// Black boxes are removed before the file is created, not only if there is no space for both.
#[test]
fn too_large_black_box_goes_and_smaller_ones_stay() {
    in_small_tmpfs("8m", "small_tmpfs::victim_of_large_and_small_black_boxes");
}

#[test]
fn victim_of_large_and_small_black_boxes() {
    let Some(dir) = small_tmpfs() else { return };
    let large = black_box(&dir, 40_000, 1);
    let small = black_box(&dir, 4096, 2);
    let publisher = Publisher::create(&options(&dir)).unwrap();
    assert!(!large.exists() && small.exists(), "{:?}", files(&dir));
    assert_eq!(life(&publisher), Life::Alive);
}

#[test]
fn full_tmpfs_drops_the_oldest_black_boxes_first() {
    in_small_tmpfs("8m", "small_tmpfs::victim_without_space");
}

#[test]
fn victim_without_space() {
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
    // Removing one of them is not enough, removing two is.
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

    // And removing all of them is not enough.
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
    assert_eq!(left, expected, "live channels and other files stay");
    assert_eq!([&alive, &publisher].map(life), [Life::Alive; 2]);
    assert_eq!(left_behind(&dir), 0);
}

/// There is space, but no inode: a black box is removed, and if there is none the error says so.
#[test]
fn lack_of_inodes_is_reported_as_such() {
    in_small_tmpfs("64m,nr_inodes=8", "small_tmpfs::victim_without_inodes");
}

#[test]
fn victim_without_inodes() {
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

/// Like the ranks of a job. A program keeps its channel whatever the others do. Few get none because others, which also
/// fail in the end, took a part of their space for a moment.
#[test]
fn simultaneous_starts_do_not_displace_each_other() {
    in_small_tmpfs("32m", "small_tmpfs::victim_of_eight_at_once");
}

#[test]
fn victim_of_eight_at_once() {
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
        // There is space for as many as before, and the failed ones leave nothing.
        missing += black_boxes.len() - publishers.len();
        let black_boxes = black_boxes.iter().filter(|path| path.exists());
        assert_eq!(files(&dir).len(), publishers.len() + black_boxes.count() + 1);
        drop(publishers);
        files(&dir).iter().for_each(|path| fs::remove_file(path).unwrap());
    }
    // On a busy machine that moment may last longer than all retries.
    assert!(
        missing <= 60,
        "{missing} of 300 failed although there was space for all"
    );
}

#[test]
fn out_of_memory_black_box_outlives_later_ones() {
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
    assert!(!failed_path.exists(), "removed after a day only");
}

#[test]
fn other_files_and_users_are_never_swept() {
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
