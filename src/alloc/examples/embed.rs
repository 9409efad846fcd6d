//! A program that embeds the allocator: `cargo run -p gpumem-alloc --example embed`, with `gpumem-tui` in another terminal.

use gpumem_alloc::{Allocator, Config, Error, Stream, device};

fn main() -> Result<(), Error> {
    let device = device::cuda(0).unwrap_or_else(|_| device::sim(Default::default()));
    let alloc = Allocator::new(device, Config::default())?;
    let _scope = gpumem_alloc::scope("weights");
    let mut weights = alloc.alloc::<f32>(64 << 20, Stream::DEFAULT)?;
    weights.fill_words(1.0f32.to_bits())?;
    let mut last = vec![0.0f32; weights.len()];
    weights.read(&mut last)?;
    println!("{} x {} on {}", last.len(), last[0], alloc.device().info().name);
    println!(
        "reserved {} bytes, published at {:?}",
        alloc.stats().all().reserved_bytes.current,
        alloc.channel()
    );
    std::thread::sleep(std::time::Duration::from_secs(
        std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0),
    ));
    Ok(())
}
