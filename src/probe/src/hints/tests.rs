#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::{KvCached, Preallocation, Processes, Share};

fn share(text: &str) -> Option<Share> {
    Some(Share::parse(text).unwrap())
}

fn vllm(share: Option<Share>) -> Option<HintKind> {
    Some(HintKind::Vllm {
        share,
        kv_cache: None,
        sleeps: false,
    })
}

/// Splits at blanks, as no argument here has one.
fn arguments(line: &str) -> Arguments {
    let mut bytes = line.replace(' ', "\0").into_bytes();
    bytes.push(0);
    Arguments::parse(&bytes, true)
}

#[test]
fn engines_are_found_by_their_command_lines() {
    for (line, expected) in [
        ("vllm serve Qwen/Qwen3-8B", vllm(None)),
        (
            "/usr/bin/python3 /opt/venv/bin/vllm serve m --gpu-memory-utilization 0.85",
            vllm(share("0.85")),
        ),
        (
            "python3.12 -m vllm.entrypoints.openai.api_server --gpu-memory-utilization=.5",
            vllm(share("0.5")),
        ),
        (
            "python -u -X dev -m vllm.entrypoints.api_server --gpu_memory_utilization 0.7",
            vllm(share("0.7")),
        ),
        ("python /x/vllm/entrypoints/openai/api_server.py", vllm(None)),
        (
            "vllm serve m --gpu-memory-utilization 0.5 --gpu-memory-utilization 0.6",
            vllm(share("0.6")),
        ),
        (
            "vllm serve m --kv-cache-memory-bytes 25G --enable-sleep-mode",
            Some(HintKind::Vllm {
                share: None,
                kv_cache: Some("25G".into()),
                sleeps: true,
            }),
        ),
        ("vllm serve m --enable-sleep-mode --no-enable-sleep-mode", vllm(None)),
        (
            "python3 -m sglang.launch_server --model-path m --mem-fraction-static 0.8",
            Some(HintKind::Sglang { share: share("0.8") }),
        ),
        ("sglang serve --model-path m", Some(HintKind::Sglang { share: None })),
        (
            "/usr/bin/python3 /usr/local/bin/trtllm-serve m --kv_cache_free_gpu_memory_fraction 0.6",
            Some(HintKind::TensorRtLlm { share: share("0.6") }),
        ),
        (
            "/usr/bin/ollama runner --model /m/blobs/x --n-gpu-layers 33",
            Some(HintKind::LlamaCpp { layers: 33 }),
        ),
        (
            "llama-server -m m.gguf -ngl 99",
            Some(HintKind::LlamaCpp { layers: 99 }),
        ),
        // What is not known is not guessed.
        ("llama-server -m m.gguf", None),
        ("ollama serve", None),
        ("vllm serve m --gpu-memory-utilization", vllm(None)),
        ("vllm serve m --gpu-memory-utilization 90", None),
        ("vllm serve m --kv-cache-memory-bytes \x1b[2J", None),
        ("llama-server -ngl -1", None),
        ("vim vllm serve --gpu-memory-utilization 0.9", None),
        ("python train.py --gpu-memory-utilization 0.9", None),
        ("python -c import_vllm", None),
        ("python -m", None),
        ("python -W", None),
        ("python", None),
        ("", None),
    ] {
        assert_eq!(engines::engine(&arguments(line)), expected, "{line}");
    }
}

#[test]
fn option_behind_a_cut_command_line_is_unknown() {
    let line = b"vllm\0serve\0m\0--gpu-memory-utilization\x000.8\0";
    let huge = [&line[..], &vec![b'a'; 1 << 20]].concat();
    assert_eq!(engines::engine(&Arguments::parse(&huge, true)), vllm(share("0.8")));
    assert_eq!(engines::engine(&Arguments::parse(&huge[..128 << 10], false)), None);
    let many = [&line[..], &b"x\0".repeat(5000)].concat();
    assert!(!Arguments::parse(&many, true).complete);
    let wrong = b"vllm\0\xff\xfe\0\x1b]0;x\x07\0--gpu-memory-utilization=\xff\0";
    assert_eq!(engines::engine(&Arguments::parse(wrong, true)), None);
}

