//! A home that becomes vacant while the list of vacant ones is locked.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::{Allocator, Config, Publish};

/// Makes an allocator and drops it, which leaves its home vacant.
fn come_and_go() {
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let device = crate::device::sim(crate::device::SimConfig::default());
    drop(Allocator::new(device, config).unwrap());
}

/// A home that is not on the list is lost, and with it its memory.
#[test]
fn the_parent_waits_for_the_list() {
    let list = VACANT.lock().unwrap();
    let other = std::thread::spawn(come_and_go);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!other.is_finished(), "it went on without the list");
    drop(list);
    other.join().unwrap();
}
