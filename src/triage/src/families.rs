//! What other programs say when memory fails: a pattern for each, and what it means.
//!
//! Patterns match text in lower case without white space. Sources are the messages of the projects named, and reports of them.

mod engines;
mod frameworks;

use std::sync::LazyLock;

use gpumem_text::units::bytes as text;

use regex::{Captures, Regex};

use crate::diagnose::{LARGEST_DEVICE, diagnose};
use crate::pytorch::Figures;
use crate::text::{SIZE, bytes, pattern};
use crate::verdict::{Allocator, Verdict};

/// How much a match tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    /// The program goes on.
    Warning,
    /// It looks like a lack of memory, and is none.
    Other,
    /// Memory failed, for no reason that is given.
    General,
    /// The reason is given.
    Specific,
}

/// What was found at one place.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub strength: Strength,
    pub allocator: Allocator,
    pub verdict: Verdict,
    pub figures: Figures,
    pub why: String,
}

/// The text around a match.
pub(crate) struct Around<'a> {
    /// What precedes it.
    pub before: &'a str,
    /// The match and what follows.
    pub after: &'a str,
    /// The line of the match, as it was written.
    pub line: &'a str,
}

/// `None`: it is another kind of message after all.
type Judge = fn(&Captures<'_>, &Around<'_>) -> Option<Judged>;

/// A kind of message.
pub(crate) struct Family {
    pub pattern: Regex,
    meaning: Meaning,
}

enum Meaning {
    Fixed(Strength, Allocator, Verdict, &'static str),
    Computed(Judge),
}

impl Family {
    pub(crate) fn judge(&self, found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
        match self.meaning {
            Meaning::Fixed(strength, allocator, verdict, why) => Some(judged(strength, allocator, verdict, why)),
            Meaning::Computed(judge) => judge(found, around),
        }
    }
}

fn judged(strength: Strength, allocator: Allocator, verdict: Verdict, why: impl Into<String>) -> Judged {
    Judged {
        strength,
        allocator,
        verdict,
        figures: Figures::default(),
        why: why.into(),
    }
}

/// All kinds, the most telling first.
pub(crate) static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let fixed = FIXED.iter().map(|&(text, strength, allocator, verdict, why)| Family {
        pattern: pattern(text),
        meaning: Meaning::Fixed(strength, allocator, verdict, why),
    });
    let computed = COMPUTED.iter().map(|&(text, judge)| Family {
        pattern: pattern(&text.replace("SIZE", SIZE)),
        meaning: Meaning::Computed(judge),
    });
    computed.chain(fixed).collect()
});

use Allocator as A;
use Strength::{General, Other, Specific, Warning};
use Verdict as V;
use engines::{llama, tensorrt, vllm};
use frameworks::{
    asynchronous, bad_alloc, bfc, cudnn_handle, cupy, driver, hami, hbm, jax, julia, killed, memory_error, mps, onnx,
    onnx_arena, oom_killed, overflow, paddle, resource_exhausted, single_limit, tail, tensor, xid,
};

type Row = (&'static str, Strength, Allocator, Verdict, &'static str);

const NO_SIZES: &str = "the text says that GPU memory ran out, and no sizes";

