//! Libraries that a process has mapped, from `/proc/PID/maps`.

use std::io;

use crate::Root;

/// Bytes read of the list; a large PyTorch program has some 500 KiB.
pub(super) const LIMIT: u64 = 4 << 20;

/// Which libraries of interest are mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Libraries {
    /// PyTorch's for CUDA.
    pub(super) torch: bool,
    /// JAX's plugin for CUDA. `jaxlib` alone may use the CPU only.
    pub(super) jax: bool,
    /// TensorFlow, which has one library for CPU and GPU.
    pub(super) tensorflow: bool,
    /// kvcached's module.
    pub(super) kvcached: bool,
    /// The driver's devices.
    pub(super) driver: bool,
}

impl Libraries {
    /// Reads the list of a process.
    ///
    /// # Errors
    /// `PermissionDenied` for a process of another user, unless the reader is root.
    pub(super) fn read(root: &Root, pid: u32) -> io::Result<Self> {
        Ok(Self::parse(&root.read(format!("proc/{pid}/maps"), LIMIT)?))
    }

    /// Looks for the libraries. Each line ends in the path of the file, if there is one.
    pub(super) fn parse(maps: &[u8]) -> Self {
        let mut found = Libraries::default();
        for line in maps.split(|&b| b == b'\n') {
            let Some(start) = line.iter().position(|&b| b == b'/') else {
                continue;
            };
            let path = String::from_utf8_lossy(&line[start..]);
            let name = path.rsplit('/').next().unwrap_or_default();
            found.torch |= name.starts_with("libtorch_cuda") || name.starts_with("libc10_cuda.so");
            // Before the plugins, jaxlib had its kernels for CUDA in a folder of its own.
            found.jax |= name.starts_with("xla_cuda_plugin") || path.contains("/jaxlib/cuda/");
            found.tensorflow |=
                name.starts_with("libtensorflow_cc.so") || name.starts_with("_pywrap_tensorflow_internal");
            found.driver |= path == "/dev/nvidiactl";
            found.kvcached |= path.contains("/kvcached/vmm_ops");
        }
        found
    }
}
