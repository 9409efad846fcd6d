//! Serving engines, by their command lines. Most of them take much of a GPU when they start, whatever they use of it later.

use crate::arguments::{Arguments, Options};
use crate::{HintKind, Share};

/// Finds out which engine a command line starts and how much memory it is to take. `None` if it starts none, or if an option
/// that matters may be missing or cannot be understood.
pub(super) fn engine(arguments: &Arguments) -> Option<HintKind> {
    let (program, options) = arguments.program()?;
    let name = program.name();
    let kind = if name == "vllm" || program.is_below("/vllm/entrypoints/") {
        HintKind::Vllm {
            share: share(options, &["--gpu-memory-utilization"])?,
            kv_cache: match options.value(&["--kv-cache-memory-bytes"]) {
                None => None,
                Some(text) => Some(size(text)?),
            },
            sleeps: options.has("--enable-sleep-mode"),
        }
    } else if name == "sglang" || program.is_below("/sglang/") {
        HintKind::Sglang {
            share: share(options, &["--mem-fraction-static"])?,
        }
    } else if name == "tensorrt_llm" || name.starts_with("trtllm-") {
        let spellings = ["--kv-cache-free-gpu-memory-fraction", "--free-gpu-memory-fraction"];
        HintKind::TensorRtLlm {
            share: share(options, &spellings)?,
        }
    } else if name == "ollama" || name == "ollama_llama_server" || name.starts_with("llama-") {
        let layers = options.value(&["--n-gpu-layers", "--gpu-layers", "-ngl"])?;
        return Some(HintKind::LlamaCpp {
            layers: layers.parse().ok()?,
        });
    } else {
        return None;
    };
    // An option that follows what was read would make a default wrong.
    arguments.complete.then_some(kind)
}

/// Returns a share, or `Some(None)` where the option is missing. `None` if its value is no share.
fn share(options: Options<'_>, spellings: &[&str]) -> Option<Option<Share>> {
    match options.value(spellings) {
        None => Some(None),
        Some(text) => Share::parse(text).map(Some),
    }
}

/// Returns a size as it was given, if it is a number that may have a unit.
fn size(text: &str) -> Option<String> {
    let is_size = |text: &str| text.len() <= 20 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    (is_size(text) && text.starts_with(|c: char| c.is_ascii_digit())).then(|| text.to_owned())
}
