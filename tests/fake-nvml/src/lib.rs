//! A libnvidia-ml.so for tests: several GPUs, lost GPUs, failing initialisation.
//!
//! # Using it
//! Have this crate as a dev-dependency: cargo then builds the shared object together with the library part, so that
//! `cargo test -p <crate>` and `cargo test --workspace` have it on a clean clone, under any target directory, profile
//! or `--target`.
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! # let folder = std::path::Path::new("a temporary folder");
//! let fake = gpumem_fake_nvml::FakeNvml::install(folder, "gpus=2")?;
//! // Load `fake.path()`, or run a program with GPUMEM_NVML set to it. Then change the world under it:
//! fake.play("gpus=2\ngpu1.state=lost")?;
//! # Ok(())
//! # }
//! ```
//! Every installed copy plays its own scenario, also when several are loaded in one process.
//!
//! # What it plays
//! A scenario: lines of `key=value` (`;` also ends a line), empty lines and lines that begin with `#` aside, or one of
//! the names `h100`, `h100x2`, `gb10`, `mig`. It comes from the file `<library>.scenario` beside the library, where
//! [`FakeNvml::play`] puts it, and is read again whenever it changed. Without that file the library plays one idle H100.
//!
//! | key | value | default |
//! |---|---|---|
//! | `load_delay_ms` | how long the library sleeps while it is being loaded | 0 |
//! | `load_exit` | the exit code with which it then ends the loading program | the program goes on |
//! | `says` | what every call prints on standard output, as CUDA's stub does | nothing |
//! | `init` | `ok`, `driver_not_loaded`, `version_mismatch`, `no_permission`, `unknown`, or a number of `nvmlReturn_t` | `ok` |
//! | `init_delay_ms` | how long initialisation sleeps | 0 |
//! | `calls` | the same values, for every call after initialisation (the driver went away) | `ok` |
//! | `driver`, `cuda` | versions: `580.159.04`, `13000` | those |
//! | `gpus` | how many | 1 |
//! | `gpuN.name`, `.uuid`, `.pci` | text; `\xNN` is a byte (`\x3b` a semicolon) | H100 80GB HBM3, made from N |
//! | `gpuN.total`, `.used`, `.reserved` | bytes, or with `K`, `M`, `G` (binary) | 81559M, 0, 480M |
//! | `gpuN.free` | the free bytes that NVML reports | what is left of the total |
//! | `gpuN.memory` | `ok`, `not_supported`, `no_permission`, a number | `ok` |
//! | `gpuN.memory_delay_ms` | how long one memory query sleeps | 0 |
//! | `gpuN.sensors` | as `memory`, for utilisation, temperature, power and PCIe | `ok` |
//! | `gpuN.utilization`, `.memory_utilization`, `.temperature` | percent, percent, degrees | 0, 0, 30 |
//! | `gpuN.power`, `.power_limit` | milliwatts | 70000, 700000 |
//! | `gpuN.pcie_rx`, `.pcie_tx` | KB/s (1000 bytes) as NVML gives them | 0 |
//! | `gpuN.pcie_delay_ms` | how long one throughput query sleeps | 20, like the real one |
//! | `gpuN.process` | `PID:BYTES:KIND[:INSTANCE]`, once per process; PID may be `self`; BYTES may be `-` (not available); KIND is `compute`, `graphics`, `both` (of these), `mps` or `compute+mps` | none |
//! | `gpuN.processes` | as `memory`, for the process lists | `ok` |
//! | `gpuN.whole_list` | the same for the lists of the GPU itself only, not of its MIG devices | `ok` |
//! | `gpuN.state` | `ok`, `lost`, `reset_required`: what every call on it returns | `ok` |
//! | `gpuN.answers` | the same values, for every call but the one that returns its handle | `ok` |
//! | `gpuN.mig` | number of MIG devices, which share the total evenly; 0 is MIG off | 0 |
//! | `process_bytes` | 24, or 32 for the process records of the first R535 drivers | 24 |
//!
//! A scenario that does not parse makes every call fail with `NVML_ERROR_UNKNOWN`. The library prints the wrong line on standard error.
//!
//! [`FakeNvml::remove`] makes an old driver, which lacks functions.
#![allow(unsafe_code, reason = "it plays a library with a C interface")]

#[allow(non_snake_case)] // NVML names them
mod exports;
mod library;
mod loaded;
mod parse;
mod source;
mod world;

pub use library::FakeNvml;
