//! Lists of the pieces of stitched blocks. Loops make the same ones again and again: each is kept once, and no longer than something
//! refers to it.

use std::collections::HashMap;
use std::sync::Arc;

/// Addresses and bytes of the pieces of a stitched block.
pub(crate) type Pieces = Arc<[(u64, u64)]>;

#[derive(Debug)]
struct List {
    /// Empty while the number is spare.
    pieces: Pieces,
    /// Events and blocks that refer to it.
    uses: u32,
}

/// Lists, each once.
#[derive(Debug)]
pub(super) struct Lists {
    /// By number. Number 0 is that of what has no pieces.
    lists: Vec<List>,
    numbers: HashMap<Pieces, u32>,
    /// Numbers of lists that were dropped, for the next ones.
    spare: Vec<u32>,
}

impl Lists {
    pub(super) fn new() -> Lists {
        let none = List {
            pieces: Pieces::default(),
            uses: 0,
        };
        Lists {
            lists: vec![none],
            numbers: HashMap::new(),
            spare: Vec::new(),
        }
    }

    /// The number of a list. Who asks refers to it from now on.
    pub(super) fn refer(&mut self, pieces: &[(u64, u64)]) -> u32 {
        if pieces.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(pieces).copied() {
            self.refer_again(number);
            return number;
        }
        let pieces: Pieces = pieces.into();
        let list = List {
            pieces: Arc::clone(&pieces),
            uses: 1,
        };
        let number = match self.spare.pop() {
            Some(number) => {
                self.lists[number as usize] = list;
                number
            }
            None => {
                self.lists.push(list);
                self.lists.len() as u32 - 1
            }
        };
        self.numbers.insert(pieces, number);
        number
    }

    /// One more refers to a list.
    pub(super) fn refer_again(&mut self, number: u32) {
        if number != 0 {
            self.lists[number as usize].uses += 1;
        }
    }

    /// One that referred to a list no longer does.
    pub(super) fn let_go(&mut self, number: u32) {
        if number == 0 {
            return;
        }
        let list = &mut self.lists[number as usize];
        list.uses -= 1;
        if list.uses == 0 {
            self.numbers.remove(&std::mem::take(&mut list.pieces));
            self.spare.push(number);
        }
    }

    /// All of them, by number.
    pub(super) fn all(&self) -> Vec<Pieces> {
        self.lists.iter().map(|list| Arc::clone(&list.pieces)).collect()
    }

    /// Bytes of host memory.
    pub(super) fn bytes(&self) -> usize {
        // Two counters beside the pieces.
        let of_list = |pieces: &Pieces| size_of_val(&**pieces) + 2 * size_of::<usize>();
        let pieces: usize = self.numbers.keys().map(of_list).sum();
        // As many as there ever were at once: a table does not become smaller.
        let each = size_of::<List>() + size_of::<(Pieces, u32)>() + size_of::<u32>();
        pieces + self.lists.len() * each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_while_something_refers_to_it_and_its_number_is_used_again() {
        let mut lists = Lists::new();
        let (a, b) = ([(512, 512)], [(512, 512), (4096, 1024)]);
        assert_eq!((lists.refer(&[]), lists.refer(&a), lists.refer(&b)), (0, 1, 2));
        assert_eq!(lists.refer(&a), 1, "known");
        lists.refer_again(1);
        for _ in 0..2 {
            lists.let_go(1);
            assert_eq!(lists.refer(&a), 1, "others refer to it");
            lists.let_go(1);
        }
        lists.let_go(1);
        assert_eq!((lists.all()[1].len(), lists.all()[2][..] == b), (0, true));
        assert_eq!(lists.refer(&[(1024, 512)]), 1);
        assert_eq!((lists.refer(&a), lists.lists.len()), (3, 4));
        lists.let_go(0);
        assert_eq!(lists.refer(&[]), 0);
    }
}