#[test]
fn titles_and_workers_are_told_from_command_lines() {
    for (bytes, worker, title) in [
        (&b"VLLM::EngineCore\0\0\0\0"[..], true, true),
        (b"VLLM::Worker_TP0    ", true, true),
        (b"sglang::scheduler_TP0", true, true),
        (
            b"python\0-c\0from multiprocessing.spawn import spawn_main\0--multiprocessing-fork\0",
            true,
            false,
        ),
        (b"std::x\0y", false, false),
        (b"vllm\0serve", false, false),
        (b"", false, false),
    ] {
        let arguments = Arguments::parse(bytes, true);
        let told = (arguments.are_of_a_worker(), arguments.are_a_title());
        assert_eq!(told, (worker, title), "{arguments:?}");
    }
}

#[test]
fn only_listed_variables_are_kept() {
    let environment = b"AWS_SECRET_ACCESS_KEY=hunter2\0PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\0\
        XPYTORCH_CUDA_ALLOC_CONF=hunter2\0PYTORCH_CUDA_ALLOC_CONF_=hunter2\0HF_TOKEN=\0noequals\0=hunter2\0\
        CUDA_VISIBLE_DEVICES=0\n1\x1b[2J\xff\0CUDA_VISIBLE_DEVICES=hunter2\0PYTORCH_ALLOC_CONF=\0";
    let variables = Variables::parse(environment, true);
    assert!(!format!("{variables:?}").contains("hunter2"), "{variables:?}");
    assert_eq!(
        variables.get("PYTORCH_CUDA_ALLOC_CONF"),
        Some("expandable_segments:True")
    );
    assert_eq!(variables.get("CUDA_VISIBLE_DEVICES"), Some("0 1\u{fffd}[2J\u{fffd}"));
    assert_eq!(
        (variables.get("PYTORCH_ALLOC_CONF"), variables.get("HF_TOKEN")),
        (None, None)
    );
    assert!(variables.complete);
    let long = [b"CUDA_VISIBLE_DEVICES=", &[b'7'; 5000][..]].concat();
    assert_eq!(
        Variables::parse(&long, true).get("CUDA_VISIBLE_DEVICES").unwrap().len(),
        120
    );
    let cut = Variables::parse(&long, false);
    assert_eq!(
        (cut.get("CUDA_VISIBLE_DEVICES"), cut.complete),
        (None, false),
        "its end is missing"
    );
    assert!(
        !Variables::parse(&[0; 100], true).complete,
        "a title was written over it"
    );
}

const JAX: Libraries = Libraries {
    torch: false,
    jax: true,
    tensorflow: false,
    kvcached: false,
    driver: false,
};

#[test]
fn jax_preallocates_unless_its_variables_say_otherwise() {
    for (environment, expected) in [
        ("A=1", Preallocation::Share(Share::JAX)),
        (
            "XLA_PYTHON_CLIENT_PREALLOCATE=false",
            Preallocation::Off("XLA_PYTHON_CLIENT_PREALLOCATE"),
        ),
        ("XLA_PYTHON_CLIENT_PREALLOCATE=true", Preallocation::Share(Share::JAX)),
        ("XLA_PYTHON_CLIENT_PREALLOCATE=maybe", Preallocation::Unknown),
        (
            "XLA_PYTHON_CLIENT_ALLOCATOR=platform",
            Preallocation::Off("XLA_PYTHON_CLIENT_ALLOCATOR"),
        ),
        ("XLA_PYTHON_CLIENT_ALLOCATOR=new", Preallocation::Unknown),
        (
            "XLA_PYTHON_CLIENT_MEM_FRACTION=.5",
            Preallocation::Share(Share::parse("0.5").unwrap()),
        ),
        (
            "XLA_PYTHON_CLIENT_MEM_FRACTION=.5\0XLA_CLIENT_MEM_FRACTION=.3",
            Preallocation::Share(Share::parse("0.3").unwrap()),
        ),
        ("XLA_CLIENT_MEM_FRACTION=lots", Preallocation::Unknown),
        ("\0\0\0", Preallocation::Unknown),
    ] {
        let hints = frameworks::hints(JAX, &Variables::parse(environment.as_bytes(), true), 7);
        assert_eq!(hints[0].kind, HintKind::Jax(expected), "{environment}");
        assert_eq!(hints.len(), 1);
    }
}

