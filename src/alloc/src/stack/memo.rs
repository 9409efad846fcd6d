//! Recognising a call stack without unwinding it.
//!
//! A function's frame has one size at each of its calls, so from the same place on the stack the same return addresses lead to
//! the same places of the next ones. A [`Memo`] is a tree of that: from where the innermost frame lies, return address by return
//! address, each node with the place of the next. Walking it reads the return addresses that are there now and compares them with
//! the ones seen before; whatever differs is unwound, and learned. Frames that change their size (`alloca`) show as a node with two
//! places and are unwound always.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::table::Stack;

/// Nodes kept by a thread (32 bytes each); beyond that it begins anew.
const MOST_NODES: usize = 1 << 15;
/// In place of a slot: there is no next one, the stack ends here.
const END: usize = 0;
/// In place of a slot: it is not always the same.
const CHANGING: usize = usize::MAX;

/// What is known when the return addresses so far are these.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Where the next return address lies.
    slot: usize,
    /// The next return address that was seen first, and its node. Most nodes have one only.
    address: u64,
    next: u32,
    /// At the end: the stack.
    stack: Stack,
}

/// The stacks that a thread has seen.
#[derive(Debug, Default)]
pub(super) struct Memo {
    nodes: Vec<Node>,
    /// The first node by the place of the innermost frame.
    roots: HashMap<usize, u32, BuildHasherDefault<Mixer>>,
    /// Further nodes after one, by return address.
    branches: HashMap<(u32, u64), u32, BuildHasherDefault<Mixer>>,
}

impl Memo {
    /// The stack whose innermost frame lies at `place`, if it was seen before. `read` gives what lies at a slot.
    #[inline]
    pub(super) fn find(&self, place: usize, read: impl Fn(usize) -> u64) -> Option<Stack> {
        let mut at = *self.roots.get(&place)?;
        loop {
            let node = self.nodes.get(at as usize)?;
            match node.slot {
                END => return Some(node.stack),
                CHANGING => return None,
                slot => at = self.after(at, read(slot))?,
            }
        }
    }

    #[inline]
    fn after(&self, at: u32, address: u64) -> Option<u32> {
        let node = self.nodes.get(at as usize)?;
        if node.address == address {
            return Some(node.next);
        }
        self.branches.get(&(at, address)).copied()
    }

    /// Remembers a stack: the slots of its return addresses with what was in them, innermost first.
    pub(super) fn learn(&mut self, place: usize, path: &[(usize, u64)], stack: Stack) {
        if self.nodes.len() + path.len() >= MOST_NODES {
            *self = Memo::default();
        }
        let mut at = match self.roots.get(&place) {
            Some(root) => *root,
            None => {
                let root = self.add();
                self.roots.insert(place, root);
                root
            }
        };
        for (slot, address) in path {
            let Some(node) = self.nodes.get_mut(at as usize) else {
                return;
            };
            let new = node.next == u32::MAX;
            if new {
                (node.slot, node.address) = (*slot, *address);
            } else if node.slot != *slot {
                node.slot = CHANGING;
                return;
            }
            at = match self.after(at, *address).filter(|next| *next != u32::MAX) {
                Some(next) => next,
                None => {
                    let next = self.add();
                    if new {
                        self.nodes[at as usize].next = next;
                    } else {
                        self.branches.insert((at, *address), next);
                    }
                    next
                }
            };
        }
        if let Some(node) = self.nodes.get_mut(at as usize) {
            // A stack that ended here and now goes on: neither is taken for the other.
            node.slot = if node.next == u32::MAX { END } else { CHANGING };
            node.stack = stack;
        }
    }

    fn add(&mut self) -> u32 {
        self.nodes.push(Node {
            slot: CHANGING,
            address: 0,
            next: u32::MAX,
            stack: Stack::NONE,
        });
        self.nodes.len() as u32 - 1
    }
}

/// Addresses differ in their middle bits; one multiplication is hash enough.
#[derive(Debug, Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(path: &[(usize, u64)]) -> impl Fn(usize) -> u64 {
        move |slot| {
            path.iter()
                .find(|(at, _)| *at == slot)
                .map_or(0, |(_, address)| *address)
        }
    }

    #[test]
    fn paths_share_their_beginning_and_part_where_they_differ() {
        let stacks: Vec<Stack> = (1..5).map(|n| Stack::of(&[n, n + 100])).collect();
        let paths = [
            vec![(100, 1), (200, 2), (300, 3)],
            vec![(100, 1), (200, 2), (300, 4), (400, 5)],
            vec![(100, 1), (200, 9), (250, 3)],
        ];
        let mut memo = Memo::default();
        for (path, stack) in paths.iter().zip(&stacks) {
            assert_eq!(memo.find(50, reader(path)), None);
            memo.learn(50, path, *stack);
        }
        for (path, stack) in paths.iter().zip(&stacks) {
            assert_eq!(memo.find(50, reader(path)), Some(*stack));
            assert_eq!(memo.find(51, reader(path)), None, "another place");
        }
    }

    #[test]
    fn a_frame_that_changes_its_size_is_never_recognised() {
        let (first, second) = (Stack::of(&[7, 8]), Stack::of(&[7, 9]));
        let paths = [vec![(100, 1), (200, 2)], vec![(100, 1), (264, 2)]];
        let mut memo = Memo::default();
        memo.learn(50, &paths[0], first);
        assert_eq!(memo.find(50, reader(&paths[0])), Some(first));
        memo.learn(50, &paths[1], second);
        for path in &paths {
            assert_eq!(memo.find(50, reader(path)), None);
        }
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut memo = Memo::default();
        for n in 0..40_000u64 {
            memo.learn(50, &[(100, n), (200, n)], Stack::OTHER);
        }
        assert!(memo.nodes.len() <= MOST_NODES && memo.branches.len() <= MOST_NODES);
    }
}
