//! The turn: one thread at a time maps memory, gives it back to the driver or moves it.

use super::Home;
use super::enter::ALL_STACKS;
use super::queue::Called;
use crate::error::Error;
use crate::heap::{self, Access, Errands, Heap, Named, Unmet};
use crate::process::Uncancelled;
use crate::stack::{self, Kept, Stack};
use crate::stream::Stream;

/// Streams of threads that have ended which are kept while the GPU is busy. What they own nobody else gets meanwhile.
const LEFT: usize = 16;

/// A way to the heap for who asks the driver something, for which the turn is not needed.
#[derive(Debug)]
pub(crate) struct Way<'a>(&'a Home);

impl Access for Way<'_> {
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.0.enter_for(ALL_STACKS, |tenant| work(&mut tenant.heap))
    }
}

/// Who has the turn, and may call the driver for long. It holds the heap's lock only in between. What others left meanwhile that takes the
/// turn is done at its end.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    home: &'a Home,
    called: Option<Called<'a>>,
    _caller: Kept,
}

impl Access for Turn<'_> {
    fn heap<R>(&mut self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.home.with(work)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // First: who leaves something and does not get the turn any more has left it before this looks.
        self.called = None;
        if !std::thread::panicking() {
            self.home.give_back_closing();
        }
    }
}

