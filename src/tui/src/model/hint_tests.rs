#![allow(clippy::unwrap_used)]

use gpumem_probe::Share;

use super::*;

fn text(source: HintSource, kind: HintKind) -> String {
    hint_text(&Hint { source, kind }, 7)
}

#[test]
fn hints_are_told_in_words() {
    let share = Share::parse("0.9");
    let vllm = |share, kv_cache: Option<&str>, sleeps| HintKind::Vllm {
        share,
        kv_cache: kv_cache.map(str::to_owned),
        sleeps,
    };
    for (kind, expected) in [
        (
            vllm(share, None, false),
            "vLLM fills 0.9 of the GPU with weights and KV cache when it starts (--gpu-memory-utilization)",
        ),
        (
            vllm(share, Some("25G"), true),
            "vLLM preallocates a KV cache of 25G (--kv-cache-memory-bytes). It can give memory back while it sleeps \
             (--enable-sleep-mode)",
        ),
        (
            HintKind::Sglang { share: None },
            "SGLang fills its default share of the GPU with weights and KV cache when it starts (--mem-fraction-static)",
        ),
        (
            HintKind::TensorRtLlm { share },
            "TensorRT-LLM fills 0.9 of what the model leaves free with its KV cache (--kv_cache_free_gpu_memory_fraction)",
        ),
        (
            HintKind::Jax(Preallocation::Share(Share::JAX)),
            "JAX preallocates 75 % of the GPU when it starts (XLA_PYTHON_CLIENT_PREALLOCATE=false turns that off). The program \
             itself may have done so",
        ),
        (
            HintKind::Jax(Preallocation::Off("XLA_PYTHON_CLIENT_ALLOCATOR")),
            "JAX does not preallocate: XLA_PYTHON_CLIENT_ALLOCATOR turns that off",
        ),
        (
            HintKind::LlamaCpp { layers: 33 },
            "llama.cpp keeps up to 33 layers on the GPU (--n-gpu-layers)",
        ),
        (
            HintKind::KvCached(KvCached {
                limit: 40 << 30,
                used: 12 << 30,
                preallocated: 1 << 30,
            }),
            "KV cache (kvcached): 12.0 GiB used, 1.0 GiB preallocated, limit 40.0 GiB",
        ),
        (
            HintKind::PinnedHost(1 << 30),
            "It has 1.0 GiB of host memory pinned (cudaMallocHost)",
        ),
    ] {
        assert_eq!(text(HintSource::Libraries, kind), expected);
    }
    // Without the option, no number is named: the default differs between versions.
    let default = text(HintSource::CommandLine(7), vllm(None, None, false));
    assert!(!default.contains(|c: char| c.is_ascii_digit()), "{default}");
}

#[test]
fn parent_is_named_where_it_has_the_option() {
    let variable = || HintKind::Variable {
        name: "CUDA_VISIBLE_DEVICES",
        value: "3".into(),
    };
    assert_eq!(text(HintSource::Environment(7), variable()), "CUDA_VISIBLE_DEVICES=3");
    assert_eq!(
        text(HintSource::Environment(6), variable()),
        "CUDA_VISIBLE_DEVICES=3 (from its parent 6)"
    );
}

/// A finding that says what is preallocated is made of these only.
#[test]
fn only_preallocation_is_a_claim() {
    for kind in [
        HintKind::PyTorch,
        HintKind::NoPermission,
        HintKind::LlamaCpp { layers: 1 },
        HintKind::Jax(Preallocation::Off("X")),
        HintKind::Jax(Preallocation::Unknown),
        HintKind::TensorFlow { grows: Some(true) },
    ] {
        assert_eq!(claim(&kind), None, "{kind:?}");
    }
    assert!(
        claim(&HintKind::TensorFlow { grows: None })
            .unwrap()
            .starts_with("TensorFlow takes")
    );
}
