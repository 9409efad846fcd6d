//! Free blocks set aside whole, by exact size: most requests are for a size that was asked for before, and then neither the index nor
//! a neighbour has to be looked at. They join their free neighbours all together, when a request of another size comes.

use super::block::{Blocks, NIL};

/// Sizes a stream's quick lists tell apart.
const LISTS: usize = 256;

/// The free blocks of one size, the one freed last first.
#[derive(Clone, Copy, Debug)]
struct List {
    size: u64,
    first: u32,
    /// Whether it is among those that are not empty.
    noted: bool,
}

/// The quick lists of one stream.
#[derive(Debug)]
pub(crate) struct Quick {
    lists: Box<[List; LISTS]>,
    /// Lists that are not empty, and some that are.
    noted: Vec<u8>,
}

#[inline(always)]
fn list_of(size: u64) -> usize {
    // Sizes are multiples of 512, and often of much more.
    ((size >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

impl Quick {
    pub(crate) fn new() -> Quick {
        let empty = List {
            size: 0,
            first: NIL,
            noted: false,
        };
        Quick {
            lists: Box::new([empty; LISTS]),
            noted: Vec::with_capacity(LISTS),
        }
    }

    /// Whether a block of this size may be set aside: its list is not taken by another size.
    #[inline(always)]
    pub(crate) fn takes(&self, size: u64) -> bool {
        let list = &self.lists[list_of(size)];
        list.first == NIL || list.size == size
    }

    /// Sets a block aside that [`takes`](Quick::takes) allows.
    #[inline(always)]
    pub(crate) fn put(&mut self, size: u64, b: u32, blocks: &mut Blocks) {
        let at = list_of(size);
        let list = &mut self.lists[at];
        blocks[b].link = list.first;
        (list.size, list.first) = (size, b);
        if !list.noted {
            list.noted = true;
            self.noted.push(at as u8);
        }
    }

    /// The block of this size that was set aside last.
    #[inline(always)]
    pub(crate) fn take(&mut self, size: u64, blocks: &Blocks) -> Option<u32> {
        let list = &mut self.lists[list_of(size)];
        if list.size != size || list.first == NIL {
            return None;
        }
        let b = list.first;
        list.first = blocks[b].link;
        Some(b)
    }

    /// Takes a certain block of this size; whether that was the one set aside last.
    pub(crate) fn take_this(&mut self, size: u64, b: u32, blocks: &Blocks) -> bool {
        let list = &self.lists[list_of(size)];
        list.first == b && self.take(size, blocks).is_some()
    }

    /// Any block that is set aside.
    pub(crate) fn take_any(&mut self, blocks: &Blocks) -> Option<u32> {
        while let Some(at) = self.noted.last() {
            let list = &mut self.lists[*at as usize];
            if list.first != NIL {
                let b = list.first;
                list.first = blocks[b].link;
                return Some(b);
            }
            list.noted = false;
            self.noted.pop();
        }
        None
    }

    /// All of one size.
    #[cfg(test)]
    pub(crate) fn of_size(&self, size: u64, blocks: &Blocks) -> Vec<u32> {
        let list = &self.lists[list_of(size)];
        let first = (list.size == size && list.first != NIL).then_some(list.first);
        let next = |b: &u32| Some(blocks[*b].link).filter(|next| *next != NIL);
        std::iter::successors(first, next).collect()
    }
}
