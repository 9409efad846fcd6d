//! The least and the most of something over some time, so that a column of a graph hides nothing between two samples.

/// The heights of the layers of a stack: the least and the most that each was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread<T> {
    /// The least height of each layer's top.
    pub least: T,
    /// The most, with as many layers.
    pub most: T,
}

impl<T: Clone> Spread<T> {
    /// Returns the spread of one moment.
    pub(crate) fn of(tops: T) -> Spread<T> {
        Spread {
            least: tops.clone(),
            most: tops,
        }
    }

    /// Converts both heights.
    pub(crate) fn map<U>(&self, convert: impl Fn(&T) -> U) -> Spread<U> {
        Spread {
            least: convert(&self.least),
            most: convert(&self.most),
        }
    }
}

impl<T: AsRef<[u64]> + AsMut<[u64]>> Spread<T> {
    /// Extends it by that of another time.
    pub(crate) fn add(&mut self, other: &Spread<T>) {
        for (least, other) in self.least.as_mut().iter_mut().zip(other.least.as_ref()) {
            *least = (*least).min(*other);
        }
        for (most, other) in self.most.as_mut().iter_mut().zip(other.most.as_ref()) {
            *most = (*most).max(*other);
        }
    }
}
