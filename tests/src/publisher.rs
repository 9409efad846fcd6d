//! The test's own process as a publisher: one segment, a quarter of it cached.

use gpumem_channel::{
    Block, BlockState, Device, DeviceStats, Event, EventKind, Options, PoolId, Publisher, Segment, Touched,
};

use crate::World;

const MIB: u64 = 1 << 20;

/// Returns the UUID of the fake NVML's GPU with this index.
pub fn uuid_of(gpu: u8) -> [u8; 16] {
    [0x6f, 0x5a, 0xe4, 0xc5, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, gpu]
}

/// Publishes 512 MiB on the GPU with this UUID, 128 MiB of it cached. The publisher calls it its device 0.
pub fn publish(world: &World, uuid: [u8; 16]) -> Publisher {
    publish_with(world, uuid, Options::default(), "H100", "")
}

/// The same with this name for the program, the job, the device, the pool and the tag.
pub fn publish_named(world: &World, uuid: [u8; 16], name: &str) -> Publisher {
    let options = Options {
        program: Some(name.to_owned()),
        job: name.to_owned(),
        ..Options::default()
    };
    publish_with(world, uuid, options, name, name)
}

/// `name` is the name of the pool and the tag of the memory in use. An empty name means none.
fn publish_with(world: &World, uuid: [u8; 16], options: Options, device: &str, name: &str) -> Publisher {
    let options = Options {
        dir: Some(world.channels().to_owned()),
        blocks: 64,
        segments: 8,
        events: 64,
        ..options
    };
    let mut publisher = Publisher::create(&options).unwrap();
    publisher.set_device(
        0,
        &Device {
            uuid,
            total: 80 << 30,
            granularity: 2 * MIB,
            name: device.into(),
            ..Device::default()
        },
    );
    let (addr, pool) = (1 << 32, PoolId::LARGE);
    let name = publisher.intern(name);
    let held = Block {
        addr,
        size: 384 * MIB,
        requested: 384 * MIB,
        state: BlockState::Allocated,
        pool,
        tag: name,
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
        pool_name: name,
        ..Segment::default()
    };
    publisher.segment_begin(0);
    publisher.block(0, &held, Some(1));
    publisher.block(1, &cached, None);
    publisher.segment_end(0, Some((&segment, Some(0))));
    publisher.stats(0, &stats(held.size, segment.size), Touched::ALL);
    publisher
}

fn stats(held: u64, reserved: u64) -> DeviceStats {
    let mut stats = DeviceStats::default();
    for (figure, n) in [
        (&mut stats.large.allocation, 1),
        (&mut stats.large.active, 1),
        (&mut stats.large.requested_bytes, held),
        (&mut stats.large.allocated_bytes, held),
        (&mut stats.large.active_bytes, held),
        (&mut stats.large.segment, 1),
        (&mut stats.large.reserved_bytes, reserved),
    ] {
        figure.add(n);
    }
    stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
    stats
}

/// Has a publisher say that `ooms` of its requests failed, the last one now and for `requested` bytes, when the device had 1 MiB free.
pub fn fail(publisher: &mut Publisher, ooms: u64, requested: u64) {
    let failed = Event {
        kind: EventKind::OutOfMemory,
        time: publisher.now(),
        requested,
        addr: MIB,
        ..Event::default()
    };
    publisher.event(&failed);
    let mut stats = stats(384 * MIB, 512 * MIB);
    stats.num_ooms = ooms;
    publisher.stats(0, &stats, Touched::ALL);
}
