//! Frequent signals, as under a sampling profiler.

use std::os::unix::fs::MetadataExt;

use gpumem_channel::{Options, Publisher};

use crate::common::{channel_dir, interrupt_allocations_beyond};

const MOST: u32 = 1 << 20;

#[test]
fn channel_is_allocated_between_signals() {
    let dir = channel_dir();
    let options = Options {
        dir: Some(dir.path().to_owned()),
        fit: false,
        ..Options::default()
    };
    assert!(options.file_len() > 8 * u64::from(MOST));
    let publisher = std::thread::scope(|scope| {
        let create = || {
            interrupt_allocations_beyond(MOST);
            Publisher::create(&options)
        };
        scope.spawn(create).join().unwrap().unwrap()
    });
    let file = publisher.path().metadata().unwrap();
    assert_eq!(file.len(), options.file_len());
    assert!(file.blocks() * 512 >= file.len(), "all of it is allocated");
}
