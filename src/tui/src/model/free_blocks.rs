//! The free blocks of a device, summed up anew only where segments changed: a large program has 100,000 blocks, and
//! most of them are the same from pass to pass.

use std::collections::HashMap;
use std::sync::Arc;

use gpumem_channel::{BlockState, DeviceMap, SegmentMap};

use super::blocks::Histogram;

/// Sums over free blocks, kept between passes over the same device.
#[derive(Debug, Default)]
pub struct FreeBlocks {
    /// By slot. A reader hands out the same `Arc` for a segment that did not change.
    known: HashMap<u32, Known>,
    pass: u64,
    sizes: Histogram,
}

#[derive(Debug)]
struct Known {
    segment: Arc<SegmentMap>,
    sums: FreeSums,
    pass: u64,
}

/// Sums over free blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSums {
    /// Bytes.
    pub bytes: u64,
    /// Bytes of the largest.
    pub largest: u64,
    /// Number.
    pub count: u64,
}

impl FreeBlocks {
    /// Takes the newest state of the device.
    pub fn update(&mut self, map: &DeviceMap) -> FreeSums {
        self.pass += 1;
        for segment in &map.segments {
            let known = self.known.get_mut(&segment.slot);
            if let Some(known) = known
                && Arc::ptr_eq(&known.segment, segment)
            {
                known.pass = self.pass;
                continue;
            }
            let sums = count(segment, &mut self.sizes, Histogram::add);
            let known = Known {
                segment: segment.clone(),
                sums,
                pass: self.pass,
            };
            if let Some(old) = self.known.insert(segment.slot, known) {
                count(&old.segment, &mut self.sizes, Histogram::remove);
            }
        }
        let (pass, sizes) = (self.pass, &mut self.sizes);
        self.known.retain(|_, known| {
            if known.pass != pass {
                count(&known.segment, sizes, Histogram::remove);
            }
            known.pass == pass
        });
        self.known.values().fold(FreeSums::default(), |sum, known| FreeSums {
            bytes: sum.bytes.saturating_add(known.sums.bytes),
            largest: sum.largest.max(known.sums.largest),
            count: sum.count + known.sums.count,
        })
    }

    /// The free blocks by size.
    pub fn sizes(&self) -> &Histogram {
        &self.sizes
    }
}

/// Sums up one segment and adds it to, or takes it from, the histogram.
fn count(segment: &SegmentMap, sizes: &mut Histogram, change: fn(&mut Histogram, u64)) -> FreeSums {
    let mut sums = FreeSums::default();
    for block in segment.blocks.iter().filter(|b| b.state == BlockState::Free) {
        sums.bytes = sums.bytes.saturating_add(block.size);
        sums.largest = sums.largest.max(block.size);
        sums.count += 1;
        change(sizes, block.size);
    }
    sums
}

#[cfg(test)]
mod tests {
    use gpumem_channel::Block;

    use super::*;

    fn segment(slot: u32, sizes: &[u64]) -> Arc<SegmentMap> {
        let block = |&size: &u64| Block {
            size,
            state: BlockState::Free,
            ..Block::default()
        };
        let blocks = sizes.iter().map(block).collect();
        Arc::new(SegmentMap {
            slot,
            blocks,
            complete: true,
            ..SegmentMap::default()
        })
    }

    /// Whatever came before, the sums are those of a tracker that sees only the newest state.
    #[test]
    fn agrees_with_counting_everything_anew() {
        let mut kept = FreeBlocks::default();
        let mut seed = 7u64;
        let mut next = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let mut map = DeviceMap::default();
        for _ in 0..500 {
            match next(3) {
                0 => map.segments.retain(|_| next(4) > 0),
                1 => {
                    let sizes: Vec<u64> = (0..next(6)).map(|_| next(1 << 20)).collect();
                    let slot = next(8) as u32;
                    map.segments.retain(|s| s.slot != slot);
                    map.segments.push(segment(slot, &sizes));
                }
                _ => map.segments.reverse(),
            }
            let mut anew = FreeBlocks::default();
            assert_eq!(kept.update(&map), anew.update(&map));
            assert_eq!(kept.sizes(), anew.sizes());
        }
    }
}
