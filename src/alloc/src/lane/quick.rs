//! Free blocks set aside whole, by exact size: neither the heap's index nor a neighbour has to be looked at.

/// Sizes told apart.
const LISTS: usize = 256;
/// The end of a list.
const END: u32 = u32::MAX;

/// The free blocks of one size, the one freed last first.
#[derive(Clone, Copy, Debug)]
struct List {
    size: u64,
    first: u32,
    /// Whether it is among those that are not empty.
    noted: bool,
}

/// Lists of numbers; the links are kept with what is numbered.
#[derive(Debug)]
pub(super) struct Quick {
    lists: Box<[List; LISTS]>,
    /// Lists that are not empty, and some that are.
    noted: Vec<u8>,
}

/// The list of a size, which another size may have taken.
#[inline(always)]
pub(crate) fn list_of(size: u64) -> usize {
    // Sizes are multiples of 512, and often of much more.
    ((size >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

impl Quick {
    pub(super) fn new() -> Quick {
        let empty = List {
            size: 0,
            first: END,
            noted: false,
        };
        Quick {
            lists: Box::new([empty; LISTS]),
            noted: Vec::with_capacity(LISTS),
        }
    }

    /// Whether a block of this size may be set aside: its list is not taken by another size.
    #[inline(always)]
    pub(super) fn takes(&self, size: u64) -> bool {
        let list = &self.lists[list_of(size)];
        list.first == END || list.size == size
    }

    /// Sets a block aside that [`takes`](Quick::takes) allows. What it is to be linked to.
    #[inline(always)]
    pub(super) fn put(&mut self, size: u64, at: u32) -> u32 {
        let index = list_of(size);
        let list = &mut self.lists[index];
        let link = std::mem::replace(&mut list.first, at);
        list.size = size;
        if !list.noted {
            list.noted = true;
            self.noted.push(index as u8);
        }
        link
    }

    /// The block of this size that was set aside last.
    #[inline(always)]
    pub(super) fn first(&self, size: u64) -> Option<u32> {
        let list = &self.lists[list_of(size)];
        (list.size == size && list.first != END).then_some(list.first)
    }

    /// Takes the [`first`](Quick::first) of a size, which is linked to `link`.
    #[inline(always)]
    pub(super) fn take(&mut self, size: u64, link: u32) {
        self.lists[list_of(size)].first = link;
    }

    /// Any block that is set aside.
    pub(super) fn take_any(&mut self, link: impl Fn(u32) -> u32) -> Option<u32> {
        while let Some(index) = self.noted.last() {
            let list = &mut self.lists[usize::from(*index)];
            if list.first != END {
                let at = list.first;
                list.first = link(at);
                return Some(at);
            }
            list.noted = false;
            self.noted.pop();
        }
        None
    }

    /// All of one size.
    #[cfg(test)]
    pub(super) fn of_size(&self, size: u64, link: impl Fn(u32) -> u32) -> Vec<u32> {
        std::iter::successors(self.first(size), |at| Some(link(*at)).filter(|next| *next != END)).collect()
    }
}
