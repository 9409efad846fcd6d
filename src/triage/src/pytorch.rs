//! The figures of PyTorch's message, in each of its shapes since version 1.0.
//!
//! | versions | shape after `CUDA out of memory. Tried to allocate T` (or HIP, XPU) |
//! |---|---|
//! | 1.0 to 1.3 | ` (GPU i; C total capacity; A already allocated; F free; U cached)` |
//! | 1.4 to 2.0 | ` (GPU i; C total capacity; A already allocated; F free; [M allowed; ]R reserved in total by PyTorch)` |
//! | 2.1 | `. GPU i has a total capacty of C of which F is free. [Process N has X memory in use. ]... [Including non-PyTorch memory, this process has X memory in use. ][M allowed; ]Of the allocated memory A is allocated by PyTorch, and U is reserved by PyTorch but unallocated.` |
//! | from 2.2 on | the same with `capacity` |
//! | from 2.4 on | `A is allocated by PyTorch, with P allocated in private pools (e.g., CUDA Graphs), and U ...` |
//! | from 2.12 on | a sentence before it if the fraction of the process would be exceeded |
//!
//! Source: the strings of the libraries of PyTorch 1.10 to 2.15, and messages recorded with 2.11.

use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;

use crate::text::{SIZE, bytes, pattern};

/// A message is read up to this many characters without white space: 40 processes fit.
const MESSAGE_MAX: usize = 6000;
/// What stands for no limit: `17179869184.00 GiB`.
const NO_LIMIT: u64 = 1 << 60;

/// What a message says, in bytes. `None`: it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// The device's memory, or what a pool may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What of it nobody had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// What the process's allocator had given to its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    /// What the allocator kept, and had not given to its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unallocated: Option<u64>,
    /// What of `allocated` is in private pools, such as those of CUDA graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_pools: Option<u64>,
    /// What the process may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
    /// What the driver counts for this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub this_process: Option<u64>,
    /// What the driver counts for other processes, by pid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<(u32, u64)>,
    /// The device's number, as the program counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
}

/// A message of PyTorch.
#[derive(Debug)]
pub(crate) struct Message {
    pub figures: Figures,
    /// It says that the process's fraction is the reason.
    pub is_rejected: bool,
    /// It ends before all of its figures.
    pub is_cut: bool,
    /// How long it is, behind [`BEGIN`].
    pub length: usize,
}

/// Where a message begins.
pub(crate) const BEGIN: &str = r"(?:cuda|hip|xpu|musa|npu|privateuseone)outofmemory[.:]?(?:allocationon\w*[.,])?[^'\x22{}]{0,120}?tri(?:ed|es)toallocate";

static REQUEST: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("^{SIZE}")));
static CURRENT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"^\.?gpu(\d+)?hasatotalcapac(?:it|t)yof{SIZE}(?:ofwhich{SIZE}isfree)?"
    ))
});
static OLD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"^\.?\(gpu(\d+);{SIZE}totalcapacity;{SIZE}alreadyallocated;{SIZE}free;(?:{SIZE}allowed;)?(?:{SIZE}(cached|reservedintotal))?"
    ))
});
static XPU: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"^\.?\(?(?:gpu|xpu)(\d+)?[;:]?{SIZE}totalcapacity")));
static OTHER: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"process(\d+)has{SIZE}memoryinuse")));
static THIS: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"thisprocesshas{SIZE}memoryinuse")));
static ALLOWED: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"{SIZE}allowed[;.]")));
static ALLOCATED: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!(r"oftheallocatedmemory{SIZE}isallocatedbypytorch")));
static POOLS: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"with{SIZE}allocatedinprivatepools")));
static UNALLOCATED: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"{SIZE}isreservedbypytorchbutunallocated")));

static LAST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"isreservedbypytorchbutunallocated|memoryinuse|isfree|reservedintotalbypytorch\)|cached\)")
});

