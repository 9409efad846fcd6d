//! This very process as a publisher: one segment, a quarter of it cached.

use gpumem_channel::{Block, BlockState, Device, DeviceStats, Options, PoolId, Publisher, Segment, Touched};

use crate::World;

const MIB: u64 = 1 << 20;

/// The UUID of the fake NVML's GPU with this number.
pub fn uuid_of(gpu: u8) -> [u8; 16] {
    [0x6f, 0x5a, 0xe4, 0xc5, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, gpu]
}

/// Publishes 512 MiB on the GPU with this UUID, 128 MiB of it cached. The publisher calls it its device 0.
pub fn publish(world: &World, uuid: [u8; 16]) -> Publisher {
    let options = Options {
        dir: Some(world.channels().to_owned()),
        blocks: 64,
        segments: 8,
        events: 64,
        ..Options::default()
    };
    let mut publisher = Publisher::create(&options).unwrap();
    publisher.set_device(
        0,
        &Device {
            uuid,
            total: 80 << 30,
            granularity: 2 * MIB,
            name: "H100".into(),
            ..Device::default()
        },
    );
    let (addr, pool) = (1 << 32, PoolId::LARGE);
    let held = Block {
        addr,
        size: 384 * MIB,
        requested: 384 * MIB,
        state: BlockState::Allocated,
        pool,
        ..Block::default()
    };
    let cached = Block {
        addr: addr + held.size,
        size: 128 * MIB,
        pool,
        ..Block::default()
    };
    let segment = Segment {
        addr,
        size: 512 * MIB,
        mapped: 512 * MIB,
        pool,
        ..Segment::default()
    };
    publisher.segment_begin(0);
    publisher.block(0, &held, Some(1));
    publisher.block(1, &cached, None);
    publisher.segment_end(0, Some((&segment, Some(0))));
    let mut stats = DeviceStats::default();
    for (figure, n) in [
        (&mut stats.large.allocation, 1),
        (&mut stats.large.active, 1),
        (&mut stats.large.requested_bytes, held.size),
        (&mut stats.large.allocated_bytes, held.size),
        (&mut stats.large.active_bytes, held.size),
        (&mut stats.large.segment, 1),
        (&mut stats.large.reserved_bytes, segment.size),
    ] {
        figure.add(n);
    }
    stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
    publisher.stats(0, &stats, Touched::ALL);
    publisher
}
