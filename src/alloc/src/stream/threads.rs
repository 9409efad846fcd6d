//! The per-thread default streams, told apart.
//!
//! CUDA has one handle for all of them, which means that of the calling thread. Here each thread that names its own gets a number for it, which
//! no other thread has or gets.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

use gpumem_channel::PER_THREAD_STREAMS;

use super::Stream;

/// So many threads at a time have a number.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 12;
const FIRST: u64 = PER_THREAD_STREAMS.start;
/// How often a place has another number, less one: all bits are set.
const COUNTS: u64 = (PER_THREAD_STREAMS.end - FIRST - 1) >> PLACE_BITS;

/// How often threads have come to a place and gone from it: odd while one is there.
#[derive(Debug)]
struct Places<const N: usize>([AtomicU64; N]);

static PLACES_OF_ALL: Places<PLACES> = Places::new();

thread_local! {
    /// That of the thread's own. It is there as long as the thread.
    static OF_THIS_THREAD: Cell<Option<Stream>> = const { Cell::new(None) };
    /// Where the thread has one. One that is the first time here after its last destructors keeps its place for ever.
    static END: End = const { End };
}

/// The end of a thread.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        if let Some(stream) = OF_THIS_THREAD.take() {
            PLACES_OF_ALL.leave(stream);
        }
    }
}

impl<const N: usize> Places<N> {
    const fn new() -> Places<N> {
        Places([const { AtomicU64::new(0) }; N])
    }

    /// A number that nobody has had. `None`: all places are taken.
    fn come(&self) -> Option<Stream> {
        self.0.iter().enumerate().find_map(|(place, count)| {
            let free = count.load(Acquire);
            let came = free.is_multiple_of(2) && count.compare_exchange(free, free + 1, AcqRel, Acquire).is_ok();
            came.then(|| number(place, free + 1))
        })
    }

    /// The thread of a number has ended.
    fn leave(&self, stream: Stream) {
        self.0[place(stream)].fetch_add(1, Release);
    }

    /// Whether the thread of a number has ended.
    fn has_left(&self, stream: Stream) -> bool {
        let place = place(stream);
        self.0
            .get(place)
            .is_none_or(|count| number(place, count.load(Acquire)) != stream)
    }
}

fn number(place: usize, count: u64) -> Stream {
    Stream(FIRST | (count & COUNTS) << PLACE_BITS | place as u64)
}

fn place(stream: Stream) -> usize {
    stream.0 as usize % PLACES
}

impl Stream {
    /// The calling thread's per-thread default stream. CUDA's handle of it, which is refused, where there is no place.
    #[inline]
    pub(super) fn of_this_thread() -> Stream {
        OF_THIS_THREAD.get().unwrap_or_else(Stream::new_of_this_thread)
    }

    #[cold]
    #[inline(never)]
    fn new_of_this_thread() -> Stream {
        let Some(stream) = PLACES_OF_ALL.come() else {
            return Stream::PER_THREAD;
        };
        match END.try_with(|_| ()) {
            Ok(()) => OF_THIS_THREAD.set(Some(stream)),
            // In its last destructors it has a number for each call: nobody will say that it has ended.
            Err(_) => PLACES_OF_ALL.leave(stream),
        }
        stream
    }

    /// Whether it is a thread's own.
    #[inline]
    pub(crate) fn is_per_thread(self) -> bool {
        PER_THREAD_STREAMS.contains(&self.0)
    }

    /// Whether it is another thread's own. CUDA knows it by the default stream then: that is idle when it is, but an event there holds up what
    /// any thread queues next until all that was queued before is done.
    pub(crate) fn is_of_another_thread(self) -> bool {
        self.is_per_thread() && OF_THIS_THREAD.get() != Some(self)
    }

    /// Whether it is that of a thread that has ended.
    pub(crate) fn has_left(self) -> bool {
        self.is_per_thread() && PLACES_OF_ALL.has_left(self)
    }

    /// The least number of a thread's own. All above it are such or no stream's.
    pub(crate) const FIRST_PER_THREAD: Stream = Stream(FIRST);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{PLACES, Places, Stream};

    #[test]
    fn a_number_is_given_once() {
        let places = Places::<2>::new();
        let first = places.come().unwrap();
        let second = places.come().unwrap();
        assert_ne!(first, second);
        assert_eq!(places.come(), None);
        places.leave(first);
        let third = places.come().unwrap();
        assert_eq!(
            [first, second, third].map(|stream| places.has_left(stream)),
            [true, false, false]
        );
        assert!(third != first && third != second);
        assert!(third.is_per_thread());
    }

    #[test]
    fn a_thread_has_one_number_until_it_ends() {
        let mine = Stream::per_thread();
        assert_eq!(Stream::per_thread(), mine);
        let of_other = move || {
            let other = Stream::per_thread();
            assert!(mine.is_of_another_thread() && !other.is_of_another_thread());
            assert!(!other.has_left());
            other
        };
        let others = [(); 2].map(|()| std::thread::spawn(of_other).join().unwrap());
        assert!(others.iter().all(|other| other.has_left() && *other != mine));
        assert_ne!(others[0], others[1]);
        assert!(!mine.has_left());
    }

    /// Those of a program that starts a thread for each request.
    #[test]
    fn threads_that_have_ended_take_no_place() {
        std::thread::scope(|scope| {
            for _ in 0..PLACES + 8 {
                let one = scope.spawn(|| assert!(Stream::per_thread().is_per_thread()));
                one.join().unwrap();
            }
        });
    }

    #[test]
    fn streams_of_other_numbers_never_leave() {
        for stream in [Stream::DEFAULT, Stream(2), Stream(0x7fff_ffff_f000), Stream(u64::MAX)] {
            assert!(!stream.is_per_thread() && !stream.has_left(), "{stream:?}");
        }
    }
}
