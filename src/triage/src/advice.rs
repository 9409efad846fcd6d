//! What helps, in order, with the line to type; what is missing; what misleads.

use serde::Serialize;

use crate::Report;
use crate::verdict::{Allocator, Verdict};

/// Something that helps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// What to do.
    pub text: String,
    /// What to type, or to add to a configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

/// The program that failed, as far as its words tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stack {
    PyTorch,
    Vllm,
    Sglang,
    Jax,
    TensorFlow,
    CuPy,
    Rmm,
    Llama,
    Gpumem,
    Other,
}

impl Stack {
    fn of(context: &str) -> Stack {
        let has = |words: &[&str]| words.iter().any(|word| context.contains(word));
        match () {
            () if has(&["vllm", "enginecore"]) => Stack::Vllm,
            () if has(&["sglang", "mem-fraction-static"]) => Stack::Sglang,
            () if has(&["cupy"]) => Stack::CuPy,
            () if has(&["rmm::", "rmm/", "rmm.", "/rmm"]) => Stack::Rmm,
            () if has(&["jax", "xlaruntimeerror"]) => Stack::Jax,
            () if has(&["tensorflow", "oomwhenallocating", "tf_gpu"]) => Stack::TensorFlow,
            () if context == "gpumem-alloc" => Stack::Gpumem,
            () if has(&["llama", "ggml", "ollama"]) => Stack::Llama,
            () if has(&[
                "pytorch",
                "torch",
                "cudaoutofmemory",
                "hipoutofmemory",
                "xpuoutofmemory",
            ]) =>
            {
                Stack::PyTorch
            }
            () => Stack::Other,
        }
    }
}

/// Fills in what a report is missing, its fixes and its notes.
pub(crate) fn add(report: &mut Report, context: &str) {
    let stack = Stack::of(context);
    report.fixes = table(report.verdict, stack, context)
        .iter()
        .map(|(text, line)| Fix {
            text: (*text).to_owned(),
            line: Some((*line).to_owned()).filter(|line| !line.is_empty()),
        })
        .collect();
    if let Some(pid) = report
        .figures
        .others
        .iter()
        .max_by_key(|(_, bytes)| *bytes)
        .map(|(pid, _)| *pid)
        && report.verdict == Verdict::OtherProcess
    {
        report.fixes.insert(
            0,
            Fix {
                text: "Look at the process that has most, and end it if it is not needed. In a container its pid is the host's".to_owned(),
                line: Some(format!("ps -o pid,user,lstart,cmd -p {pid}")),
            },
        );
    }
    if matches!(report.verdict, Verdict::Incomplete | Verdict::Inconsistent) {
        report.missing = missing(report, stack);
    }
    report.notes = notes(report, context);
}

type Table = &'static [(&'static str, &'static str)];