impl Home {
    /// Waits for the turn. In a forked child it may be somebody's for ever who does not exist.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, Error> {
        self.not_forked()?;
        Ok(self.wait_for_turn())
    }

    /// Waits for the turn, for who keeps its stack.
    pub(super) fn turn_as(&self, caller: Kept) -> Turn<'_> {
        Turn {
            home: self,
            called: Some(self.turn.wait()),
            _caller: caller,
        }
    }

    /// The turn, if it is nobody's, for who has the heap's lock: the stack is kept already, if one is wanted.
    pub(super) fn turn_now(&self) -> Option<Turn<'_>> {
        let called = self.turn.try_now()?;
        Some(Turn {
            home: self,
            called: Some(called),
            _caller: Kept::begin(|| Stack::NONE),
        })
    }

    /// The same for a thread of ours if the heap is still that of the tenant: then it is until the turn is over. Nobody is asked where that
    /// thread is: who can tell may wait for its end.
    pub(crate) fn turn_of(&self, tenant: u64) -> Option<Turn<'_>> {
        self.not_forked().ok()?;
        let turn = self.turn_as(Kept::begin(stack::unwind));
        self.visit(tenant, |_| ()).map(|()| turn)
    }

    /// The same where this is no forked child.
    pub(super) fn wait_for_turn(&self) -> Turn<'_> {
        self.turn_as(self.keep_caller())
    }

    /// The heap, for who lets go of it to ask the driver something.
    pub(crate) fn way(&self) -> Way<'_> {
        Way(self)
    }

    /// Does what names a stream, which may be a new one: if there is no room for it, again once those that have ended are forgotten, for which
    /// the device is waited for if nothing else helps.
    #[inline]
    pub(crate) fn naming<R>(&self, mut work: impl FnMut() -> Result<R, Error>) -> Result<R, Error> {
        match work() {
            Err(Error::TooManyStreams { .. }) => self.name_again(work),
            result => result,
        }
    }

    #[cold]
    #[inline(never)]
    fn name_again<R>(&self, mut work: impl FnMut() -> Result<R, Error>) -> Result<R, Error> {
        let _undisturbed = Uncancelled::begin();
        self.retire_left_by_threads(1);
        heap::forget_streams(&mut self.way())?;
        self.give(|_| ())?;
        match work() {
            Err(Error::TooManyStreams { .. })
                if self.with(|heap| heap.retire_unused() || heap.may_forget_more())? =>
            {
                heap::forget_awaited_streams(&mut self.turn()?)?;
                self.give(|_| ())?;
                work()
            }
            result => result,
        }
    }

    /// The same for what does nothing but that, with the heap.
    pub(crate) fn name<R>(&self, mut work: impl FnMut(&mut Heap) -> Result<R, Error>) -> Result<R, Error> {
        self.naming(|| {
            let (result, unmet) = self.give(|heap| (work(heap), heap.take_unmet()))?;
            self.meet(unmet);
            result
        })
    }

    /// The program is about to use streams that are new.
    #[inline]
    pub(super) fn meet(&self, unmet: Option<Unmet>) {
        if let Some(unmet) = unmet {
            self.meet_new(&unmet);
        }
    }

    #[cold]
    #[inline(never)]
    fn meet_new(&self, unmet: &Unmet) {
        let known = unmet.meet();
        // A forked child has no streams.
        let _ = self.see(|heap| known.iter().for_each(|(stream, id)| heap.note_id(*stream, *id)));
        self.retire_left_by_threads(LEFT);
    }

    /// Retires the streams of threads that have ended: whoever starts threads again and again would have too many otherwise, and there are few
    /// lanes.
    fn retire_left_by_threads(&self, many: usize) {
        let _undisturbed = Uncancelled::begin();
        // While a graph is captured, and where it fails, it is left to the next stream.
        let _ = heap::retire_left_by_threads(&mut self.way(), many);
        let _ = self.give(|_| ());
    }

    /// Completes blocks that wait for other streams, and gives back what is left of pools that are gone.
    pub(crate) fn poll(&self) -> Result<(), Error> {
        heap::poll(&mut self.way())?;
        self.give_all(|heap| heap.look_at_all_closing())
    }

    /// [`give`](Home::give), which comes back only when what is left of pools that are gone was given back, if by another thread.
    pub(crate) fn give_all<R>(&self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        let result = self.give(work)?;
        if self.see(|heap| heap.has_closing())? {
            let _turn = self.turn()?;
            self.shrink_closing();
        }
        Ok(result)
    }

    /// Whether the stream of a block has ended, and if so whether its work is known to be done.
    pub(crate) fn has_ended(&self, block: u32) -> Result<Option<bool>, Error> {
        let ended = heap::has_ended(&mut self.way(), block)?;
        if ended.is_some() {
            self.give(|_| ())?;
        }
        Ok(ended)
    }

    /// A stream is about to be destroyed.
    pub(crate) fn retire_stream(&self, stream: Stream, named: Named) -> Result<(), Error> {
        // No event of a stream tells of one that had the handle before. Who retires it waits for who asks something of it: for this, too.
        self.give(|heap| heap.identify_named(stream, named))?;
        heap::retire_stream(&mut self.way(), stream)?;
        self.give(|_| ())
    }

    /// Does what a request left to be done: who gives back something else would do it.
    #[cold]
    #[inline(never)]
    pub(super) fn run_what_is_due(&self) {
        // A forked child has nothing.
        let _ = self.give(|_| ());
    }

    /// Does what was left to be done when the heap's lock was let go of.
    #[cold]
    #[inline(never)]
    pub(super) fn run_errands(&self, errands: Box<Errands>) {
        let _undisturbed = Uncancelled::begin();
        // A forked child has nothing.
        if let Ok(true) = heap::run_errands(&mut self.way(), errands) {
            self.give_back_closing();
        }
    }

    /// Gives back what is left of pools that are gone, unless another thread has the turn, which does it then: who gives a buffer back waits
    /// for no other one's call.
    fn give_back_closing(&self) {
        while let Ok(true) = self.see(|heap| heap.has_closing()) {
            let _caller = self.keep_caller();
            let Some(_called) = self.turn.try_now() else { return };
            self.shrink_closing();
        }
    }

    /// The same for who has the turn.
    fn shrink_closing(&self) {
        let _undisturbed = Uncancelled::begin();
        let closing = self.see(Heap::take_closing);
        // What the driver does not take stays for the next release.
        let _ = closing.and_then(|closing| heap::shrink_closing(&mut self.way(), &closing));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::{Duration, Instant};

    use crate::allocator::Allocator;
    use crate::buffer::Buffer;
    use crate::config::Config;
    use crate::device::{Call, Sim, SimConfig, Timeline};
    use crate::error::Error;
    use crate::publish::Publish;
    use crate::route::Route;
    use crate::stream::Stream;

    /// An allocator, and a buffer of each stream that there is room for. Work is queued on all but the first.
    fn full() -> (Sim, Allocator, Vec<Buffer<u8>>) {
        let sim = Sim::new(SimConfig {
            timeline: Timeline::Manual,
            ..SimConfig::default()
        });
        let config = Config {
            publish: Publish::Off,
            cross_stream_reuse: true,
            ..Config::default()
        };
        let alloc = Allocator::new(sim.device(), config).unwrap();
        let mut held = Vec::new();
        while let Ok(buffer) = alloc.alloc::<u8>(512, Stream(held.len() as u64 + 1)) {
            held.push(buffer);
        }
        for buffer in &held[1..] {
            sim.enqueue(buffer.stream(), buffer.device_ptr(), 512);
        }
        (sim, alloc, held)
    }

    /// Streams end, their work is done and so are their buffers gone, but the first's.
    fn end(sim: &Sim, alloc: &Allocator, held: &mut Vec<Buffer<u8>>) {
        for buffer in &held[1..] {
            alloc.retire_stream(buffer.stream()).unwrap();
        }
        held.drain(1..).for_each(|buffer| sim.finish(buffer.stream()));
    }

    #[test]
    fn there_is_room_for_a_stream_once_others_are_forgotten() {
        let (sim, alloc, mut held) = full();
        let count = held.len() as u64;
        let refused = |result: Result<(), Error>| assert!(matches!(result, Err(Error::TooManyStreams { .. })));
        let new = |at: u64| Stream(count + at);
        refused(alloc.alloc::<u8>(512, new(1)).map(drop));
        refused(held[0].record_stream(new(2)));
        end(&sim, &alloc, &mut held);
        held[0].record_stream(new(2)).unwrap();
        drop(alloc.alloc::<u8>(512, new(1)).unwrap());
        let raw = alloc.alloc_raw(512, new(3)).unwrap();
        alloc.record_stream_raw(raw, new(4)).unwrap();
        alloc.free_raw(raw).unwrap();
        assert_eq!(sim.violations(), Vec::<String>::new());
    }

    /// They were destroyed first, and take no event; or what they have queued takes long. Their memory is anybody's only once the device was
    /// waited for, and a capture would end by that.
    #[test]
    fn who_finds_no_room_waits_for_streams_that_have_ended_but_not_while_a_graph_is_captured() {
        for takes_events in [false, true] {
            let (sim, alloc, mut held) = full();
            let count = held.len() as u64;
            let pool = alloc.private_pool().unwrap();
            for buffer in held.drain(1..) {
                sim.fail_next(Call::Record, u64::from(!takes_events));
                alloc.retire_stream(buffer.stream()).unwrap();
            }
            let elsewhere = Route::Stream(Stream(1 << 20));
            alloc.begin_allocate_to_pool(&pool, elsewhere).unwrap();
            let refused = alloc.alloc::<u8>(512, Stream(count + 1));
            assert!(matches!(refused, Err(Error::TooManyStreams { .. })), "{refused:?}");
            assert_eq!(sim.calls(Call::Synchronize), 0);
            alloc.end_allocate_to_pool(&pool).unwrap();
            // What was freed is still in use.
            for at in 1..count {
                let new = alloc.alloc::<u8>(512, Stream(count + at)).unwrap();
                assert!(!sim.busy_for(new.stream(), new.device_ptr(), 512));
                held.push(new);
            }
            assert_eq!(sim.calls(Call::Synchronize), 1, "there is room for all at once");
            assert_eq!(sim.violations(), Vec::<String>::new());
        }
    }

    /// There are two lanes in tests.
    #[test]
    fn lanes_of_threads_that_have_ended_are_the_next_streams_whosever_that_is() {
        let config = Config {
            publish: Publish::Off,
            cross_stream_reuse: true,
            ..Config::default()
        };
        let alloc = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
        let insist = |stream: Stream| (0..8).for_each(|_| drop(alloc.alloc::<u8>(4096, stream).unwrap()));
        let both = std::sync::Barrier::new(2);
        let work = || {
            insist(Stream::per_thread());
            both.wait();
        };
        std::thread::scope(|scope| [(); 2].map(|()| scope.spawn(work)).map(|one| one.join().unwrap()));
        insist(Stream(7));
        assert!(alloc.0.home.lend_quick((4096, 4096), Stream(7), false).is_some());
    }

    /// Who is in a driver call, or waits to be, knows its own stream's line and no other.
    #[test]
    fn there_is_room_for_a_stream_while_others_take_memory() {
        let (sim, alloc, mut held) = full();
        let new = Stream(held.len() as u64 + 1);
        let known = held[0].stream();
        end(&sim, &alloc, &mut held);
        let pause = sim.pause_first(Call::Create);
        std::thread::scope(|scope| {
            let large = || drop(alloc.alloc::<u8>(100 << 20, known).unwrap());
            let slow = [scope.spawn(large), scope.spawn(large)];
            pause.wait();
            let asks = scope.spawn(|| drop(alloc.alloc::<u8>(512, new).unwrap()));
            let began = Instant::now();
            while !asks.is_finished() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let waited = !asks.is_finished() || slow.iter().any(|slow| slow.is_finished());
            drop(pause);
            assert!(!waited, "it waited for them");
        });
        assert_eq!(sim.violations(), Vec::<String>::new());
    }

    /// Before anybody else who waits for the turn.
    #[test]
    fn there_is_room_for_a_pool_once_others_are_gone() {
        let (sim, alloc, held) = full();
        let stream = held[0].stream();
        let mut pools = Vec::new();
        while let Ok(pool) = alloc.private_pool() {
            drop(pool.alloc::<u8>(512, stream).unwrap());
            pools.push(pool);
        }
        let pause = sim.pause_first(Call::Create);
        std::thread::scope(|scope| {
            let large = || drop(alloc.alloc::<u8>(100 << 20, stream).unwrap());
            scope.spawn(large);
            pause.wait();
            drop(pools);
            let new = scope.spawn(|| alloc.private_pool().map(drop));
            std::thread::sleep(Duration::from_millis(100));
            scope.spawn(|| drop(alloc.alloc::<u8>(200 << 20, stream).unwrap()));
            std::thread::sleep(Duration::from_millis(100));
            drop(pause);
            new.join().unwrap().unwrap();
        });
    }

    #[test]
    fn nobody_waits_while_it_is_asked_which_can_be_forgotten() {
        let (sim, alloc, mut held) = full();
        let new = Stream(held.len() as u64 + 1);
        end(&sim, &alloc, &mut held);
        let pause = sim.pause_first(Call::Query);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| drop(alloc.alloc::<u8>(512, new).unwrap()));
            pause.wait();
            let others = scope.spawn(|| {
                // By way of the heap.
                for bytes in 1..100 {
                    drop(alloc.alloc::<u8>(512 * bytes, held[0].stream()).unwrap());
                }
            });
            let began = Instant::now();
            while !others.is_finished() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(others.is_finished(), "they wait");
            assert!(!slow.is_finished());
            drop(pause);
        });
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}