#[rustfmt::skip]
const FIXED: &[Row] = &[
    // /dev/shm.
    (r"dataloaderworker\(pid\(?s?\)?\d+[^)]{0,40}\)(?:is|was)killedbysignal:buserror", Specific, A::SharedMemory, V::SharedMemory, "/dev/shm is full: a DataLoader worker was killed by a bus error"),
    (r"insufficientsharedmemory\(shm\)", Specific, A::SharedMemory, V::SharedMemory, "a worker could not write to /dev/shm"),
    (r"(?:nccl-shm|/dev/shm|shm_open|torch_\d+_\d+|psm_[0-9a-f]{4,}|sharedmemorysegment|posix_fallocate)[^{}]{0,200}?(?:nospaceleftondevice|enospc)", Specific, A::SharedMemory, V::SharedMemory, "a file in /dev/shm could not grow"),
    (r"(?:nospaceleftondevice|enospc)[^{}]{0,120}?(?:nccl-shm|/dev/shm|torch_\d+_\d+|psm_[0-9a-f]{4,}|sharedmemorysegment)", Specific, A::SharedMemory, V::SharedMemory, "a file in /dev/shm could not grow"),
    (r"unableto(?:writetofile|resizefile|mmap\d+bytesfromfile)<?/?(?:dev/shm/)?torch_[^{}]{0,120}?(?:nospaceleft|cannotallocatememory|\(28\)|\(12\))", Specific, A::SharedMemory, V::SharedMemory, "PyTorch failed to put a tensor into /dev/shm"),
    (r"(?:shm_open|/dev/shm|semlock|sem_open|sharedmemory\(|shared_memory\.py|/psm_[0-9a-f]{4,}|torch_\d+_\d+)[^{}]{0,200}?(?:permissiondenied|eacces)", Specific, A::SharedMemory, V::SharedMemoryRights, "this user has no permission to use /dev/shm"),
    (r"permissiondenied:?'?(?:/dev/shm|/psm_[0-9a-f]{4,}|/torch_\d+)", Specific, A::SharedMemory, V::SharedMemoryRights, "this user has no permission to use /dev/shm"),
    // Registration with network cards.
    (r"ibv_(?:reg_mr|create_cq|create_qp|alloc_mw|create_srq)\w*[^{}]{0,80}?(?:cannotallocatememory|enomem|outofmemory)", Specific, A::Registration, V::Memlock, "a network card's memory could not be locked"),
    (r"(?:failedtoregister|registrationof|registermemory|fi_mr_reg|memoryregistration)[^{}]{0,160}?(?:memlock|rlimit_memlock|cannotallocatememory|ulimit-l)", Specific, A::Registration, V::Memlock, "memory could not be registered with the network card"),
    (r"(?:rlimit_memlock|ulimit-l|memlock)[^{}]{0,80}?(?:toolow|toosmall|insufficient|exceeded|failed)", Specific, A::Registration, V::Memlock, "the limit of locked memory is too low"),
    // What is no lack of memory.
    (r"(?:nvlinksharp|nvlsmulticast|transport/nvls\.cc)[^{}]{0,200}?(?:error401|cudaerror\d*401|cudafailure401|presentstate|failure1\b|cudaerror1\b|invalidargument|notsupported|notinitialized|error:?\s*(?:800|801|802))", Other, A::None, V::NotMemory, "NVLink multicast could not be set up: the fabric manager or the switch is not ready"),
    (r"cuda(?:driver)?(?:error)?:?unknownerror|cuda_error_unknown|cudaerrorunknown", Other, A::None, V::NotMemory, "the driver reports an unknown error"),
    (r"(?:cudaerror:|cuda_error_|cudaerror)anillegalmemoryaccess|cuda_error_illegal_address|cudaerrorillegaladdress|cudaerror:device-sideasserttriggered", Other, A::None, V::NotMemory, "a kernel failed: an illegal memory access, or an assertion"),
    // The host.
    (r"invokedoom-killer|outofmemory:killed?process|outofmemory:killprocess|memorycgroupoutofmemory|oom-kill:constraint|oom_kill_process|oom_reaper:reaped|killedprocess\d+\([^)]{1,40}\),?(?:uid:?\d+,?)?total-vm|detected\d+oom[-_]?killevents?|oom[-_]killevent|killedbytheoom[-_]?killer|systemd-oomd[^{}]{0,80}?killed|killed\S{0,200}?duetomemory(?:pressure|used)|resultoom-kill|result'oom-kill'|out-of-memoryhandler", Specific, A::Host, V::HostMemory, "the kernel killed a process because the host's or the cgroup's memory was full"),
    (r"exit(?:s|ed)?withreturncode=-9|exitcode:?=?-9\b|signal9\(sigkill\)|sigkill\(9\)|signal:?9\b|diedwith<signals\.sigkill:9>|terminatedbysignal(?:9|sigkill)|dataloaderworker\(pid\(?s?\)?\d+[^)]{0,40}\)iskilledbysignal:killed|receivedsigkill", Specific, A::Host, V::HostMemory, "a process was killed by SIGKILL, which is what the kernel's OOM killer sends"),
    (r"ray\.exceptions\.outofmemoryerror|memoryonthenode\([^{}]{1,300}?exceedsthememoryusagethreshold|workerskilledduetothenoderunninglowonmemory|workerswerekilledduetothenoderunninglow|taskwaskilledduetothenoderunninglowonmemory", Specific, A::Host, V::HostMemory, "Ray killed a worker because the node's memory was nearly full"),
    (r"defaultcpuallocator:(?:can'?tallocatememory|notenoughmemory)|defaultcpuallocator\.?cpp?:?\d*\]?\.?data\.?[^{}]{0,80}?(?:notenoughmemory|can'?tallocate)|_arraymemoryerror:|unabletoallocate[\d.]+[kmgt]ibforanarraywithshape|modelrequiresmoresystemmemory|os(?:error)?:?\[errno12\]cannotallocatememory|mmap:cannotallocatememory|mmapfailed:cannotallocatememory", Specific, A::Host, V::HostMemory, "host memory could not be allocated"),
    // Pinned host memory.
    (r"could?notallocatepinnedhostmemory|failedtoalloc(?:ate)?\d+bytesonhost|failedtopin[^{}]{0,100}|(?:cudamallochost|cudahostalloc|cumemhostalloc|cumemallochost|cumemhostregister|cudahostregister|hiphostmalloc)(?:\(\w*\)|_v2)?[^{}]{0,120}?(?:fail|error|outofmemory|invalidargument|notpermitted)", Specific, A::PinnedHost, V::PinnedMemory, "host memory could not be pinned"),
    (r"allocator\((?:gpu_host_bfc|cuda_host_bfc|xla_gpu_host_bfc|gpu_host)\)ranoutofmemory", Specific, A::PinnedHost, V::PinnedMemory, "the framework's pool of pinned host memory ran out"),
    // Address space.
    (r"\[expandablesegmentva\]failedtoreserve|(?:cumemaddressreserve|addressreserv|virtualaddress(?:space|range)?)[^{}]{0,120}?(?:fail|outofmemory|out_of_memory|exhausted|couldnot|cannot|exceed)|failedtoreserve[^{}]{0,60}?(?:virtual|address)|couldnotreserve[^{}]{0,60}?(?:virtual|address)|(?:ulimit-v|rlimit_as)[^{}]{0,120}?(?:limit|exceed|toolow|fail)|(?:cumempoolcreate|mempoolcreate|memory_?pool\w*create)[^{}]{0,120}?out_?of_?memory|out_?of_?memory[^{}]{0,250}?cumempoolcreate|virtualmemorylimit|(?:hostva|addressspace|virtualaddress)[^{}]{0,80}?(?:fails|largestfreerange)", Specific, A::AddressSpace, V::AddressSpace, "virtual addresses could not be reserved: the card may have room"),
    // On the chip.
    (r"outofresources?:(?:sharedmemory|registers?|tensormemory|threads)|outofresources?:[^{}]{0,40}?hardwarelimit|usestoomuchshareddata\(|toomanyresourcesrequestedforlaunch|cuda_error_launch_out_of_resources|cudaerrorlaunchoutofresources|(?:sharedmemory|smem)(?:size)?[^{}]{0,60}?(?:limitexceeded|exceed(?:s|ed)?[^{}]{0,40}?(?:limit|max|available|maximum|capacity|opt-in))|requestedsharedmemory[^{}]{0,60}?exceed|ranoutofmemoryinmemoryspace(?:vmem|smem|scoped)|scopedvmem|exceed(?:s|ed)?(?:the)?(?:max(?:imum)?)?sharedmemory|exceedsavailableregisters", Specific, A::OnChip, V::OnChip, "a kernel's blocks need more shared memory or registers than a multiprocessor has"),
    // CPU and GPU with one memory.
    (r"nvmap_?mem\w*(?:alloc|handle)\w*[^{}]{0,100}?(?:fail|error)|nvmap[^{}]{0,60}?(?:outofmemory|error12|cannotallocate)|nvrm_gpu_?:?nvrmchannelsubmit[^{}]{0,20}?outofmemory|nvmapmemalloc\w*", Specific, A::Device, V::UnifiedMemory, "the memory that CPU and GPU share could not be allocated in one piece"),
    // The card.
    (r"uncorrectableecc|cuda_error_ecc_uncorrectable|ecc_uncorrectable|gpuhasfallenoffthebus|fallenoffthebus|rowremap(?:per|ping)?[^{}]{0,20}?fail", Specific, A::None, V::Hardware, "the GPU reports a hardware error"),
    // Serving engines.
    (r"errorinmemoryprofiling\.?initialfreememory", Specific, A::Device, V::NeighbourFreed, "free memory grew while the engine measured: another process gave memory back"),
    (r"noavailablememoryforthecacheblocks|(?:toserveatleastonerequest|maxseqlen)[^{}]{0,200}?kvcache(?:isneeded|memory)|kvcacheisneeded,?whichislargerthantheavailablekvcachememory|islargerthanthemaximumnumberoftokensthatcanbestoredinkvcache|notenoughmemory\.?pleasetrytoincrease--mem-fraction-static|pleasetrytoincrease--mem-fraction-static|nofreeblocks|can'?tallocatenewblocks|cannotallocatenewblocks|failedtoallocate(?:kv)?cacheblocks|insufficient(?:gpu)?(?:memory|blocks)for(?:the)?kvcache|kvcachepool[^{}]{0,60}?(?:notenough|toosmall|insufficient)|noroomforthekvcache|maximumnumberofblocks[^{}]{0,40}?(?:toosmall|notenough)|occurredwhenwarmingupsampler|notenoughmemory[^{}]{0,60}?kvcache|notenoughkvcache", Specific, A::Device, V::Budget, "what is left for the KV cache is too small for what was asked for"),
    (r"cumem_allocator\.cpp:\d+|cumemallocator[^{}]{0,80}?(?:wake_?up|outofmemory)", Specific, A::Device, V::WakeUp, "an engine woke from sleep, and something else had its memory"),
    (r"torch_memory_saver(?:\.cpp)?\]?[^{}]{0,200}?(?:cu_?mem_?create|result=2|outofmemory)", Specific, A::Device, V::WakeUp, "released memory could not be mapped again: something else uses it"),
    // Pools.
    (r"maximumpoolsizeexceeded", Specific, A::Device, V::PoolLimit, "RMM's pool may not grow, or could not grow in one piece"),
    // Preallocation.
    (r"failedtoget(?:the)?convolutionalgorithm\.?thisisprobablybecausecudnnfailedtoinitialize|dnnlibraryisnotfound|failedtocreatecublashandle|couldnotcreatecublashandle|failedtocreatecusolver\w*", Specific, A::Device, V::Preallocation, "a library failed to allocate memory beside what the framework preallocated"),
    // Warnings.
    (r"callerindicates(?:that)?thisisnotafailure", Warning, A::None, V::Warning, "the caller says that this is no failure"),
    (r"attemptingtofreeupmemory", Warning, A::None, V::Warning, "the program collects garbage, and goes on"),
    (r"retryingwithoutpipelineparallelism", Warning, A::None, V::Warning, "the program tries again with less"),
    (r"memoryallocationfailedwithoomondevice|expandable_segments:memorymappingfailedwithoom", Warning, A::None, V::Warning, "the allocator says that a request failed, and goes on: it frees its cache and tries again"),
    (r"skippingtactic|tactic[^{}]{0,80}?skipped|skippedtactic", Warning, A::None, V::Warning, "the builder skips what does not fit, and goes on"),
    (r"ofpinnedmemory:(?:invalidargument|outofmemory|cannotallocate|resourcealreadymapped)", Warning, A::PinnedHost, V::Warning, "host memory could not be pinned, and plain memory is used"),
    // Without sizes. The words may stand in prose and in source code: these are looked at twice.
    (r"nvml_success==rinternalassertfailed|nvmldevicegetmemoryinfo[^{}]{0,40}?internalassertfailed", General, A::Device, V::Incomplete, "PyTorch could not write its message, because NVML failed: it ran out of memory"),
    (r"!handles_\.at\(\w+\)internalassertfailed", General, A::Device, V::Incomplete, "mapping an expandable segment failed before: every later request of this process fails"),
    (r"cublas_status_alloc_failed|cusparse_status_alloc_failed|cusolver_status_alloc_failed|cufft_alloc_failed|cublas_status_not_initialized", General, A::Device, V::Incomplete, "cuBLAS or another library failed to allocate its workspace"),
    (r"cudnn_status_(?:alloc_failed|execution_failed|not_initialized|internal_error_device_allocation_failed)", General, A::Device, V::Incomplete, "cuDNN failed to allocate memory"),
    (r"unabletoallocate(?:cuda\d*|backend|rocm\d*|vulkan\d*)?buffer|failedtoallocate(?:cuda\d*|compute)?(?:compute)?buffers?|failedtoallocatebuffer", General, A::Device, V::Incomplete, "a buffer could not be allocated; cudaMalloc also fails when host memory is short"),
    (r"cudafailure2?:?'outofmemory'|cudafailure2\b", General, A::Device, V::Incomplete, "NCCL failed to allocate GPU memory"),
    (r"nv_err_no_memory", General, A::Device, V::Incomplete, "the driver failed to allocate memory; it does not say which kind"),
    (r"cuda_error_out_of_memory|cudaerrormemoryallocation|cudaerroroutofmemory|cudamalloc(?:async|managed)?failed:?outofmemory|cumem(?:alloc|create)\w*(?:\(\))?failed:?outofmemory|culinkcreate[^{}]{0,30}outofmemory|hiperroroutofmemory|hip_error_out_of_memory|out_of_device_memory|outofdevicememory|outofdevicememory|errordeviceoutofmemory|failedtoallocatedevicememory|cufuncsetattribute[^{}]{0,40}outofmemory", General, A::Device, V::Incomplete, NO_SIZES),
    (r"(?:cuda|hip|xpu|mpsbackend)outofmemory", General, A::Device, V::Incomplete, NO_SIZES),
    (r"cuda(?:runtime)?failedwitherror:?outofmemory", General, A::Device, V::Incomplete, NO_SIZES),
    (r"cuda(?:runtime)?errorin[^{}]{0,200}?:outofmemory|cudaruntime\(outofmemory\)|errorcode\d*:outofmemory|erroroutofmemoryatline", General, A::Device, V::Incomplete, NO_SIZES),
    (r"(?:cuda|hip|gpu|xpu|mps|device)(?:runtime|driver|backend)?(?:api)?(?:error|failure|failed)?(?:\d+)?[:('\x22]*(?:is|ran|runs|run)?outofmemory", General, A::Unknown, V::Incomplete, NO_SIZES),
    (r"outofmemoryerror|memoryallocation(?:failure|error)|failedtoallocate(?:gpu|device)?memory|std::bad_alloc:out_of_memory|out_of_memory:cuda|insufficientmemoryongpu|notenough(?:gpu|device|video|vram)memory|outofvram|outofgpumemory|ranoutof(?:gpu)?memory", General, A::Device, V::Incomplete, NO_SIZES),
    (r"(?:fatal|error|failed|exception|critical)[:(]?outofmemory", General, A::Unknown, V::Incomplete, NO_SIZES),
];

