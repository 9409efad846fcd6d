//! The attributes of a card.

use serde::{Deserialize, Serialize};

/// A card, as its driver describes it (`cuDeviceGetAttribute`). Attributes that the driver does not know are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Card {
    /// Marketing name.
    pub name: String,
    /// UUID as NVML writes it: `GPU-` and 32 hexadecimal digits in five groups.
    pub uuid: String,
    /// Compute capability: major and minor.
    pub compute_capability: (u32, u32),
    /// Version of the kernel's driver, e.g. `580.159.04`; `cuda-13.0` where only CUDA's version is known.
    pub driver: String,
    /// Streaming multiprocessors (a count).
    pub sms: u32,
    /// Highest clock of an SM in MHz.
    pub sm_mhz_max: Option<u32>,
    /// Highest clock of the memory in MHz.
    pub memory_mhz_max: Option<u32>,
    /// Width of the memory's bus in bits.
    pub memory_bus_bits: Option<u32>,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// L2 cache in bytes.
    pub l2_bytes: u64,
    /// Shared memory of an SM in bytes, at most.
    pub shared_bytes_per_sm: u64,
    /// Registers of an SM in bytes.
    pub register_bytes_per_sm: u64,
    /// The part of L2 that can be set aside for persisting accesses, in bytes.
    pub l2_persisting_max_bytes: Option<u64>,
    /// The part of L2 that is set aside in this process's context, in bytes (`cuCtxGetLimit`).
    pub l2_persisting_bytes: Option<u64>,
    /// Whether error correction is on.
    pub ecc: Option<bool>,
    /// GPUs whose memory this one can reach (`cuDeviceCanAccessPeer`), by number.
    pub peers: Vec<Peer>,
}

/// A peer GPU, and the link to it as `cuDeviceGetP2PAttribute` describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    /// Its number, as CUDA counts.
    pub device: u32,
    /// Marketing name.
    pub name: String,
    /// UUID as NVML writes it.
    pub uuid: String,
    /// `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`: 0 for the fastest kind of link, more for slower ones.
    pub performance_rank: Option<u32>,
    /// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`. NVLink supports native atomics, and PCIe does not.
    pub native_atomics: Option<bool>,
}
