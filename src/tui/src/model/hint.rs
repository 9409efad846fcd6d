//! What explains the memory of a process, in words.

use gpumem_probe::{Hint, HintKind, HintSource, KvCached, Preallocation};
use gpumem_text::units;

/// Describes a hint to the process with this pid, without a full stop.
pub(crate) fn hint_text(hint: &Hint, pid: u32) -> String {
    let text = kind_text(&hint.kind);
    match hint.source {
        HintSource::CommandLine(from) | HintSource::Environment(from) if from != pid => {
            format!("{text} (from its parent {from})")
        }
        _ => text,
    }
}

/// Returns the word for where a hint was found, as in the JSON document.
pub(crate) fn hint_source(hint: &Hint) -> &'static str {
    match hint.source {
        HintSource::CommandLine(_) => "command-line",
        HintSource::Environment(_) => "environment",
        HintSource::Libraries => "libraries",
        HintSource::SharedMemory => "shared-memory",
        HintSource::Mappings => "mappings",
    }
}

fn kind_text(kind: &HintKind) -> String {
    let claim = claim(kind);
    match kind {
        // The program may have set a variable itself, which cannot be seen.
        HintKind::Jax(Preallocation::Share(_)) => claim.unwrap_or_default() + ". The program itself may have done so",
        HintKind::Jax(Preallocation::Off(variable)) => format!("JAX does not preallocate: {variable} turns that off"),
        HintKind::Jax(Preallocation::Unknown) => {
            "JAX is loaded, and may preallocate memory: its variables do not tell".to_owned()
        }
        HintKind::Vllm { sleeps: true, .. } => {
            claim.unwrap_or_default() + ". It can give memory back while it sleeps (--enable-sleep-mode)"
        }
        HintKind::TensorFlow { grows: Some(true) } => {
            "TensorFlow takes memory as it needs it (TF_FORCE_GPU_ALLOW_GROWTH), and keeps it".to_owned()
        }
        // It may use the CPU only.
        HintKind::TensorFlow { .. } => format!("If it uses the GPU: {}", claim.unwrap_or_default()),
        HintKind::PyTorch => {
            "PyTorch is loaded. Its allocator keeps freed memory: gpumem-tui attach (key a) shows how much".to_owned()
        }
        HintKind::LlamaCpp { layers } => {
            let layers = units::plural((*layers).into(), "layer");
            format!("llama.cpp keeps up to {layers} on the GPU (--n-gpu-layers)")
        }
        HintKind::Variable { name, value } => format!("{name}={value}"),
        HintKind::KvCached(record) => kv_cache_text(record),
        HintKind::PinnedHost(bytes) => {
            format!("It has {} of host memory pinned (cudaMallocHost)", units::bytes(*bytes))
        }
        HintKind::NoPermission => "Its environment and libraries: no permission".to_owned(),
        HintKind::Vllm { .. } | HintKind::Sglang { .. } | HintKind::TensorRtLlm { .. } => claim.unwrap_or_default(),
    }
}

/// Says what a process takes in advance, whatever it uses of it later. `None` if the hint does not say that it does.
pub(crate) fn claim(kind: &HintKind) -> Option<String> {
    let share_or =
        |share: &Option<_>, other: &str| share.map_or_else(|| other.to_owned(), |s: gpumem_probe::Share| s.to_string());
    Some(match kind {
        HintKind::Vllm {
            kv_cache: Some(size), ..
        } => format!("vLLM preallocates a KV cache of {size} (--kv-cache-memory-bytes)"),
        HintKind::Vllm { share: Some(share), .. } => {
            format!("vLLM fills {share} of the GPU with weights and KV cache when it starts (--gpu-memory-utilization)")
        }
        HintKind::Vllm { share: None, .. } => {
            "vLLM fills its default share of the GPU with weights and KV cache when it starts (its command line has no \
             --gpu-memory-utilization)"
                .to_owned()
        }
        HintKind::Sglang { share } => format!(
            "SGLang fills {} of the GPU with weights and KV cache when it starts (--mem-fraction-static)",
            share_or(share, "its default share")
        ),
        HintKind::TensorRtLlm { share } => format!(
            "TensorRT-LLM fills {} of what the model leaves free with its KV cache (--kv_cache_free_gpu_memory_fraction)",
            share_or(share, "its default share")
        ),
        HintKind::Jax(Preallocation::Share(share)) => format!(
            "JAX preallocates {} of the GPU when it starts (XLA_PYTHON_CLIENT_PREALLOCATE=false turns that off)",
            share.percent()
        ),
        HintKind::TensorFlow {
            grows: None | Some(false),
        } => {
            "TensorFlow takes nearly all memory of a GPU when it starts (TF_FORCE_GPU_ALLOW_GROWTH=true turns that off)"
                .to_owned()
        }
        _ => return None,
    })
}

/// Describes a KV cache that kvcached manages.
pub(crate) fn kv_cache_text(record: &KvCached) -> String {
    let [used, preallocated, limit] = [record.used, record.preallocated, record.limit].map(units::bytes);
    format!("KV cache (kvcached): {used} used, {preallocated} preallocated, limit {limit}")
}

#[cfg(test)]
#[path = "hint_tests.rs"]
mod tests;
