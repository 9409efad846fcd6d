//! Managed memory on a CUDA device.

use gpumem_alloc::device::{self, Call, Location};
use gpumem_alloc::{Allocator, Config, Error, Publish, Stream};

#[test]
fn inner_managed_memory_is_advised_and_freed() {
    if std::env::var_os(super::INNER).is_none() {
        return;
    }
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(device::cuda(0).unwrap(), config).unwrap();
    let mut buffer = alloc.alloc_managed::<u32>(1 << 20).unwrap();
    assert!(buffer.device_ptr().is_multiple_of(256));
    let words = buffer.host().unwrap();
    assert!(words.iter().all(|word| *word == 0));
    words[(1 << 20) - 1] = 7;
    for place in [Location::Cpu, Location::Device] {
        buffer.prefetch(place, Stream::DEFAULT).unwrap();
        buffer.prefetch_part(5..1 << 20, place, Stream::DEFAULT).unwrap();
        buffer.set_preferred(Some(place)).unwrap();
        buffer.set_accessed_by(place, true).unwrap();
        buffer.set_accessed_by(place, false).unwrap();
    }
    buffer.set_preferred(None).unwrap();
    buffer.set_read_mostly(true).unwrap();
    assert_eq!(buffer.host().unwrap()[(1 << 20) - 1], 7);
    buffer.discard(Stream::DEFAULT).unwrap();
    let outside = buffer.prefetch_part(5..(1 << 20) + 1, Location::Cpu, Stream::DEFAULT);
    assert!(matches!(outside, Err(Error::OutOfBounds { .. })));
    let frees = alloc.device().calls(Call::Free);
    drop(buffer);
    assert_eq!(alloc.device().calls(Call::Free), frees + 1);
    assert!(alloc.alloc_managed::<u8>(0).unwrap().host().unwrap().is_empty());
}