const COMPUTED: &[(&str, Judge)] = &[
    (
        r"(?:hami-?core|vgpu|allocator\.c:\d+)[^{}]{0,80}?(?:device\d*)?oom(\d+)/(\d+)",
        hami,
    ),
    (
        r"outofmemoryallocating([\d,]+)bytes\(allocatedsofar:([\d,]+)bytes(?:,limitsetto:([\d,]+)bytes)?\)",
        cupy,
    ),
    (
        r"allocator\((\w*bfc\w*|gpu_\d+\w*|\w+)\)ranoutofmemorytryingtoallocateSIZE(?:\(roundedto(\d+)\))?",
        bfc,
    ),
    (
        r"outofmemorywhiletryingtoallocateSIZE|attempting(?:to)?(?:re-?)?allocat\w+SIZE",
        jax,
    ),
    (r"oomwhenallocatingtensorwithshape\[([\d,]*)\]andtype(\w+)", tensor),
    (r"ranoutofmemoryinmemoryspacehbm[^{}]{0,80}?usedSIZEofSIZE", hbm),
    (
        r"freememoryondevice(?:cuda:\d+)?\(([\d.,]+)(?:[gm]ib)?/SIZE\)onstartupislessthandesired(?:gpu)?memoryutilization\(([\d.]+),SIZE\)",
        vllm,
    ),
    (
        r"allocatingSIZEondevice(\d+):(?:cudamalloc|hipmalloc|musamalloc)failed:outofmemory",
        llama,
    ),
    (
        r"requestedamountofgpumemory\((\d+)bytes\)couldnotbeallocated|outofmemory.{0,40}?requested(\d+)bytes",
        tensorrt,
    ),
    (
        r"cannotallocateSIZEmemoryongpu\d+,SIZEmemoryhasbeenallocatedandavailablememoryisonlySIZE",
        paddle,
    ),
    (r"availablememoryof(\d+)issmallerthanrequestedbytesof(\d+)", onnx),
    (r"failedtoallocatememoryforrequestedbuffer(?:of)?size(\d+)", onnx_arena),
    (
        r"(?:memoryerror:?)?(?:std::)?bad_alloc(:?out_of_memory(?:[^{}]{0,160}?failedtoallocateSIZE)?)?",
        bad_alloc,
    ),
    (r"memoryerror", memory_error),
    (r"killed", killed),
    (
        r"oomkilled|exit_?code[\x22':=]*137\b|exitedwithcode137|exitstatus137",
        oom_killed,
    ),
    (
        r"(?:failedtocreatecudnnhandle|couldnotcreatecudnnhandle|dnnlibraryinitializationfailed)",
        cudnn_handle,
    ),
    (
        r"outofgpumemorytryingtoallocateSIZE(?:effectivegpumemoryusage:[\d.]+%\(SIZE/SIZE\))?(?:memorypoolusage:SIZE\(SIZEreserved\)|cudaallocatorusage:SIZE\(cappedatSIZE\))?",
        julia,
    ),
    (r"failedtoallocateSIZE(?:\(\d+bytes\))?fromdevice:", driver),
    (r"resource_?exhausted", resource_exhausted),
    (
        r"allocationondevice\d*wouldexceedallowedmemory[^{}]{0,20}?currentlyallocated:SIZErequested:SIZEdevicelimit:SIZEfree\(accordingtocuda\):SIZE(?:pytorchlimit\(setbyuser-suppliedmemoryfraction\):SIZE)?",
        asynchronous,
    ),
    (
        r"mpsbackendoutofmemory\(mpsallocated:SIZE,otherallocations:SIZE,maxallowed:SIZE\)\.?(?:triedtoallocateSIZE)?",
        mps,
    ),
    (r"SIZEisallocatedbypytorch", tail),
    (
        r"requestedbuffersizeexceedsdevice(?:memoryallocation|buffersize|memory)limit|exceedsthemaximum(?:single)?allocation(?:size|limit)|singleallocationsizelimit",
        single_limit,
    ),
    (r"xid(?:\([^)]*\))?:?(?:pci:[0-9a-f:.]+\):)?(\d{1,3})\b", xid),
    (
        r"numberofelementsforaninternalarray|storagesizecalculationoverflowed",
        overflow,
    ),
];