#[test]
fn variables_are_hints_where_their_library_is_loaded() {
    let environment =
        b"PYTORCH_CUDA_ALLOC_CONF=x\0TF_FORCE_UNIFIED_MEMORY=1\0TF_FORCE_GPU_ALLOW_GROWTH=true\0CUDA_VISIBLE_DEVICES=3";
    let variables = Variables::parse(environment, true);
    let shown = |libraries| {
        let hints = frameworks::hints(libraries, &variables, 7);
        let texts = hints.iter().map(|hint| match &hint.kind {
            HintKind::Variable { name, value } => format!("{name}={value}"),
            kind => format!("{kind:?}"),
        });
        texts.collect::<Vec<_>>().join(", ")
    };
    let none = Libraries::default();
    assert_eq!(shown(none), "CUDA_VISIBLE_DEVICES=3");
    assert_eq!(
        shown(Libraries { torch: true, ..none }),
        "PyTorch, PYTORCH_CUDA_ALLOC_CONF=x, CUDA_VISIBLE_DEVICES=3"
    );
    assert_eq!(
        shown(Libraries {
            tensorflow: true,
            ..none
        }),
        "TensorFlow { grows: Some(true) }, TF_FORCE_UNIFIED_MEMORY=1, CUDA_VISIBLE_DEVICES=3"
    );
}

#[test]
fn libraries_are_found_by_their_files() {
    let line = |path: &str| format!("7f0000000000-7f0000001000 r-xp 00000000 08:01 12     {path}\n");
    let found = |path: &str| Libraries::parse((line("/usr/lib/libc.so.6") + &line(path)).as_bytes());
    let none = Libraries::default();
    for (path, expected) in [
        ("/v/torch/lib/libtorch_cuda.so", Libraries { torch: true, ..none }),
        ("/v/jax_plugins/xla_cuda12/xla_cuda_plugin.so", JAX),
        ("/v/jaxlib/cuda/_solver.so", JAX),
        (
            "/v/tensorflow/libtensorflow_cc.so.2",
            Libraries {
                tensorflow: true,
                ..none
            },
        ),
        (
            "/v/kvcached/vmm_ops.cpython-312-x86_64-linux-gnu.so",
            Libraries { kvcached: true, ..none },
        ),
        ("/dev/nvidiactl", Libraries { driver: true, ..none }),
        ("/v/jaxlib/libjax_common.so", none),
        ("/v/torch/lib/libtorch_cpu.so", none),
        ("/home/x/libtorch_cuda.so/data", none),
        ("[heap]", none),
    ] {
        assert_eq!(found(path), expected, "{path}");
    }
    assert_eq!(Libraries::parse(b"\xff/\xff\n\n/"), none);
}

/// A made-up `/proc` in memory.
struct Proc(tempfile::TempDir);

impl Proc {
    fn new() -> Self {
        Proc(tempfile::tempdir_in("/dev/shm").unwrap())
    }

