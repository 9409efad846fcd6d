//! The goodbye of a program that exits.

use std::sync::Weak;

use crate::map::{Map, Mapping};
use crate::word::{Word, Words};

/// Says that the program ends in order, for whoever cannot have the [`Publisher`](crate::Publisher): handlers of `exit` that a signal handler
/// runs, in the middle of anything. Keeps no channel's memory.
#[derive(Clone, Debug)]
pub struct Goodbye {
    memory: Weak<Mapping>,
    /// The word that says so.
    word: usize,
}

impl Goodbye {
    pub(crate) fn new(memory: &Map, word: usize) -> Goodbye {
        Goodbye {
            memory: memory.downgrade(),
            word,
        }
    }

    /// What was published until the process ends is then no black box of a program that died. Waits for nobody. Nothing in a forked child,
    /// and where the channel has ended.
    pub fn say(&self) {
        let Some(map) = Map::upgrade(&self.memory) else { return };
        if let Some(word) = map.words().get(self.word) {
            word.put(1);
        }
    }
}
