//! The numbers of tags and phases, which their colours and glyphs depend on. A name keeps its number for the session, whatever
//! comes and goes beside it.

use std::sync::Arc;

/// Most names that have a number. A program may make up a name for each step.
const MAX_NAMES: usize = 64;
/// Colours of tags, and their glyphs, the digits 1 to 9. Number `n` has colour `n % TAG_COLOURS` and glyph `n % TAG_GLYPHS`.
pub(crate) const TAG_COLOURS: u8 = 5;
/// See [`TAG_COLOURS`].
pub(crate) const TAG_GLYPHS: u8 = 9;
/// Looks of phases. Number `n` has look `n % PHASE_LOOKS`.
pub(crate) const PHASE_LOOKS: u8 = 4;

/// The numbers of the names of one kind, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers(Vec<(Arc<str>, u8)>);

impl Numbers {
    /// Returns the number of a name. `None` if it came when there were too many.
    pub(crate) fn of(&self, name: &str) -> Option<u8> {
        self.0.iter().find(|(known, _)| **known == *name).map(|known| known.1)
    }

    /// Checks whether a name is to get a number.
    pub(crate) fn lacks(&self, name: &str) -> bool {
        self.0.len() < MAX_NAMES && self.of(name).is_none()
    }

    /// Gives numbers to those of `names` that have none: the lowest that no name has, and that is not `alike` to one of the others.
    /// When no such number is left, another name's is taken, of one that is not shown if there is one. `names` are those that are
    /// shown together.
    fn add(&mut self, names: &[Arc<str>], numbers: u8, alike: fn(u8, u8) -> bool) {
        for name in names {
            if !self.lacks(name) {
                continue;
            }
            let shown: Vec<u8> = names.iter().filter_map(|name| self.of(name)).collect();
            let is_free = |n: &u8| self.0.iter().all(|known| known.1 != *n);
            let differs = |n: &u8| shown.iter().all(|other| !alike(*n, *other));
            let number = (0..numbers).find(|n| is_free(n) && differs(n));
            let in_turn = (self.0.len() % usize::from(numbers)) as u8;
            let number = number.or_else(|| (0..numbers).find(differs)).unwrap_or(in_turn);
            self.0.push((name.clone(), number));
        }
    }
}

/// The numbers of tags and of phases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looks {
    /// Of tags that were stacked.
    pub tags: Numbers,
    /// Of phases.
    pub phases: Numbers,
}

impl Looks {
    /// Gives numbers to tags that are stacked together.
    pub(crate) fn add_tags(&mut self, names: &[Arc<str>]) {
        let alike = |a, b| a % TAG_COLOURS == b % TAG_COLOURS || a % TAG_GLYPHS == b % TAG_GLYPHS;
        self.tags.add(names, TAG_COLOURS * TAG_GLYPHS, alike);
    }

    /// Gives numbers to the phases of a device.
    pub(crate) fn add_phases(&mut self, names: &[Arc<str>]) {
        self.phases.add(names, PHASE_LOOKS, |a, b| a == b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(letters: &str) -> Vec<Arc<str>> {
        letters.chars().map(|c| c.to_string().into()).collect()
    }

    fn tags(looks: &Looks, letters: &str) -> Vec<u8> {
        names(letters).iter().filter_map(|name| looks.tags.of(name)).collect()
    }

    #[test]
    fn name_keeps_its_number_when_others_come_and_go() {
        let mut looks = Looks::default();
        looks.add_tags(&names("ab"));
        looks.add_tags(&names("cba"));
        looks.add_tags(&names("dec"));
        assert_eq!(tags(&looks, "abcde"), [0, 1, 2, 3, 4]);
        // The sixth has the colour of one that is not shown beside it.
        looks.add_tags(&names("bcdef"));
        assert_eq!(tags(&looks, "abcdef"), [0, 1, 2, 3, 4, 5]);
        looks.add_tags(&names("acdeg"));
        assert_eq!(tags(&looks, "g"), [6]);
    }

    #[test]
    fn names_shown_together_differ_in_colour_and_glyph() {
        let mut looks = Looks::default();
        let all = names("abcdefghijklmnopqrstuvwxyz");
        for five in all.windows(5) {
            looks.add_tags(five);
            let numbers: Vec<u8> = five.iter().filter_map(|name| looks.tags.of(name)).collect();
            for (i, a) in numbers.iter().enumerate() {
                for b in &numbers[..i] {
                    let differ = a % TAG_COLOURS != b % TAG_COLOURS && a % TAG_GLYPHS != b % TAG_GLYPHS;
                    assert!(differ, "{five:?}: {numbers:?}");
                }
            }
        }
    }

    #[test]
    fn number_of_names_is_bounded() {
        let mut looks = Looks::default();
        for step in 0..1000 {
            looks.add_phases(&[format!("step {step}").into()]);
        }
        assert_eq!(looks.phases.0.len(), MAX_NAMES);
        assert_eq!(
            (looks.phases.of("step 3"), looks.phases.of("step 999")),
            (Some(3), None)
        );
    }
}