    fn put(&self, pid: u32, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.path().join(format!("proc/{pid}/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Adds a process of this user, whose process group is 4100.
    fn process(&self, pid: u32, parent: u32, start: u64, cmdline: &str, environ: &str) {
        let uid = rustix::process::geteuid().as_raw();
        self.put(
            pid,
            "stat",
            format!("{pid} (p) S {parent} 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0"),
        );
        self.put(
            pid,
            "status",
            format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpgid:\t4100\n"),
        );
        self.put(pid, "cmdline", cmdline);
        self.put(pid, "environ", environ);
        self.put(pid, "maps", "");
    }

    fn reader(&self) -> HintReader {
        HintReader {
            root: Root::at(self.0.path()),
            known: HashMap::new(),
        }
    }

    fn shm(&self, pid: u32) -> std::path::PathBuf {
        let shm = self.0.path().join(format!("proc/{pid}/root/dev/shm"));
        fs::create_dir_all(&shm).unwrap();
        shm
    }
}

fn process(pid: u32, start_time: u64) -> Process {
    Process {
        pid,
        start_time,
        ..Process::default()
    }
}

fn hints(reader: &mut HintReader, pid: u32, start: u64) -> Vec<Hint> {
    let mut list = [process(pid, start)];
    reader.fill(&mut list, 8);
    list[0].hints.to_vec()
}

#[test]
fn worker_has_the_options_of_its_parent() {
    let proc = Proc::new();
    let spawned = "python\0-c\0x\0--multiprocessing-fork\0";
    proc.process(
        100,
        1,
        10,
        "vllm\0serve\0m\0--gpu-memory-utilization\x000.8\0",
        "CUDA_VISIBLE_DEVICES=5\0TOKEN=s\0",
    );
    proc.process(101, 100, 20, "VLLM::EngineCore\0\0\0", "\0\0\0\0");
    proc.process(102, 101, 30, "VLLM::Worker_TP0\0\0\0", "\0\0\0\0");
    proc.process(103, 101, 40, spawned, "CUDA_VISIBLE_DEVICES=6\0");
    let mut reader = proc.reader();
    let engine = Hint {
        source: HintSource::CommandLine(100),
        kind: vllm(share("0.8")).unwrap(),
    };
    let visible = |pid, value: &str| Hint {
        source: HintSource::Environment(pid),
        kind: HintKind::Variable {
            name: "CUDA_VISIBLE_DEVICES",
            value: value.into(),
        },
    };
    assert_eq!(hints(&mut reader, 102, 30), [engine.clone(), visible(100, "5")]);
    assert_eq!(hints(&mut reader, 103, 40), [engine.clone(), visible(103, "6")]);
    // The parent is of another user, or younger: the pid was reused.
    proc.put(101, "status", "Uid:\t77\t77\t77\t77\n");
    assert_eq!(hints(&mut proc.reader(), 102, 30), []);
    proc.process(101, 100, 31, "VLLM::EngineCore", "");
    assert_eq!(hints(&mut proc.reader(), 102, 30), []);
}

#[test]
fn chain_of_parents_is_bounded() {
    let proc = Proc::new();
    proc.process(50, 1, 1, "vllm\0serve\0", "");
    for pid in 51..=55 {
        proc.process(pid, pid - 1, 1, "VLLM::x", "");
    }
    proc.process(60, 60, 1, "VLLM::loop", "");
    assert_eq!(hints(&mut proc.reader(), 54, 1).len(), 1);
    assert_eq!(hints(&mut proc.reader(), 55, 1), []);
    assert_eq!(hints(&mut proc.reader(), 60, 1), []);
}

#[test]
fn processes_are_read_once_and_a_few_at_a_time() {
    let proc = Proc::new();
    for pid in 10..15 {
        proc.process(pid, 1, 5, "vllm\0serve\0", "");
    }
    let mut reader = proc.reader();
    let filled = |reader: &mut HintReader, most| {
        let mut list: Vec<Process> = (10..15).map(|pid| process(pid, 5)).collect();
        reader.fill(&mut list, most);
        list.iter().filter(|p| !p.hints.is_empty()).count()
    };
    assert_eq!([2, 2, 2, 0].map(|most| filled(&mut reader, most)), [2, 4, 5, 5]);
    for pid in 10..15 {
        proc.put(pid, "cmdline", "sleep\x0010");
    }
    assert_eq!(filled(&mut reader, 8), 5, "it is not read again");
    // Another process of that pid, and one that is not what was asked for.
    proc.process(10, 1, 6, "sleep\x0010", "");
    assert_eq!(hints(&mut reader, 10, 6), []);
    assert_eq!(hints(&mut reader, 11, 6), []);
    assert!(reader.known.is_empty(), "others are forgotten");
}

fn write_record(path: &Path, words: [i64; 3]) {
    fs::write(path, words.map(i64::to_le_bytes).concat()).unwrap();
}

#[test]
fn kvcached_record_is_read_each_time() {
    let proc = Proc::new();
    proc.process(10, 1, 5, "vllm\0serve\0m\0", "A=1\0");
    proc.put(10, "maps", "0-1 r-xp 0 0:0 1 /v/kvcached/vmm_ops.so\n");
    let shm = proc.shm(10);
    let file = shm.join("kvcached_vLLM_4100");
    let mut reader = proc.reader();
    let mut record = || {
        let hints = hints(&mut reader, 10, 5);
        assert_eq!(hints.first().map(|hint| &hint.kind), vllm(None).as_ref());
        hints.get(1).map(|hint| hint.kind.clone())
    };
    let expected = |limit, used, preallocated| {
        let record = KvCached {
            limit,
            used,
            preallocated,
        };
        Some(HintKind::KvCached(record))
    };
    assert_eq!(record(), None);
    write_record(&file, [40 << 30, 12 << 30, 1 << 30]);
    assert_eq!(record(), expected(40 << 30, 12 << 30, 1 << 30));
    write_record(&file, [20 << 30, 0, 0]);
    assert_eq!(record(), expected(20 << 30, 0, 0));
    for wrong in [[-1, 0, 0], [1, -1, 0], [1, 1, i64::MAX]] {
        write_record(&file, wrong);
        assert_eq!(record(), None, "{wrong:?}");
    }
    for size in [0, 23, 25] {
        fs::write(&file, vec![0; size]).unwrap();
        assert_eq!(record(), None, "{size} bytes");
    }
    fs::remove_file(&file).unwrap();
    write_record(&shm.join("elsewhere"), [1, 1, 1]);
    std::os::unix::fs::symlink("elsewhere", &file).unwrap();
    assert_eq!(record(), None, "a link");
    fs::remove_file(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(record(), None, "a pipe");
    write_record(&shm.join("kvcached_engine_4100"), [3, 2, 1]);
    assert_eq!(record(), expected(3, 2, 1));
}

#[test]
fn pinned_memory_is_looked_at_again_when_shared_memory_changes() {
    let proc = Proc::new();
    proc.process(10, 1, 5, "python\0", "A=1\0");
    let maps = include_str!("../../tests/fixtures/pinned-maps.txt");
    let mut reader = proc.reader();
    let mut pinned = |shared_mib: u64| {
        proc.put(10, "status", format!("RssShmem:\t{} kB\n", shared_mib << 10));
        let hints = hints(&mut reader, 10, 5);
        hints.last().map(|hint| hint.kind.clone())
    };
    proc.put(10, "maps", "0-1 rw-s 0 0:6 142 /dev/nvidiactl\n");
    assert_eq!(pinned(8), None);
    proc.put(10, "maps", maps);
    assert_eq!(pinned(9), None, "not read again for 1 MiB");
    assert_eq!(pinned(776), Some(HintKind::PinnedHost(776 << 20)));
    // What is not resident is not pinned: a program may have mapped it itself.
    assert_eq!(pinned(770), Some(HintKind::PinnedHost(770 << 20)));
    assert_eq!(pinned(40), None);
}

#[test]
fn kvcached_record_may_have_a_name_of_its_own() {
    let proc = Proc::new();
    proc.process(10, 1, 5, "python\0x.py\0", "KVCACHED_IPC_NAME=../a b\0");
    let shm = proc.shm(10);
    write_record(&shm.join("---a-b"), [3, 2, 1]);
    assert_eq!(hints(&mut proc.reader(), 10, 5), [], "it does not use kvcached");
    proc.put(10, "maps", "0-1 r-xp 0 0:0 1 /v/kvcached/vmm_ops.so\n");
    let hints = hints(&mut proc.reader(), 10, 5);
    assert_eq!(hints[0].source, HintSource::SharedMemory);
    // A record of another user says nothing of this process.
    let other = rustix::process::geteuid().as_raw() + 1;
    proc.put(10, "status", format!("Uid:\t{other}\t{other}\t{other}\n"));
    assert_eq!(self::hints(&mut proc.reader(), 10, 5), []);
}

/// A child process that is killed at the end of the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a shell that waits, and returns it once it has its command line.
fn shell(arguments: &[&str], variables: &[(&str, &str)]) -> Guard {
    let mut command = Command::new("sh");
    command.args(["-c", "read line"]).args(arguments).stdin(Stdio::piped());
    command.envs(variables.iter().copied());
    let child = Guard(command.spawn().unwrap());
    let start = Instant::now();
    let line = format!("/proc/{}/cmdline", child.0.id());
    while !fs::read(&line).unwrap().starts_with(b"sh\0-c") {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn real_process_shows_its_variables_and_no_secrets() {
    let secret = ["hunter2"; 20_000].concat();
    let child = shell(
        &[&secret[..100_000]],
        &[("MY_TOKEN", &secret[..100_000]), ("CUDA_VISIBLE_DEVICES", "2,3")],
    );
    let mut found = vec![Processes::default().look_up(&[child.0.id()]).remove(0).unwrap()];
    HintReader::default().fill(&mut found, 8);
    let hints = &found[0].hints;
    let shown = hints
        .iter()
        .any(|hint| matches!(&hint.kind, HintKind::Variable { name: "CUDA_VISIBLE_DEVICES", value } if value == "2,3"));
    assert!(shown, "{hints:?}");
    assert!(!format!("{hints:?}").contains("hunter2"));
}

#[test]
fn process_of_another_user_says_so() {
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let no_permission = [Hint {
        source: HintSource::Environment(7),
        kind: HintKind::NoPermission,
    }];
    assert_eq!(inside(7, 7, Err(denied()), Err(denied())).0, no_permission);
    assert_eq!(inside(7, 6, Err(gone()), Err(denied())).0, no_permission);
    assert_eq!(inside(7, 7, Err(gone()), Err(gone())).0, []);
}
