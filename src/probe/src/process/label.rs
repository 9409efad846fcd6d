//! The name that tells a process from others: the script, module or model that it runs. Eight rows `python` say nothing.

use gpumem_text::clean_line;

use crate::arguments::{Arguments, Options, Program, base};

#[cfg(test)]
#[path = "label_tests.rs"]
mod tests;

/// Length of the longest label, in characters.
const LENGTH: usize = 80;

/// Programs that serve a model, which is a part of the label. So are those that begin with `llama-`.
const SERVERS: [&str; 14] = [
    "aphrodite",
    "fastchat",
    "infinity_emb",
    "lmdeploy",
    "mlc_llm",
    "ollama",
    "ollama_llama_server",
    "sglang",
    "tensorrt_llm",
    "text-generation-launcher",
    "text-generation-server",
    "trtllm-serve",
    "tritonserver",
    "vllm",
];

/// Options of [`SERVERS`] that name the model.
const MODEL: [&str; 8] = [
    "--model",
    "--model-path",
    "--model-id",
    "--model-repository",
    "--model-store",
    "--hf-repo",
    "-hf",
    "-m",
];

/// Commands of [`SERVERS`] that stand before a model: `vllm serve MODEL`.
const COMMANDS: [&str; 5] = ["serve", "server", "api_server", "runner", "v2"];

/// Programs and modules that run a script, which is the label.
const LAUNCHERS: [&str; 8] = [
    "torchrun",
    "accelerate",
    "deepspeed",
    "debugpy",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.launch",
];

/// Returns the label of a process: cleaned, at most [`LENGTH`] characters. Empty if its arguments do not tell.
pub(super) fn label(arguments: &Arguments) -> String {
    let text = match (arguments.title(), arguments.program()) {
        (Some(title), _) => title.to_owned(),
        (None, Some((program, options))) => of_program(program, options, arguments.are_of_a_worker()),
        (None, None) => String::new(),
    };
    clean_line(text.as_bytes(), LENGTH)
}

fn of_program(program: Program<'_>, options: Options<'_>, is_worker: bool) -> String {
    let name = match program {
        // Python's `multiprocessing` starts its workers with code.
        Program::Code(..) if is_worker => return "multiprocessing".to_owned(),
        Program::Code(interpreter, option) => return format!("{interpreter} {option}"),
        Program::File(path) => file_name(path),
        Program::Module(module) => module.strip_suffix(".__main__").unwrap_or(module),
    };
    if ["ipykernel_launcher", "ipykernel_launcher.py"].contains(&name) {
        return "ipykernel".to_owned();
    }
    if LAUNCHERS.contains(&name) {
        return script(options).unwrap_or_else(|| name.to_owned());
    }
    if name == "gpumem-tui" {
        let words: Vec<&str> = options.words().take(2).map(base).collect();
        return if words.is_empty() {
            name.to_owned()
        } else {
            words.join(" ")
        };
    }
    // The programs of vLLM and SGLang are also started by the paths of their files.
    let engine = ["vllm", "sglang"]
        .into_iter()
        .find(|engine| program.is_below(&format!("/{engine}/")));
    let server = engine.unwrap_or(program.name());
    if SERVERS.contains(&server) || server.starts_with("llama-") {
        return match model(options) {
            Some(model) => format!("{server} {model}"),
            None => server.to_owned(),
        };
    }
    name.to_owned()
}

/// Returns the name of a file. `__main__.py` is named by its folder.
fn file_name(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    base(path.strip_suffix("/__main__.py").unwrap_or(path))
}

/// Returns the script or module that a launcher runs.
fn script(options: Options<'_>) -> Option<String> {
    if let Some(module) = options.value(&["-m", "--module"]) {
        return Some(module.to_owned());
    }
    options
        .all()
        .find(|argument| argument.ends_with(".py"))
        .map(|path| file_name(path).to_owned())
}

/// Returns the name of the model that a server has.
fn model(options: Options<'_>) -> Option<String> {
    let mut words = options.words().filter(|word| !COMMANDS.contains(word));
    let path = options.value(&MODEL).or_else(|| words.next())?.trim_end_matches('/');
    // A snapshot in the cache of Hugging Face: `models--ORGANISATION--NAME/snapshots/COMMIT`.
    let cached = path.split('/').find_map(|part| part.strip_prefix("models--"));
    if let Some(cached) = cached {
        return Some(cached.rsplit("--").next().unwrap_or(cached).to_owned());
    }
    let name = base(path);
    match name.strip_prefix("sha256-") {
        // Twelve digits tell one file of Ollama's from another, as in its own lists.
        Some(digits) => Some(digits.chars().take(12).collect()),
        None => Some(name.to_owned()).filter(|name| !name.is_empty()),
    }
}
