//! Forked children: their parent's channel, and channels of their own.

use std::cell::RefCell;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

use gpumem_channel::{Life, Options, Process, Publisher, Reader};

use crate::alone;
use crate::common::{at_fork, channel_dir, close_stdio, ended, files, fork, operate, options, raw_fork, victim};

/// Otherwise the output of a daemon to its closed stderr would go into the file.
#[test]
fn channel_does_not_use_closed_stdio_descriptors() {
    let _alone = alone();
    let dir = channel_dir();
    let child = fork(|| {
        close_stdio();
        let _publisher = Publisher::create(&options(dir.as_ref())).unwrap();
        let is_open = |number: i32| Path::new(&format!("/proc/self/fd/{number}")).exists();
        assert!(!(0..=2).any(is_open));
    });
    assert_eq!(ended(child), 0);
}

#[test]
fn forked_child_does_not_affect_its_parents_channel() {
    let _alone = alone();
    // Like Python's fork-based data loaders, which can outlive the training process.
    let dir = channel_dir();
    let note = channel_dir().keep().join("child");
    let victim = victim("forks::forking_victim", dir.path())
        .env("GPUMEM_TEST_NOTE", &note)
        .status()
        .unwrap();
    assert!(victim.success());
    let child: u32 = std::fs::read_to_string(&note).unwrap().parse().unwrap();
    std::fs::remove_dir_all(note.parent().unwrap()).unwrap();
    let alive = Path::new(&format!("/proc/{child}")).exists();
    let path = files(dir.path()).pop().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let mut snapshot = reader.refresh().unwrap();
    // The child releases the lock as soon as it runs, but on a busy machine its parent may end before that.
    for _ in 0..500 {
        if snapshot.life == Life::Alive {
            std::thread::sleep(std::time::Duration::from_millis(10));
            snapshot = reader.refresh().unwrap();
        }
    }
    let _ = Command::new("kill").args(["-KILL", &child.to_string()]).status();
    assert!(alive, "the child was still running at the check");
    assert_ne!(snapshot.life, Life::Alive, "the child held its parent's lock");
    assert_eq!(snapshot.event_count, 1, "the child published");
    assert!(snapshot.lanes[0].open, "the child closed its parent's lane");
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn forking_victim() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    let mut publisher = Publisher::create(&options(dir.as_ref())).unwrap();
    publisher.event(&Default::default());
    let mut lane = publisher.lane(0, 7).unwrap();
    // The child's calls do nothing, and then it sleeps. It exits without dropping the publisher.
    let child = fork(|| {
        publisher.event(&Default::default());
        publisher.clear_block(0);
        publisher.meet(&mut lane);
        operate(&mut lane, 512);
        lane.figures(&Default::default());
        assert!(publisher.lane(0, 8).is_none());
        lane.close();
        std::thread::sleep(std::time::Duration::from_secs(20));
    });
    // The parent leaves the lane open, so if it is closed, the child did it.
    std::mem::forget(lane);
    std::fs::write(std::env::var_os("GPUMEM_TEST_NOTE").unwrap(), child.to_string()).unwrap();
}

#[test]
fn child_forked_during_creation_does_not_keep_the_lock() {
    let _alone = alone();
    // Like a server that starts its workers while one of its threads allocates for the first time.
    let dir = channel_dir();
    let mut victim = victim("forks::victim_that_forks_meanwhile", dir.path())
        .process_group(0)
        .spawn()
        .unwrap();
    let group = victim.id();
    assert!(victim.wait().unwrap().success());
    let path = files(dir.path()).pop().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let mut life = reader.life().unwrap();
    // As above.
    for _ in 0..500 {
        if life == Life::Alive {
            std::thread::sleep(std::time::Duration::from_millis(10));
            life = reader.life().unwrap();
        }
    }
    let children = Command::new("kill")
        .args(["-KILL", "--", &format!("-{group}")])
        .status();
    assert!(
        children.unwrap().success(),
        "the children were still running at the check"
    );
    assert_eq!(life, Life::Died, "a child held its parent's lock");
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_that_forks_meanwhile() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    let options = Options {
        // Allocating so much memory takes the kernel a while.
        blocks: 1 << 20,
        ..options(dir.as_ref())
    };
    let publisher = std::thread::scope(|scope| {
        let maker = scope.spawn(|| Publisher::create(&options).unwrap());
        let mut children = 0;
        while children == 0 || !maker.is_finished() && children < 200 {
            fork(|| std::thread::sleep(std::time::Duration::from_secs(20)));
            children += 1;
        }
        maker.join().unwrap()
    });
    // It ends without closing the channel, which would release the children's lock too.
    std::mem::forget(publisher);
}

/// Calls every method of the parent's channel in a child.
fn meddle(publisher: &mut Publisher) {
    let mut lane = publisher.lane(0, 7);
    publisher.event(&Default::default());
    publisher.clear_block(0);
    assert!(lane.is_none());
    drop(lane.take());
}

