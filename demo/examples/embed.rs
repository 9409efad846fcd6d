//! A program that embeds the allocator and appears in the dashboard: `cargo run -p gpumem-demo --example embed`.

use gpumem_alloc::{Allocator, Config, Stream, device};

fn main() -> Result<(), gpumem_alloc::Error> {
    let device = device::cuda(0).unwrap_or_else(|why| {
        println!("SIMULATED, as there is no GPU to use: {why}");
        device::sim(device::SimConfig::default())
    });
    let allocator = Allocator::new(device, Config::default())?;
    allocator.mark("start");
    let _scope = allocator.scope("weights");
    let mut weights = allocator.alloc::<f32>(64 << 20, Stream::DEFAULT)?;
    weights.fill_words(1.0f32.to_bits())?;
    println!(
        "{:?} publishes 256 MiB at {:#x}; press Enter to free it",
        allocator.channel(),
        weights.device_ptr()
    );
    let _ = std::io::stdin().read_line(&mut String::new());
    Ok(())
}
