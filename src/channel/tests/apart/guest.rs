//! What programs do to the channel that lives in them.

use std::fs::File;

use gpumem_channel::{Life, Publisher, Reader};

use crate::alone;
use crate::common::{channel_dir, ended, fork, options, put_in_place_of};

/// Daemons close all descriptors there are, and the numbers become those of files of their own.
#[test]
fn a_descriptor_that_the_program_closed_is_the_programs() {
    let _alone = alone();
    let dir = channel_dir();
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    let life = || Reader::open(publisher.path()).unwrap().life().unwrap();
    assert_eq!(life(), Life::Alive);
    let mine = put_in_place_of(publisher.path(), &File::open("/dev/null").unwrap());
    assert_eq!(life(), Life::Died, "as is said where publishers are described");
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
fn a_goodbye_ends_nothing_and_keeps_nothing() {
    let _alone = alone();
    let dir = channel_dir();
    let publisher = Publisher::create(&options(dir.path())).unwrap();
    let path = publisher.path().to_owned();
    let life = || Reader::open(&path).unwrap().life().unwrap();
    let goodbye = publisher.goodbye();
    assert_eq!(ended(fork(|| goodbye.say())), 0);
    goodbye.say();
    assert_eq!(life(), Life::Alive, "the program is still there");
    drop(publisher);
    assert_eq!(life(), Life::Closed);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(path.to_str().unwrap()));
    goodbye.say();
}
