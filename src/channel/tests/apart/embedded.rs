//! What the embedding program may do to its channel.

use std::fs::File;

use gpumem_channel::{Life, Publisher, Reader};

use crate::alone;
use crate::common::{channel_dir, ended, fork, options, put_in_place_of};

/// Daemons close all descriptors, and reuse the numbers for their own files.
#[test]
fn descriptor_closed_by_the_program_is_not_reused() {
    let _alone = alone();
    let dir = channel_dir();
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    let life = || Reader::open(publisher.path()).unwrap().life().unwrap();
    assert_eq!(life(), Life::Alive);
    let mine = put_in_place_of(publisher.path(), &File::open("/dev/null").unwrap());
    assert_eq!(life(), Life::Died, "as documented for publishers");
    let is_open = || rustix::io::fcntl_getfd(&mine).is_ok();
    let child = fork(|| {
        if !is_open() {
            std::process::abort();
        }
    });
    assert_eq!(ended(child), 0, "a forked child has what its parent had");
    drop(publisher);
    assert!(is_open());
}

#[test]
fn close_handle_keeps_neither_lock_nor_memory() {
    let _alone = alone();
    let dir = channel_dir();
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    let path = publisher.path().to_owned();
    let life = || Reader::open(&path).unwrap().life().unwrap();
    let handle = publisher.close_handle();
    assert_eq!(ended(fork(|| handle.close())), 0);
    handle.close();
    assert_eq!(life(), Life::Alive, "the program is still there");
    drop(publisher);
    assert_eq!(life(), Life::Closed);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(path.to_str().unwrap()));
    handle.close();
}
