//! Hints: what is known of a process from outside that explains its memory.

use std::fmt;

/// Something known of a process that explains the GPU memory it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Where it was found.
    pub source: HintSource,
    /// What was found.
    pub kind: HintKind,
}

/// Where a hint was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintSource {
    /// The command line of the process with this pid: the process itself, or a parent of it.
    CommandLine(u32),
    /// The environment with which the process with this pid was started: the process itself, or a parent of it. What a
    /// program changes later is not in it.
    Environment(u32),
    /// The libraries that the process has mapped.
    Libraries,
    /// A record in shared memory.
    SharedMemory,
    /// The memory that the process has mapped.
    Mappings,
}

/// What a hint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintKind {
    /// A vLLM server or engine. It fills its share of the GPU with its KV cache when it starts.
    Vllm {
        /// `--gpu-memory-utilization`; `None` if the command line does not have it. The default differs between versions.
        share: Option<Share>,
        /// `--kv-cache-memory-bytes` as it was given, such as `25G`.
        kv_cache: Option<String>,
        /// Whether `--enable-sleep-mode` is set.
        sleeps: bool,
    },
    /// An SGLang server. Its weights and its KV cache together take a share of the GPU when it starts.
    Sglang {
        /// `--mem-fraction-static`; `None` if the command line does not have it.
        share: Option<Share>,
    },
    /// A TensorRT-LLM server. Its KV cache takes a share of what is free once the model is loaded.
    TensorRtLlm {
        /// `--kv_cache_free_gpu_memory_fraction`; `None` if the command line does not have it.
        share: Option<Share>,
    },
    /// llama.cpp, or ollama's runner.
    LlamaCpp {
        /// `--n-gpu-layers`: the number of layers to keep on the GPU at most.
        layers: u32,
    },
    /// JAX's plugin for CUDA is loaded.
    Jax(Preallocation),
    /// TensorFlow is loaded. It takes nearly all memory of each GPU that it uses, unless its memory is to grow.
    TensorFlow {
        /// `TF_FORCE_GPU_ALLOW_GROWTH`; `None` if it is not set or not known. The program decides then.
        grows: Option<bool>,
    },
    /// PyTorch's library for CUDA is loaded.
    PyTorch,
    /// A variable of the environment that changes how memory is used.
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value, cleaned and cut.
        value: String,
    },
    /// kvcached's record of the KV cache of this process's group.
    KvCached(KvCached),
    /// Bytes of host memory that are pinned: anonymous shared mappings of a process that uses the driver.
    PinnedHost(u64),
    /// The environment and the libraries may not be read.
    NoPermission,
}

/// Whether JAX takes memory when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preallocation {
    /// It takes this share of the GPU, unless the program itself changed that before it used JAX.
    Share(Share),
    /// This variable turns it off.
    Off(&'static str),
    /// Not known: the variables could not be read, or have values that are not understood.
    Unknown,
}

/// A share of the GPU, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u16);

impl Share {
    /// What JAX preallocates by default, according to its guide "GPU memory allocation".
    pub const JAX: Share = Share(750);

    /// Parses a number above 0, up to 1.
    pub fn parse(text: &str) -> Option<Share> {
        let share: f64 = text.trim().parse().ok()?;
        let thousandths = (share * 1000.0).round();
        (1.0..=1000.0)
            .contains(&thousandths)
            .then_some(Share(thousandths as u16))
    }

    /// Returns this share of a number of bytes.
    pub fn of(self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.0) / 1000) as u64
    }

    /// Formats it as a percentage: `75 %`.
    pub fn percent(self) -> String {
        format!("{} %", f64::from(self.0) / 10.0)
    }
}

impl fmt::Display for Share {
    /// Writes it as engines take it: `0.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

/// What kvcached records of a KV cache, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvCached {
    /// The most that the cache may take (`total_size`).
    pub limit: u64,
    /// What requests use.
    pub used: u64,
    /// What is mapped in advance.
    pub preallocated: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shares_are_numbers_above_zero_up_to_one() {
        for (text, share, percent) in [
            ("0.9", "0.9", "90 %"),
            (".5", "0.5", "50 %"),
            ("1", "1", "100 %"),
            (" 0.925 ", "0.925", "92.5 %"),
            ("9e-1", "0.9", "90 %"),
        ] {
            let parsed = Share::parse(text).unwrap();
            assert_eq!(
                (parsed.to_string().as_str(), parsed.percent().as_str()),
                (share, percent)
            );
        }
        for text in [
            "",
            "0",
            "-0.5",
            "1.1",
            "90",
            "nan",
            "inf",
            "0.9x",
            "\u{0660}.5",
            "0.0001",
        ] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        assert_eq!(Share::JAX.of(80 << 30), 60 << 30);
        assert_eq!(Share::parse("1").unwrap().of(u64::MAX), u64::MAX);
    }
}
