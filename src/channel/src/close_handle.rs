//! Closes the channel of a program that exits.

use std::sync::Weak;

use crate::map::{Map, Mapping};
use crate::word::{Word, Words};

/// A handle that marks a channel as closed without the [`Publisher`](crate::Publisher): for `exit` handlers, which a
/// signal handler may run while the publisher is in use. It does not keep the channel's memory alive.
#[derive(Clone, Debug)]
pub struct CloseHandle {
    memory: Weak<Mapping>,
    /// Index of the word that says that the channel was closed.
    word: usize,
}

impl CloseHandle {
    pub(crate) fn new(memory: &Map, word: usize) -> CloseHandle {
        CloseHandle {
            memory: memory.downgrade(),
            word,
        }
    }

    /// Marks the channel as closed, so that its file is not taken for that of a program that died. Does not wait. Does
    /// nothing in a forked child, or if the channel has already ended.
    pub fn close(&self) {
        let Some(map) = Map::upgrade(&self.memory) else { return };
        if let Some(word) = map.words().get(self.word) {
            word.put(1);
        }
    }
}
