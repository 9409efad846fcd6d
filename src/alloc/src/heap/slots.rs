//! Things by number, where a new one has the first vacant number.

/// A table of things by number.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    /// No slot before this is vacant: to look at all of them for each new one would take long where there are very many.
    vacant: usize,
    /// How often all were looked at.
    #[cfg(test)]
    pub(crate) looks: std::cell::Cell<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots {
            slots: Vec::new(),
            vacant: 0,
            #[cfg(test)]
            looks: Default::default(),
        }
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let from = self.vacant.min(self.slots.len());
        let vacant = self.slots[from..].iter().position(Option::is_none);
        let slot = vacant.map_or(self.slots.len(), |behind| from + behind);
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(value),
            None => self.slots.push(Some(value)),
        }
        self.vacant = slot + 1;
        slot as u32
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let gone = self.slots.get_mut(slot as usize)?.take()?;
        self.vacant = self.vacant.min(slot as usize);
        Some(gone)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        #[cfg(test)]
        self.looks.update(|looks| looks + 1);
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, value)| value.as_ref().map(|value| (at as u32, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_one_has_the_first_vacant_slot() {
        let mut slots = Slots::default();
        let insert = |slots: &mut Slots<()>, expected: &[u32]| {
            for slot in expected {
                assert_eq!(slots.insert(()), *slot);
            }
        };
        insert(&mut slots, &[0, 1, 2, 3, 4]);
        for slot in [3, 1] {
            assert!(slots.remove(slot).is_some() && slots.remove(slot).is_none());
        }
        insert(&mut slots, &[1, 3, 5]);
        assert!(slots.remove(5).is_some() && slots.remove(9).is_none());
        insert(&mut slots, &[5, 6]);
    }

    #[test]
    fn the_next_is_looked_for_behind_those_there_are() {
        let mut slots = Slots::default();
        let behind = |slots: &Slots<u64>| slots.slots.len() - slots.vacant;
        for value in 0..1000 {
            slots.insert(value);
            assert_eq!(behind(&slots), 0);
        }
        slots.remove(300);
        slots.insert(0);
        // Once more to the end.
        assert_eq!(behind(&slots), 699);
        slots.insert(0);
        assert_eq!(behind(&slots), 0);
    }
}
