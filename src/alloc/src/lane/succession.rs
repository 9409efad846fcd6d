//! Lanes go from streams that have ended to others.
//!
//! Only the name changes hands. What a lane counts stays counted there, and so do the numbers of blocks that the program still holds and
//! that the heap has recalled: these are given back by their number as ever.

use gpumem_channel::{self as channel, NO_STREAM};

use super::Lane;
use super::atomic::Ordering;
use super::front::{Front, LANES, PLACES, place_of};
use crate::stream::Stream;

impl Lane {
    /// It is the lane of a stream from now on.
    fn begin(&mut self, stream: Stream, clock: u64) {
        (self.open, self.stream, self.clock) = (true, stream, clock);
        if let Some(outlet) = &mut self.outlet {
            outlet.continue_with(stream.0);
        }
    }

    fn is_vacant(&self) -> bool {
        self.stream.0 == NO_STREAM
    }
}

impl Front {
    /// Opens a lane for a stream that has none, a new one or one that was [left](Front::leave); `None` when all are taken, or there is no
    /// `outlet` to be had for it.
    pub(crate) fn open(
        &'static self,
        stream: Stream,
        clock: u64,
        outlet: impl FnOnce() -> Option<Option<channel::Lane>>,
    ) -> Option<u8> {
        let free = |lane: &Option<Lane>| lane.as_ref().is_none_or(Lane::is_vacant);
        let number = (0..LANES as u8).find(|number| free(&self.lock(*number)))?;
        let mut place = self.lock(number);
        let lane = match &mut *place {
            Some(lane) => lane,
            empty => {
                let lane = empty.insert(Lane::new(number, self.lists_of(number), stream, outlet()?));
                self.came();
                lane
            }
        };
        lane.begin(stream, clock);
        drop(place);
        self.enter(stream.0, number);
        Some(number)
    }

    /// Makes a stream's lane be found.
    fn enter(&self, stream: u64, number: u8) {
        let mut place = place_of(Stream(stream));
        while self.streams[place].load(Ordering::Relaxed) != NO_STREAM {
            place = (place + 1) % PLACES;
        }
        self.numbers[place].store(number, Ordering::Relaxed);
        self.streams[place].store(stream, Ordering::Release);
    }

    /// The stream of a lane has ended. The heap has closed the lane and taken back all that was lent.
    pub(crate) fn leave(&self, number: u8) {
        let places = || self.streams.iter().zip(&self.numbers);
        let others: Vec<(u64, u8)> = places()
            .map(|(stream, number)| (stream.load(Ordering::Relaxed), number.load(Ordering::Relaxed)))
            .filter(|(stream, its)| *stream != NO_STREAM && *its != number)
            .collect();
        // Who looks meanwhile finds less than there is, and asks the heap.
        places().for_each(|(stream, _)| stream.store(NO_STREAM, Ordering::Release));
        for (stream, number) in others {
            self.enter(stream, number);
        }
        self.with(number, |lane| lane.stream = Stream(NO_STREAM));
        self.set_by_class(number, false);
    }
}
