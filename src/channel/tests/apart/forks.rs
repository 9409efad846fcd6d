//! What forked children do to their parent's channel, and make of their own.

use std::cell::RefCell;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

use gpumem_channel::{Life, Options, Process, Publisher, Reader};

use crate::alone;
use crate::common::{at_fork, channel_dir, close_stdio, ended, files, fork, operate, options, raw_fork, victim};

/// What a daemon writes to a stderr that it closed would come into the file.
#[test]
fn a_channel_takes_no_number_of_closed_stdio() {
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
fn a_forked_child_neither_keeps_its_parent_alive_nor_touches_its_channel() {
    let _alone = alone();
    // As Python's fork-based data loaders, which can outlive the training process.
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
    // The child lets go as soon as it runs, and on a busy machine its parent may be gone before.
    for _ in 0..500 {
        if snapshot.life == Life::Alive {
            std::thread::sleep(std::time::Duration::from_millis(10));
            snapshot = reader.refresh().unwrap();
        }
    }
    let _ = Command::new("kill").args(["-KILL", &child.to_string()]).status();
    assert!(alive, "the child was still there when we looked");
    assert_ne!(snapshot.life, Life::Alive, "the child held its parent's lock");
    assert_eq!(snapshot.event_count, 1, "the child published");
    assert!(snapshot.lanes[0].open, "the child closed its parent's lane");
}

/// The other process of the test above; does nothing by itself.
#[test]
fn forking_victim() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    let mut publisher = Publisher::create(&options(dir.as_ref())).unwrap();
    publisher.event(&Default::default());
    let mut lane = publisher.lane(0, 7).unwrap();
    // The child publishes into nothing and sleeps. Its exit does not run the publisher's drop; that it could is another matter.
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
    // Whoever finds it closed knows that it was the child.
    std::mem::forget(lane);
    std::fs::write(std::env::var_os("GPUMEM_TEST_NOTE").unwrap(), child.to_string()).unwrap();
}

#[test]
fn a_child_that_is_forked_while_a_channel_is_made_does_not_keep_it_alive() {
    let _alone = alone();
    // As a server that starts its workers while one of its threads allocates for the first time.
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
        "the children were still there when we looked"
    );
    assert_eq!(life, Life::Died, "a child held its parent's lock");
}

/// The other process of the test above; does nothing by itself.
#[test]
fn victim_that_forks_meanwhile() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    let options = Options {
        // The kernel takes its time to give it so much memory.
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
    // It ends without a goodbye, which would take the lock from the children, too.
    std::mem::forget(publisher);
}

/// What a child does to a channel of its parent's.
fn meddle(publisher: &mut Publisher) {
    let mut lane = publisher.lane(0, 7);
    publisher.event(&Default::default());
    publisher.clear_block(0);
    assert!(lane.is_none());
    drop(lane.take());
}

#[test]
fn a_child_in_which_no_handler_ran_touches_nothing() {
    let _alone = alone();
    // As sandboxes and checkpointing make them: `_Fork`, or `clone` without CLONE_VM.
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
fn children_in_which_no_handler_ran_have_channels_of_their_own() {
    let _alone = alone();
    let dir = channel_dir();
    let victim = victim("forks::victim_without_handlers", dir.path()).status().unwrap();
    assert!(victim.success(), "{victim}");
    assert_eq!(files(dir.path()).len(), 3);
}

/// The other process of the test above; does nothing by itself.
#[test]
fn victim_without_handlers() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    has_a_channel_and_children(dir.as_ref(), &mut Vec::new());
}

/// Three generations, each of which inherits all channels before.
fn has_a_channel_and_children(dir: &Path, inherited: &mut Vec<(Process, Publisher)>) {
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
        assert_eq!(ended(raw_fork(|| has_a_channel_and_children(dir, inherited))), 0);
    }
    let mut reader = Reader::open(&path).unwrap();
    let snapshot = reader.refresh().unwrap();
    assert_eq!((snapshot.life, snapshot.event_count), (Life::Alive, 1));
    drop(inherited.pop());
    assert_eq!(reader.life().unwrap(), Life::Closed);
}

/// Another library's handler, which was there before ours, may find what its process had, and make something.
#[test]
fn a_handler_that_runs_first_touches_nothing_and_keeps_what_it_makes() {
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

/// The other process of the test above; does nothing by itself.
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
fn threads_that_are_the_first_to_ask_are_of_one_process() {
    let _alone = alone();
    let dir = channel_dir();
    let victim = victim("forks::victim_of_many_threads", dir.path()).status().unwrap();
    assert!(victim.success(), "{victim}");
}

/// The other process of the test above; does nothing by itself.
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
    // Each of these is the first to ask; so are their children.
    for _ in 0..100 {
        let child = fork(|| {
            all_are(1);
            assert_eq!(ended(fork(|| all_are(2))), 0);
        });
        assert_eq!(ended(child), 0);
    }
}
