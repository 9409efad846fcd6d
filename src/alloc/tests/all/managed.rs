//! Managed buffers on the simulated device: contents, and what the channel says of them.

use std::os::unix::fs::PermissionsExt;

use gpumem_alloc::device::{self, Location};
use gpumem_alloc::{Allocator, Config, Options, Publish, Stream};
use gpumem_channel::{MANAGED_BLOCK, Managed, ManagedBlock, ManagedCounters, Preferred, Reader, Snapshot};

fn channel_dir() -> tempfile::TempDir {
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .permissions(private)
        .tempdir_in("/dev/shm")
        .unwrap()
}

fn allocator(options: Options) -> (Allocator, Reader) {
    let config = Config {
        publish: Publish::On(options),
        ..Config::default()
    };
    let alloc = Allocator::new(device::sim(Default::default()), config).unwrap();
    let reader = Reader::open(&alloc.channel().unwrap()).unwrap();
    (alloc, reader)
}

fn managed(snapshot: &Snapshot) -> &Managed {
    snapshot.managed.as_ref().unwrap()
}

#[test]
fn managed_buffers_are_published_with_tag_and_advice() {
    let dir = channel_dir();
    let (alloc, mut reader) = allocator(Options {
        dir: Some(dir.path().into()),
        ..Options::default()
    });
    let mut table = {
        let _scope = gpumem_alloc::scope("table");
        alloc.alloc_managed::<f32>(1000).unwrap()
    };
    let plain = alloc.alloc_managed::<u8>(3 << 20).unwrap();
    table.host().unwrap()[999] = 1.5;
    table.set_preferred(Some(Location::Cpu)).unwrap();
    table.set_read_mostly(true).unwrap();
    table.prefetch(Location::Device, Stream::DEFAULT).unwrap();

    let snapshot = reader.refresh().unwrap();
    let ranges = &managed(&snapshot).ranges;
    assert_eq!(ranges.len(), 2);
    let its = ranges.iter().find(|range| range.addr == table.device_ptr()).unwrap();
    assert_eq!(
        (snapshot.string(its.tag), its.size, its.preferred, its.read_mostly),
        ("table", 4000, Preferred::Cpu, true)
    );
    let other = ranges.iter().find(|range| range.addr == plain.device_ptr()).unwrap();
    assert_eq!(
        (other.size, other.preferred, other.read_mostly),
        (3 << 20, Preferred::Nowhere, false)
    );
    assert_eq!(table.host().unwrap()[999], 1.5);
    assert_eq!(
        alloc.stats().all().requested_bytes.current,
        0,
        "it is not the allocator's memory"
    );

    drop(table);
    table = alloc.alloc_managed::<f32>(5).unwrap();
    let snapshot = reader.refresh().unwrap();
    let sizes: Vec<u64> = managed(&snapshot).ranges.iter().map(|range| range.size).collect();
    assert!(
        sizes.contains(&20) && sizes.contains(&(3 << 20)) && sizes.len() == 2,
        "{sizes:?}"
    );
    drop((table, plain));
    assert!(managed(&reader.refresh().unwrap()).ranges.is_empty());
}

#[test]
fn ranges_beyond_the_table_are_counted() {
    let dir = channel_dir();
    let (alloc, mut reader) = allocator(Options {
        dir: Some(dir.path().into()),
        managed: 1,
        ..Options::default()
    });
    let first = alloc.alloc_managed::<u8>(100).unwrap();
    let second = alloc.alloc_managed::<u8>(200).unwrap();
    let left_out = |reader: &mut Reader| {
        let snapshot = reader.refresh().unwrap();
        let managed = managed(&snapshot);
        (
            managed.ranges.len(),
            managed.figures.ranges_left_out,
            managed.figures.bytes_left_out,
        )
    };
    assert_eq!(left_out(&mut reader), (1, 1, 200));
    drop(second);
    assert_eq!(left_out(&mut reader), (1, 0, 0));
    drop(first);
    assert_eq!(left_out(&mut reader), (0, 0, 0));
}

#[test]
fn pages_of_a_model_are_published_while_their_buffer_lives() {
    let dir = channel_dir();
    let (alloc, mut reader) = allocator(Options {
        dir: Some(dir.path().into()),
        managed_blocks: 2,
        ..Options::default()
    });
    let counters = ManagedCounters {
        cpu_faults: 6,
        ..ManagedCounters::default()
    };
    for round in 0..3 {
        let buffer = alloc.alloc_managed::<u8>(3 * MANAGED_BLOCK as usize).unwrap();
        let block = |n: u64, on_gpu| ManagedBlock {
            addr: buffer.device_ptr() + n * MANAGED_BLOCK,
            on_gpu,
            ..ManagedBlock::default()
        };
        buffer.publish_pages(&[block(0, 1), block(1, 2), block(2, 3)], &counters);
        buffer.publish_pages(&[block(1, 7)], &counters);
        let snapshot = reader.refresh().unwrap();
        assert_eq!(
            managed(&snapshot).blocks,
            [block(0, 1), block(1, 7)],
            "round {round}: two have a slot"
        );
        assert_eq!(managed(&snapshot).figures.counters, Some(counters));
        let outside = ManagedBlock {
            addr: buffer.device_ptr() + 3 * MANAGED_BLOCK,
            ..ManagedBlock::default()
        };
        buffer.publish_pages(&[outside], &ManagedCounters::default());
        assert_eq!(managed(&reader.refresh().unwrap()).figures.counters, Some(counters));
        drop(buffer);
        assert!(managed(&reader.refresh().unwrap()).blocks.is_empty());
    }
}