const LESS_MEMORY: Table = &[
    ("Halve the micro-batch, and double the accumulation of gradients", ""),
    ("Compute in bfloat16", "torch.autocast('cuda', dtype=torch.bfloat16)"),
    (
        "Recompute activations instead of keeping them",
        "model.gradient_checkpointing_enable()  # or torch.utils.checkpoint",
    ),
    (
        "Shard weights, gradients and optimizer state (FSDP, ZeRO), or keep the optimizer's state in 8 bits",
        "",
    ),
];
const EXPANDABLE: Table = &[
    (
        "Let segments grow, so that free pieces join. Not with tensors that are shared between processes (CUDA IPC)",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    (
        "If that cannot be used, do not split large blocks",
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256",
    ),
    (
        "Begin with the largest batch, so that smaller ones fit into its blocks",
        "",
    ),
];
const WHO: Table = &[
    ("See which processes have the device, of every user", "gpumem-tui"),
    (
        "Find processes that have the GPU open and are not listed",
        "fuser -v /dev/nvidia*",
    ),
    (
        "Give each rank its own device before it loads anything",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
    ),
];

#[rustfmt::skip]
fn table(verdict: Verdict, stack: Stack, context: &str) -> Table {
    match (verdict, stack) {
        (Verdict::Exhausted | Verdict::Incomplete, Stack::Vllm) => &[
            ("Plan with a shorter context or fewer sequences at a time", "--max-model-len 8192 --max-num-seqs 64"),
            ("Leave more room beside the KV cache", "--gpu-memory-utilization 0.85"),
            ("Spread the weights over more GPUs, or quantize them", "--tensor-parallel-size 2"),
        ],
        (Verdict::Exhausted | Verdict::Incomplete, Stack::Sglang) => &[
            ("Take less for weights and KV cache, so that activations have room", "--mem-fraction-static 0.8"),
            ("Prefill in smaller pieces", "--chunked-prefill-size 2048"),
            ("Spread the weights over more GPUs", "--tp 2"),
        ],
        (Verdict::Exhausted | Verdict::Incomplete | Verdict::PoolLimit | Verdict::Fragmentation, Stack::Jax) => &[
            ("Do not take 75 % of the device at the start: other programs and libraries get room", "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
            ("Or change how much", "XLA_PYTHON_CLIENT_MEM_FRACTION=.90"),
            ("Recompute instead of keeping, or use a smaller batch", "jax.checkpoint"),
        ],
        (Verdict::Exhausted | Verdict::Incomplete | Verdict::PoolLimit | Verdict::Fragmentation, Stack::TensorFlow) => &[
            ("Use a smaller batch", ""),
            ("Use CUDA's own pool, which fragments less", "TF_GPU_ALLOCATOR=cuda_malloc_async"),
            ("Take memory as it is needed", "TF_FORCE_GPU_ALLOW_GROWTH=true"),
        ],
        (Verdict::PoolLimit | Verdict::Exhausted | Verdict::Incomplete, Stack::CuPy) => &[
            ("Give back what the pool caches", "cupy.get_default_memory_pool().free_all_blocks()"),
            ("Raise the pool's limit, if it has one", "cupy.get_default_memory_pool().set_limit(fraction=0.9)"),
            ("Work on smaller pieces", ""),
        ],
        (Verdict::PoolLimit | Verdict::Exhausted | Verdict::Incomplete | Verdict::Fragmentation, Stack::Rmm) => &[
            ("Make the pool as large as the largest request from the start: what it grows by is never in one piece with the rest", "rmm.reinitialize(pool_allocator=True, initial_pool_size='60GB')"),
            ("Or use CUDA's own pool", "rmm.mr.CudaAsyncMemoryResource()"),
        ],
        (_, Stack::Llama) if matches!(verdict, Verdict::Exhausted | Verdict::Incomplete | Verdict::Budget | Verdict::RequestTooLarge) => &[
            ("Keep fewer layers on the GPU", "--n-gpu-layers 20"),
            ("Use a shorter context, or a smaller KV cache", "--ctx-size 4096 --cache-type-k q8_0"),
            ("ollama: leave room that its estimate misses", "OLLAMA_GPU_OVERHEAD=1073741824"),
        ],
        (Verdict::Fragmentation | Verdict::PoolLimit, Stack::Gpumem) => &[
            ("Let free pieces serve a request together", "GPUMEM_ALLOC_CONF=segments:stitched"),
            ("Or let segments grow", "GPUMEM_ALLOC_CONF=expandable_segments:True"),
        ],
        (Verdict::ProcessLimit, Stack::Gpumem) => &[
            ("Raise the budget", "GPUMEM_ALLOC_CONF=budget_fraction:0.95"),
            ("If the limit is intended: use less memory", ""),
        ],
        (Verdict::Exhausted, _) => LESS_MEMORY,
        (Verdict::Fragmentation, _) => EXPANDABLE,
        (Verdict::OtherProcess, _) => WHO,
        (Verdict::RequestTooLarge, _) => &[
            ("Print the shapes before the line that failed: a dimension, a batch or a sequence is longer than meant, or a cross product was made", ""),
            ("Cut the largest sequence, or work in pieces", ""),
        ],
        (Verdict::GraphPools, _) | (Verdict::GraphCapture, Stack::Vllm) => &[
            ("Disable CUDA graphs", "--enforce-eager"),
            ("Capture fewer or smaller batch sizes: each has a pool of its own unless they share one", "--max-num-seqs 64"),
            ("Own code: share one pool among graphs", "torch.cuda.graph(g, pool=torch.cuda.graph_pool_handle())"),
        ],
        (Verdict::GraphCapture, _) => &[
            ("Capture smaller batch sizes", "--cuda-graph-max-bs 32"),
            ("Leave more room beside weights and KV cache", "--mem-fraction-static 0.8"),
            ("Disable CUDA graphs", "--disable-cuda-graph"),
        ],
        (Verdict::OutsideAllocator, _) => &[
            ("See what it is: NCCL's buffers, cuBLAS's workspaces, several contexts, another framework in the process", "gpumem-tui attach PID  # then key 2: outside"),
            ("Use fewer process groups, or smaller buffers of NCCL", "NCCL_BUFFSIZE=1048576"),
            ("Load kernels when they are first used", "CUDA_MODULE_LOADING=LAZY"),
        ],
        (Verdict::ProcessLimit, _) => &[
            ("Raise or remove the fraction", "torch.cuda.set_per_process_memory_fraction(1.0)"),
            ("If the limit is intended: use less memory", ""),
        ],
        (Verdict::VirtualLimit, _) => &[
            ("Raise the container's limit in its resources", "nvidia.com/gpumem: 40000"),
            ("To confirm it, run once with the layer's limit off", "CUDA_DISABLE_CONTROL=true"),
        ],
        (Verdict::PoolLimit, _) => &[
            ("Raise the pool's limit, or work on smaller pieces", ""),
        ],
        (Verdict::Preallocation, Stack::TensorFlow) => &[
            ("Take memory as it is needed", "TF_FORCE_GPU_ALLOW_GROWTH=true"),
        ],
        (Verdict::Preallocation, _) => &[
            ("Take less in advance, so that libraries have room", "XLA_PYTHON_CLIENT_MEM_FRACTION=.70"),
            ("Or nothing", "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
        ],
        (Verdict::Budget, Stack::Sglang) => &[
            ("Raise the share for weights and KV cache", "--mem-fraction-static 0.92"),
            ("Or plan with a shorter context", "--context-length 8192"),
        ],
        (Verdict::Budget, _) if context.contains("onstartupislessthan") => &[
            ("See who has the rest, and end or wait for it", "gpumem-tui"),
            ("Or ask for less", "--gpu-memory-utilization 0.5"),
        ],
        (Verdict::Budget, _) => &[
            ("Plan with a shorter context", "--max-model-len 8192"),
            ("Let the engine take more of the device", "--gpu-memory-utilization 0.95"),
            ("Spread the weights over more GPUs", "--tensor-parallel-size 2"),
        ],
        (Verdict::NeighbourFreed, _) => &[
            ("Start the engines one after the other", ""),
            ("Skip memory profiling", "--kv-cache-memory-bytes 20G"),
        ],
        (Verdict::WakeUp, _) => &[
            ("Give back the trainer's memory before the engine wakes", "torch.cuda.empty_cache()"),
            ("Let the engine take less", "--gpu-memory-utilization 0.3"),
        ],
        (Verdict::HostMemory, _) => &[
            ("See which process was killed, and at what limit", "journalctl -k | grep -iE 'oom|killed process'"),
            ("In a container: its limit and its events", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.events"),
            ("Use less of it: fewer data-loader workers, less offloading to the CPU, load checkpoints with mmap", "torch.load(path, mmap=True)"),
        ],
        (Verdict::PinnedMemory, _) => &[
            ("See what may be locked and what is left", "ulimit -l; free -g"),
            ("Pin less: smaller or fewer buffers. PyTorch rounds each up to a power of two", "DataLoader(..., pin_memory=False)"),
            ("WSL and Windows pin only a part of the memory: use Linux, or go without", ""),
        ],
        (Verdict::SharedMemory, _) => &[
            ("See how full it is, and remove what dead programs left", "df -h /dev/shm; ls -la /dev/shm"),
            ("Give the container more", "docker run --shm-size=16g  # or --ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm"),
            ("Or use fewer workers", "DataLoader(..., num_workers=2)"),
        ],
        (Verdict::SharedMemoryRights, _) => &[
            ("Make it writable for everybody", "chmod 1777 /dev/shm"),
        ],
        (Verdict::Memlock, _) => &[
            ("See the limit", "ulimit -l"),
            ("Lift it, and log in again", "* - memlock unlimited  # in /etc/security/limits.conf; docker run --ulimit memlock=-1"),
        ],
        (Verdict::AddressSpace, _) => &[
            ("See the limit", "ulimit -v"),
            ("Lift it", "ulimit -v unlimited"),
            ("Or reserve less: no expandable segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"),
        ],
        (Verdict::OnChip, _) => &[
            ("Make the kernel's blocks smaller, or use fewer stages", "num_stages=2, BLOCK_M=64, BLOCK_N=64"),
            ("If the kernel is a library's: it may be tuned for another GPU", ""),
        ],
        (Verdict::UnifiedMemory, _) => &[
            ("See what the host's page cache has, and drop it before the start", "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"),
            ("Ask for a smaller share", "--gpu-memory-utilization 0.7"),
            ("If memory is in pieces since boot: start earlier after a reboot", "cat /proc/buddyinfo"),
        ],
        (Verdict::NotCapacity, _) => &[
            ("Look for a limit: a fraction of the process, a vGPU or MIG slice, a cgroup", "gpumem-tui doctor; nvidia-smi -q -d MEMORY"),
            ("Look at host memory and address space: cudaMalloc fails for want of them, too", "free -g; ulimit -v"),
            ("Look for another process that was there for a moment", "gpumem-tui"),
        ],
        (Verdict::NotMemory, _) if context.contains("nvls") || context.contains("nvlink") => &[
            ("Disable NVLink multicast", "NCCL_NVLS_ENABLE=0"),
            ("See whether the fabric manager runs", "systemctl status nvidia-fabricmanager"),
        ],
        (Verdict::NotMemory, _) if context.contains("unknownerror") => &[
            ("Under WSL2: no expandable segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"),
            ("See what the driver says", "dmesg | grep -iE 'nvrm|xid'"),
        ],
        (Verdict::NotMemory, _) => &[
            ("Find the kernel that went wrong", "CUDA_LAUNCH_BLOCKING=1  # or compute-sanitizer python script.py"),
        ],
        (Verdict::Hardware, _) => &[
            ("Move the work to another GPU, and reset or replace this one", "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"),
        ],
        (Verdict::Incomplete, _) => &[
            ("See who has the memory now", "gpumem-tui"),
            ("Once it runs again: have it publish, and the next failure has its figures and its map", "gpumem-tui run -- python train.py"),
        ],
        (Verdict::Inconsistent, _) => &[
            ("Take the figures from the driver instead", "gpumem-tui"),
        ],
        (Verdict::Warning | Verdict::Nothing, _) => &[],
    }
}

fn missing(report: &Report, stack: Stack) -> Vec<String> {
    let mut missing = Vec::new();
    let mut say = |text: &str| missing.push(text.to_owned());
    if report.allocator == Allocator::Unknown {
        say(
            "whose memory it is: the traceback above the line says which call failed (pin_memory and cudaMallocHost are host memory)",
        );
    }
    if report.figures.requested.is_none() {
        say("how much was asked for: the whole line, and what follows it");
    }
    match stack {
        Stack::PyTorch if report.figures.total.is_some() => {
            say("the rest of the message: from \"Of the allocated memory\" on")
        }
        Stack::PyTorch => say(
            "PyTorch's own line, \"CUDA out of memory. Tried to allocate ...\": of every rank, the first one in time",
        ),
        Stack::Jax => {
            say("how much JAX had: the allocator's statistics above the line (TF_CPP_VMODULE=bfc_allocator=1)")
        }
        Stack::Llama => say("what the card has and had free: the lines of ggml_cuda_init and load_tensors above"),
        _ => {}
    }
    say("who else has memory on the device: run gpumem-tui (or nvidia-smi) on that machine now");
    missing
}

fn notes(report: &Report, context: &str) -> Vec<String> {
    let mut notes = Vec::new();
    let mut say = |condition: bool, text: &str| {
        if condition {
            notes.push(text.to_owned());
        }
    };
    let figures = &report.figures;
    let hint = context.contains("expandable_segments:true") || context.contains("max_split_size_mb");
    say(
        hint && report.verdict != Verdict::Fragmentation && report.allocator == Allocator::Device,
        "The message's hint at fragmentation is printed each time. Here it does not apply",
    );
    say(
        context.contains("causedbymemoryfragmentation") && report.verdict != Verdict::Fragmentation,
        "\"If this is caused by memory fragmentation\" is printed each time, and says nothing of the cause",
    );
    say(
        context.contains("pytorch_alloc_conf=") && !context.contains("pytorch_cuda_alloc_conf="),
        "The hint's PYTORCH_ALLOC_CONF is ignored by some versions: PYTORCH_CUDA_ALLOC_CONF works with all of them",
    );
    say(
        !figures.others.is_empty() && figures.this_process.is_none(),
        "In a container the driver lists this process by another pid: one of the processes of the message may be it",
    );
    say(
        report.verdict == Verdict::HostMemory && context.contains("-9"),
        "Exit code -9 is no GPU error: somebody sent SIGKILL. The kernel's log says whether it was the OOM killer",
    );
    say(
        report.verdict == Verdict::PinnedMemory && context.contains("cudaerror:outofmemory"),
        "\"CUDA error: out of memory\" without sizes is not the card's: the same words stand for host memory that cannot be pinned",
    );
    say(
        context.contains("!handles_.at"),
        "This process is broken: every later request fails until it is started again",
    );
    notes
}
