//! The committed PTX of `kernels/`, embedded.

/// A kernel: its PTX and the name of its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// PTX 8.0 for compute_70.
    pub(crate) ptx: &'static str,
    /// Name of the entry.
    pub(crate) entry: &'static str,
}

/// Writes a pattern.
pub(crate) const FILL: Kernel = Kernel {
    ptx: include_str!("../../kernels/fill.ptx"),
    entry: "gpumem_fill",
};
/// Compares with a pattern.
pub(crate) const CHECK: Kernel = Kernel {
    ptx: include_str!("../../kernels/check.ptx"),
    entry: "gpumem_check",
};
/// Computes on floats as a layer would.
pub(crate) const WORK: Kernel = Kernel {
    ptx: include_str!("../../kernels/work.ptx"),
    entry: "gpumem_work",
};
/// Lays a ring of pointers.
pub(crate) const RING: Kernel = Kernel {
    ptx: include_str!("../../kernels/ring.ptx"),
    entry: "gpumem_ring",
};
/// Follows a ring in global memory.
pub(crate) const CHASE: Kernel = Kernel {
    ptx: include_str!("../../kernels/chase.ptx"),
    entry: "gpumem_chase",
};
/// Follows a ring in shared memory.
pub(crate) const CHASE_SHARED: Kernel = Kernel {
    ptx: include_str!("../../kernels/chase_shared.ptx"),
    entry: "gpumem_chase_shared",
};
/// Computes multiply-adds, each from the one before.
pub(crate) const CHAIN: Kernel = Kernel {
    ptx: include_str!("../../kernels/chain.ptx"),
    entry: "gpumem_chain",
};
/// Reads device memory or L2.
pub(crate) const READ: Kernel = Kernel {
    ptx: include_str!("../../kernels/read.ptx"),
    entry: "gpumem_read",
};
/// Writes device memory.
pub(crate) const WRITE: Kernel = Kernel {
    ptx: include_str!("../../kernels/write.ptx"),
    entry: "gpumem_write",
};
/// Copies device memory.
pub(crate) const COPY: Kernel = Kernel {
    ptx: include_str!("../../kernels/copy.ptx"),
    entry: "gpumem_copy",
};
/// Reads L1.
pub(crate) const READ_L1: Kernel = Kernel {
    ptx: include_str!("../../kernels/read_l1.ptx"),
    entry: "gpumem_read_l1",
};
/// Reads shared memory.
pub(crate) const READ_SHARED: Kernel = Kernel {
    ptx: include_str!("../../kernels/read_shared.ptx"),
    entry: "gpumem_read_shared",
};
/// Computes independent multiply-adds.
pub(crate) const MULTIPLY_ADD: Kernel = Kernel {
    ptx: include_str!("../../kernels/multiply_add.ptx"),
    entry: "gpumem_multiply_add",
};
/// Writes to each word its index.
pub(crate) const NUMBERS: Kernel = Kernel {
    ptx: include_str!("../../kernels/numbers.ptx"),
    entry: "gpumem_numbers",
};
/// Reads words with a stride from thread to thread.
pub(crate) const STRIDE: Kernel = Kernel {
    ptx: include_str!("../../kernels/stride.ptx"),
    entry: "gpumem_stride",
};
/// Takes a known time.
pub(crate) const SPIN: Kernel = Kernel {
    ptx: include_str!("../../kernels/spin.ptx"),
    entry: "gpumem_spin",
};
/// Computes on words for a while.
pub(crate) const COMPUTE: Kernel = Kernel {
    ptx: include_str!("../../kernels/compute.ptx"),
    entry: "gpumem_compute",
};
/// Adds to fields of records.
pub(crate) const FIELDS: Kernel = Kernel {
    ptx: include_str!("../../kernels/fields.ptx"),
    entry: "gpumem_fields",
};
/// Touches managed memory page by page.
pub(crate) const TOUCH: Kernel = Kernel {
    ptx: include_str!("../../kernels/touch.ptx"),
    entry: "gpumem_touch",
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    const ALL: [Kernel; 19] = [
        FILL,
        CHECK,
        WORK,
        RING,
        CHASE,
        CHASE_SHARED,
        CHAIN,
        READ,
        WRITE,
        COPY,
        READ_L1,
        READ_SHARED,
        MULTIPLY_ADD,
        NUMBERS,
        STRIDE,
        SPIN,
        COMPUTE,
        FIELDS,
        TOUCH,
    ];

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels")
    }

    fn fnv1a(parts: &[Vec<u8>]) -> u64 {
        let bytes = parts.iter().flatten();
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, b| {
            (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
        })
    }

    fn files(extension: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().path());
        let mut found: Vec<_> = entries
            .filter(|p| p.extension().is_some_and(|e| e == extension))
            .collect();
        found.sort();
        found
    }

    /// Older drivers refuse newer PTX, and newer targets refuse older cards.
    #[test]
    fn ptx_runs_on_volta_and_r525() {
        for kernel in ALL {
            assert!(
                kernel.ptx.contains(&format!(".visible .entry {}(", kernel.entry)),
                "{}",
                kernel.entry
            );
            assert!(kernel.ptx.lines().any(|l| l == ".version 8.0"), "{}", kernel.entry);
            assert!(kernel.ptx.lines().any(|l| l == ".target sm_70"), "{}", kernel.entry);
        }
    }

    /// A source or PTX that was changed without `kernels/build.py` does not match the lock that it writes.
    #[test]
    fn ptx_belongs_to_its_source() {
        let headers: Vec<_> = files("cuh").iter().map(|p| std::fs::read(p).unwrap()).collect();
        let mut expected = BTreeMap::new();
        for source in files("cu") {
            let mut parts = vec![std::fs::read(&source).unwrap()];
            parts.extend(headers.iter().cloned());
            let ptx = std::fs::read(source.with_extension("ptx")).unwrap();
            let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
            expected.insert(name, format!("{:016x} {:016x}", fnv1a(&parts), fnv1a(&[ptx])));
        }
        let lock = std::fs::read_to_string(folder().join("kernels.lock")).unwrap();
        let locked: BTreeMap<_, _> = lock
            .lines()
            .map(|l| l.split_once(' ').unwrap())
            .map(|(n, h)| (n.to_owned(), h.to_owned()))
            .collect();
        assert_eq!(locked, expected, "run kernels/build.py after a change of a kernel");
        assert_eq!(files("ptx").len(), expected.len(), "every PTX file has a source");
        assert_eq!(
            expected.len(),
            ALL.len(),
            "every kernel is embedded above and checked here"
        );
    }
}