impl Message {
    /// Reads what follows [`BEGIN`].
    pub(crate) fn read(after: &str) -> Option<Message> {
        let mut end = after.len().min(MESSAGE_MAX);
        while !after.is_char_boundary(end) {
            end -= 1;
        }
        let after = &after[..end];
        // The next rank's message is another one.
        let after = after
            .find("outofmemory.triedtoallocate")
            .map_or(after, |at| &after[..at]);
        let request = REQUEST.captures(after)?;
        let size = |found: &regex::Captures<'_>, at: usize| bytes(found.get(at)?.as_str(), found.get(at + 1)?.as_str());
        let mut figures = Figures {
            requested: size(&request, 1),
            ..Figures::default()
        };
        let rest = &after[request.get(0).map_or(0, |all| all.end())..];
        let mut cached = None;
        if let Some(found) = CURRENT.captures(rest) {
            figures.device = found.get(1).and_then(|number| number.as_str().parse().ok());
            figures.total = size(&found, 2);
            figures.free = size(&found, 4);
        } else if let Some(found) = OLD.captures(rest) {
            figures.device = found.get(1).and_then(|number| number.as_str().parse().ok());
            figures.total = size(&found, 2);
            figures.allocated = size(&found, 4);
            figures.free = size(&found, 6);
            figures.allowed = size(&found, 8);
            cached = size(&found, 10).zip(found.get(12).map(|word| word.as_str()));
        } else if let Some(found) = XPU.captures(rest) {
            figures.total = size(&found, 2);
        }
        // Up to 1.3 what was cached did not include what was allocated.
        figures.unallocated = match cached {
            Some((cached, "cached")) => Some(cached),
            Some((reserved, _)) => Some(reserved.saturating_sub(figures.allocated.unwrap_or(0))),
            None => None,
        };
        let first = |pattern: &Regex| pattern.captures(rest).and_then(|found| size(&found, 1));
        // Under WSL the driver has no figures of processes, and says 2^64.
        let fits = |bytes: &u64| figures.total.is_none_or(|total| *bytes <= total.saturating_mul(2));
        figures.this_process = first(&THIS).filter(fits);
        figures.allowed = figures
            .allowed
            .or_else(|| first(&ALLOWED))
            .filter(|allowed| *allowed < NO_LIMIT);
        figures.allocated = figures.allocated.or_else(|| first(&ALLOCATED));
        figures.unallocated = figures.unallocated.or_else(|| first(&UNALLOCATED));
        figures.private_pools = first(&POOLS);
        for found in OTHER.captures_iter(rest) {
            if let (Ok(pid), Some(bytes)) = (found[1].parse(), size(&found, 2).filter(fits)) {
                figures.others.push((pid, bytes));
            }
        }
        Some(Message {
            is_rejected: rest.contains("preemptivelyrejected") || rest.contains("per_process_memory_fractionlimit"),
            is_cut: figures.free.is_none() || figures.unallocated.is_none(),
            figures: figures.with_own_process(),
            length: LAST.find_iter(after).last().map_or(0, |last| last.end()),
        })
    }
}

impl Figures {
    /// In a container the driver knows this process by another pid, and it is listed as another one. It is known by its size: that of what
    /// PyTorch has, and a context.
    fn with_own_process(mut self) -> Figures {
        let (Some(allocated), Some(unallocated)) = (self.allocated, self.unallocated) else {
            return self;
        };
        let own = allocated.saturating_add(unallocated);
        if self.this_process.is_some() || own < 256 << 20 {
            return self;
        }
        let fits = |bytes: u64| bytes >= own && bytes - own < (1 << 30) + own / 20;
        let mut fitting = self.others.iter().enumerate().filter(|(_, (_, bytes))| fits(*bytes));
        if let (Some((at, _)), None) = (fitting.next(), fitting.next()) {
            self.this_process = Some(self.others.remove(at).1);
        }
        self
    }
}