#[test]
fn child_without_fork_handlers_changes_nothing() {
    let _alone = alone();
    // Like the children of sandboxes and checkpointing: made by `_Fork`, or `clone` without CLONE_VM.
    let dir = channel_dir();
    let mut publisher = Publisher::create(&options(dir.path())).unwrap();
    let mut lane = publisher.lane(0, 7).unwrap();
    publisher.event(&Default::default());
    let child = raw_fork(|| {
        meddle(&mut publisher);
        publisher.meet(&mut lane);
        operate(&mut lane, 512);
    });
    assert_eq!(ended(child), 0, "it crashed");
    let mut reader = Reader::open(publisher.path()).unwrap();
    let snapshot = reader.refresh().unwrap();
    assert_eq!((snapshot.life, snapshot.event_count), (Life::Alive, 1));
}

#[test]
fn children_without_fork_handlers_have_own_channels() {
    let _alone = alone();
    let dir = channel_dir();
    let victim = victim("forks::victim_without_handlers", dir.path()).status().unwrap();
    assert!(victim.success(), "{victim}");
    assert_eq!(files(dir.path()).len(), 3);
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_without_handlers() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    publish_in_three_generations(dir.as_ref(), &mut Vec::new());
}

/// Runs three generations, each of which inherits all earlier channels.
fn publish_in_three_generations(dir: &Path, inherited: &mut Vec<(Process, Publisher)>) {
    for (process, publisher) in &mut *inherited {
        assert!(!process.is_current());
        meddle(publisher);
    }
    let here = Process::current();
    assert!(here.is_current() && here == Process::current());
    assert_eq!(here.is_forked(), !inherited.is_empty());
    assert!(inherited.iter().all(|(before, _)| before.number() < here.number()));
    let mut publisher = Publisher::create(&options(dir)).unwrap();
    publisher.event(&Default::default());
    let path = publisher.path().to_owned();
    inherited.push((here, publisher));
    if inherited.len() < 3 {
        assert_eq!(ended(raw_fork(|| publish_in_three_generations(dir, inherited))), 0);
    }
    let mut reader = Reader::open(&path).unwrap();
    let snapshot = reader.refresh().unwrap();
    assert_eq!((snapshot.life, snapshot.event_count), (Life::Alive, 1));
    drop(inherited.pop());
    assert_eq!(reader.life().unwrap(), Life::Closed);
}

/// The handler of another library, registered before this crate's, may see the inherited channel, and make its own.
#[test]
fn earlier_fork_handler_may_publish_its_own_channel() {
    let _alone = alone();
    let dir = channel_dir();
    let victim = victim("forks::victim_with_a_handler", dir.path()).status().unwrap();
    assert!(victim.success(), "{victim}");
}

thread_local! {
    static PARENTS: RefCell<Option<Publisher>> = const { RefCell::new(None) };
    static OWN: RefCell<Option<Publisher>> = const { RefCell::new(None) };
}

extern "C" fn first_in_child() {
    PARENTS.with_borrow_mut(|parents| meddle(parents.as_mut().unwrap()));
    let dir = std::env::var_os("GPUMEM_TEST_VICTIM").unwrap();
    OWN.set(Publisher::create(&options(dir.as_ref())).ok());
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_with_a_handler() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    at_fork(first_in_child);
    let parents = Publisher::create(&options(dir.as_ref())).unwrap();
    let parents_path = parents.path().to_owned();
    PARENTS.set(Some(parents));
    let child = fork(|| {
        let mut own = OWN.take().unwrap();
        own.event(&Default::default());
        let snapshot = Reader::open(own.path()).unwrap().refresh().unwrap();
        assert_eq!((snapshot.life, snapshot.event_count), (Life::Alive, 1));
        let descriptors = files(Path::new("/proc/self/fd"));
        let mut open = descriptors.iter().filter_map(|fd| std::fs::read_link(fd).ok());
        assert!(!open.any(|file| file == parents_path), "it keeps its parent's lock");
    });
    assert_eq!(ended(child), 0);
    let snapshot = Reader::open(&parents_path).unwrap().refresh().unwrap();
    assert_eq!((snapshot.life, snapshot.event_count), (Life::Alive, 0));
}

#[test]
fn concurrent_first_calls_agree_on_the_process() {
    let _alone = alone();
    let dir = channel_dir();
    let victim = victim("forks::victim_of_many_threads", dir.path()).status().unwrap();
    assert!(victim.success(), "{victim}");
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn victim_of_many_threads() {
    if std::env::var_os("GPUMEM_TEST_VICTIM").is_none() {
        return;
    }
    let at_once = Barrier::new(4);
    let ask = || {
        at_once.wait();
        Process::current()
    };
    let all_are = |number| {
        std::thread::scope(|scope| {
            let all = [(); 4].map(|()| scope.spawn(ask));
            for process in all.map(|thread| thread.join().unwrap()) {
                assert_eq!((process.number(), process.is_forked()), (number, number > 1));
                assert!(process.is_current());
            }
        });
    };
    // Each of these threads is the first to ask; so are their children.
    for _ in 0..100 {
        let child = fork(|| {
            all_are(1);
            assert_eq!(ended(fork(|| all_are(2))), 0);
        });
        assert_eq!(ended(child), 0);
    }
}
