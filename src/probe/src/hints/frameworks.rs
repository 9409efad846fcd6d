//! What the libraries of a process and its variables say of its memory.

use super::libraries::Libraries;
use super::variables::Variables;
use crate::{Hint, HintKind, HintSource, Preallocation, Share};

/// Variables that are shown as they are, whatever uses CUDA.
const OF_CUDA: [&str; 2] = ["CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES"];
/// Those that PyTorch reads.
const OF_PYTORCH: [&str; 3] = [
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
];
/// Those that JAX or TensorFlow reads, and that are not a part of another hint.
const OF_XLA: [&str; 2] = ["TF_FORCE_UNIFIED_MEMORY", "TF_GPU_ALLOCATOR"];

/// Returns the hints; `started` is the process whose environment was read.
pub(super) fn hints(libraries: Libraries, variables: &Variables, started: u32) -> Vec<Hint> {
    let hint = |source, kind| Hint { source, kind };
    let (environment, mapped) = (HintSource::Environment(started), HintSource::Libraries);
    let mut hints = Vec::new();
    if libraries.jax {
        hints.push(match preallocation(variables) {
            off @ Preallocation::Off(_) => hint(environment, HintKind::Jax(off)),
            other => hint(mapped, HintKind::Jax(other)),
        });
    }
    if libraries.tensorflow {
        let grows = variables
            .get("TF_FORCE_GPU_ALLOW_GROWTH")
            .and_then(|value| value.parse().ok());
        let source = if grows.is_some() { environment } else { mapped };
        hints.push(hint(source, HintKind::TensorFlow { grows }));
    }
    if libraries.torch {
        hints.push(hint(mapped, HintKind::PyTorch));
    }
    let mut say = |names: &[&str]| {
        hints.extend(variables.of(names).map(|(name, value)| {
            let value = value.to_owned();
            hint(environment, HintKind::Variable { name, value })
        }));
    };
    if libraries.torch {
        say(&OF_PYTORCH);
    }
    if libraries.jax || libraries.tensorflow {
        say(&OF_XLA);
    }
    say(&OF_CUDA);
    hints
}

/// Returns whether JAX takes memory when it starts, as far as its variables tell. Its guide "GPU memory allocation" lists them.
fn preallocation(variables: &Variables) -> Preallocation {
    let (switch, allocator) = ("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR");
    match variables.get(switch).map(str::to_ascii_lowercase).as_deref() {
        Some("0" | "false") => return Preallocation::Off(switch),
        None | Some("1" | "true") => {}
        Some(_) => return Preallocation::Unknown,
    }
    match variables.get(allocator).map(str::to_ascii_lowercase).as_deref() {
        Some("platform") => return Preallocation::Off(allocator),
        None | Some("default" | "bfc") => {}
        Some(_) => return Preallocation::Unknown,
    }
    let named = ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"];
    match named.iter().find_map(|name| variables.get(name)) {
        Some(share) => Share::parse(share).map_or(Preallocation::Unknown, Preallocation::Share),
        None if variables.complete => Preallocation::Share(Share::JAX),
        None => Preallocation::Unknown,
    }
}
