//! A tensor of candle's goes through memory of ours, on a stream of the cudarc that both are built with.

use std::error::Error;

use candle_core::{Device, Tensor};
use cudarc::driver::CudaContext;
use gpumem_alloc::{Allocator, Config, Stream, device};

fn main() -> Result<(), Box<dyn Error>> {
    let values = Tensor::arange(0f32, 1024., &Device::Cpu)?.to_vec1::<f32>()?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let allocator = Allocator::new(device::cuda(0)?, Config::default())?;
    let mut buffer = allocator.alloc::<f32>(values.len(), Stream::from(&stream))?;
    buffer.write(&values)?;
    let mut back = vec![0.; values.len()];
    buffer.read(&mut back)?;
    println!("{}", Tensor::new(back, &Device::Cpu)?);
    Ok(())
}