fn size(found: &Captures<'_>, at: usize) -> Option<u64> {
    bytes(found.get(at)?.as_str(), found.get(at + 1)?.as_str())
}

fn count(found: &Captures<'_>, at: usize) -> Option<u64> {
    bytes(found.get(at)?.as_str(), "b")
}

/// Judges a device's memory by figures alone.
fn diagnosed(figures: Figures) -> Judged {
    let (verdict, why) = diagnose(&figures);
    of_device(verdict, why, figures)
}

/// Returns a verdict on a device's memory.
fn of_device(verdict: Verdict, why: impl Into<String>, figures: Figures) -> Judged {
    let strength = if verdict == V::Incomplete { General } else { Specific };
    Judged {
        figures,
        ..judged(strength, A::Device, verdict, why)
    }
}

/// Judges what has a request and no more.
fn by_request(requested: Option<u64>) -> Judged {
    let figures = Figures {
        requested,
        ..Figures::default()
    };
    match requested {
        Some(asked) if asked > LARGEST_DEVICE => diagnosed(figures),
        Some(asked) => {
            let why = format!(
                "{} were asked for; what the device had and who has the rest is not in the text",
                text(asked)
            );
            of_device(V::Incomplete, why, figures)
        }
        None => of_device(V::Incomplete, NO_SIZES, figures),
    }
}
