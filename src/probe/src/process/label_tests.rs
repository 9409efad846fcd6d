use super::*;

/// Splits at `|`, and returns the label.
fn of(line: &str) -> String {
    label(&Arguments::parse(line.replace('|', "\0").as_bytes(), true))
}

#[test]
fn label_is_the_script_module_or_model() {
    for (line, expected) in [
        // Scripts.
        ("python|train.py|--lr|3", "train.py"),
        ("/opt/conda/bin/python3.12|-u|/data/jobs/train.py|", "train.py"),
        ("python3|-X|dev|-W|ignore|-Wonce|eval.py|-m|x", "eval.py"),
        ("python3.13t|-OO|-um|mypackage.train|--lr|3", "mypackage.train"),
        ("python|-mmypackage", "mypackage"),
        ("python|-m|mypackage.__main__", "mypackage"),
        ("python|/data/mypackage/__main__.py", "mypackage"),
        ("python|__main__.py", "__main__.py"),
        ("python|/data/my job/a b.py", "a b.py"),
        ("pypy3|bench.py", "bench.py"),
        ("bash|-ex|/srv/start.sh|a.py", "start.sh"),
        ("bash|--rcfile|x|-o|pipefail|run.sh", "run.sh"),
        ("-bash", "bash"),
        ("perl5.36|-w|tool.pl", "tool.pl"),
        ("Rscript|--vanilla|fit.R", "fit.R"),
        ("node|--max-old-space-size=4096|-r|ts-node|server.js", "server.js"),
        ("java|-Xmx8g|-cp|a.jar:b.jar|com.example.Main|x", "com.example.Main"),
        ("java|-jar|/opt/app/app.jar", "app.jar"),
        // Code, and interpreters without anything.
        ("python3|-c|import torch; torch.zeros(1).cuda()", "python3 -c"),
        ("sh|-c|python train.py", "sh -c"),
        ("bash|-lc|python train.py", "bash -c"),
        ("node|-e|x()", "node -e"),
        ("python3", "python3"),
        ("python3|-i", "python3"),
        (
            "python|-c|from multiprocessing.spawn import spawn_main|--multiprocessing-fork",
            "multiprocessing",
        ),
        // Launchers.
        (
            "/usr/bin/python|/usr/bin/torchrun|--nproc_per_node|8|train.py|--lr|3",
            "train.py",
        ),
        ("torchrun|--nproc-per-node=8|-m|mypackage.train", "mypackage.train"),
        (
            "python|-m|torch.distributed.run|--nnodes|2|/a/finetune.py",
            "finetune.py",
        ),
        ("accelerate|launch|--config_file|a.yaml|sft.py|x.py", "sft.py"),
        (
            "python|-u|-m|deepspeed.launcher.launch|--world_info=e30=|ds.py",
            "ds.py",
        ),
        (
            "python|/x/debugpy|--connect|127.0.0.1:5678|/home/ana/train.py",
            "train.py",
        ),
        ("torchrun", "torchrun"),
        // Servers.
        (
            "python|-m|vllm.entrypoints.openai.api_server|--model|meta-llama/Llama-3-8B",
            "vllm Llama-3-8B",
        ),
        (
            "python3|/x/vllm/entrypoints/openai/api_server.py|--model=/models/qwen/",
            "vllm qwen",
        ),
        (
            "/usr/bin/python3|/usr/local/bin/vllm|serve|Qwen/Qwen2.5-7B|--port|80",
            "vllm Qwen2.5-7B",
        ),
        ("vllm|serve|--port|80|--model|a/b", "vllm b"),
        ("vllm|serve|--port|80", "vllm"),
        (
            "vllm|serve|/hub/models--google--gemma-2-9b/snapshots/0123abc",
            "vllm gemma-2-9b",
        ),
        (
            "python|-m|sglang.launch_server|--model-path|a/DeepSeek-V3",
            "sglang DeepSeek-V3",
        ),
        (
            "python|-m|fastchat.serve.model_worker|--model-path|lmsys/vicuna-7b",
            "fastchat vicuna-7b",
        ),
        (
            "text-generation-launcher|--model-id|bigscience/bloom",
            "text-generation-launcher bloom",
        ),
        ("trtllm-serve|nvidia/Llama-FP8|--port|8000", "trtllm-serve Llama-FP8"),
        ("lmdeploy|serve|api_server|internlm/internlm2", "lmdeploy internlm2"),
        ("llama-server|-m|/models/q4.gguf|-ngl|99", "llama-server q4.gguf"),
        (
            "/usr/bin/ollama|runner|--model|/root/.ollama/models/blobs/sha256-6a0746a1ec1aef3e7ec53868f220ff6e",
            "ollama 6a0746a1ec1a",
        ),
        ("ollama|serve", "ollama"),
        ("tritonserver|--model-repository=/models", "tritonserver models"),
        // Titles that programs set themselves.
        ("VLLM::EngineCore", "VLLM::EngineCore"),
        ("ray::Worker.step", "ray::Worker.step"),
        ("sglang::scheduler_TP0||||", "sglang::scheduler_TP0"),
        ("finetune: step 12", "finetune: step 12"),
        // Other programs.
        ("python|-m|ipykernel_launcher|-f|/run/kernel-1.json", "ipykernel"),
        ("/usr/bin/python3|/opt/bin/jupyter-lab|--no-browser", "jupyter-lab"),
        ("./simulate|--steps|5", "simulate"),
        ("/opt/bin/gpumem-tui|demo|train|--device|sim", "demo train"),
        ("/usr/lib/xorg/Xorg|:0", "Xorg"),
    ] {
        assert_eq!(of(line), expected, "{line}");
    }
}

#[test]
fn hostile_command_line_is_bounded_and_cleaned() {
    for (line, expected) in [
        ("", ""),
        ("||||", ""),
        ("|x|y", ""),
        ("python|-m", ""),
        ("python|-um", ""),
        ("python|-W", ""),
        ("python||x", ""),
        ("python|-|x", "python"),
        ("/", ""),
        ("vllm|serve|/", "vllm"),
        ("vllm|--model", "vllm"),
        ("python|-m|vllm.|--model|", "vllm"),
        ("python|\x1b]0;owned\x07.py", "\u{fffd}]0;owned\u{fffd}.py"),
        ("vllm|serve|a/\x1b[31mred\nline", "vllm \u{fffd}[31mred line"),
        ("python|\u{202e}yp.niart", "\u{fffd}yp.niart"),
        ("python|-\u{e9}\u{e9}|a.py", "a.py"),
    ] {
        assert_eq!(of(line), expected, "{line:?}");
    }
    let raw = |bytes: &[u8]| label(&Arguments::parse(bytes, true));
    assert_eq!(raw(b"python\0/x/\xff\xfe.py\0"), "\u{fffd}\u{fffd}.py");
    // A character that is cut in its middle.
    let mut cut = b"python\0".to_vec();
    cut.extend("\u{65e5}".repeat(400).as_bytes());
    assert_eq!(raw(&cut).chars().count(), 80);
    let mut huge = b"python\0-u\0".to_vec();
    huge.extend(b"-x\0".repeat(1 << 20));
    huge.extend(b"train.py\0");
    assert_eq!(raw(&huge), "python", "what comes so late is not read");
    let long = format!("torchrun|{}|train.py", "x".repeat(1 << 20));
    assert_eq!(of(&long), "train.py");
    assert_eq!(of(&"a".repeat(1 << 20)).chars().count(), 80);
}
