//! The questions and answers in words.

use gpumem_text::units::{bytes_to_pib, count};

use crate::protocol::{Measure, Step};

/// A question before an answer.
pub(super) struct Question {
    /// Name of the step with the answer.
    pub(super) id: &'static str,
    title: &'static str,
    /// `SIZE` stands for the size of the memory.
    detail: &'static str,
}

impl Question {
    /// Returns the step that asks. `slow_motion` is how much slower than modelled the answer will be shown, if it is.
    pub(super) fn step(&self, bytes: u64, slow_motion: Option<u64>) -> Step {
        let slow_motion = slow_motion.map_or_else(String::new, |times| {
            format!(" The map plays it {times} times slower than modelled.")
        });
        Step {
            id: format!("{}-question", self.id),
            title: format!("Guess: {}", self.title),
            detail: format!(
                "{} The next step has the answer.{slow_motion}",
                self.detail.replace("SIZE", &bytes_to_pib(bytes))
            ),
            ..Step::default()
        }
    }
}

/// The questions that every device answers, in the order of the topics.
pub(super) const QUESTIONS: [Question; 5] = [
    Question {
        id: "first-touch",
        title: "where is memory that nobody has touched?",
        detail: "cuMemAllocManaged returned SIZE at once. A kernel writes all of it for the first time. Does it run at the speed of the \
                 GPU's memory? And what if the CPU had written it before, or the program had prefetched it?",
    },
    Question {
        id: "ping-pong",
        title: "CPU and GPU write the same memory in turns. What moves?",
        detail: "SIZE are on the CPU. A kernel writes all of it, then the CPU writes a word of each page, three rounds of that. How many \
                 bytes move each way, and how often does the CPU fault for 2 MiB, which are 512 pages? Then they do it with a single page, \
                 twenty times.",
    },
    Question {
        id: "prefetch",
        title: "the same rounds with a prefetch before each turn. How much faster?",
        detail: "The program calls cuMemPrefetchAsync before each turn, to the side whose turn it is. Do fewer bytes move? Is it faster, \
                 and by how much?",
    },
    Question {
        id: "preferred-location",
        title: "the GPU only reads, over the bus, what stays at the CPU. Is that slower?",
        detail: "In each of three rounds the GPU reads SIZE and then the CPU writes it. Now the program advises that the memory prefers the \
                 CPU. What moves? And what if the GPU reads it eight times in each round?",
    },
    Question {
        id: "read-mostly",
        title: "both sides only read. Does anything have to move?",
        detail: "In each of three rounds the GPU reads SIZE, then the CPU does. Nobody writes. How many bytes move without advice, and how \
                 many with the advice read-mostly?",
    },
];

/// The question that only the simulated device answers.
pub(super) const DOES_NOT_FIT: Question = Question {
    id: "does-not-fit",
    title: "a fifth of the working set does not fit. How much slower is it?",
    detail: "A kernel goes over SIZE four times, in order, on a GPU that has room for four fifths of it. Managed memory allows that: the rest \
             is moved out and in. A fifth slower, twice as slow, or more?",
};

/// Returns the step with the answer. `look` is what the dashboard shows of a real process at that point.
pub(super) fn answer(simulated: bool, id: &str, title: String, why: &str, look: &str, measures: Vec<Measure>) -> Step {
    let numbers: Vec<String> = measures.iter().map(words).collect();
    let verb = if simulated { "Modelled" } else { "Measured" };
    let look = match simulated || look.is_empty() {
        true => String::new(),
        false => format!(
            " A process does not know its own faults and bytes. The dashboard sees them from outside; key 5 shows: {look}"
        ),
    };
    Step {
        id: id.to_owned(),
        title,
        detail: format!("{verb}: {}. Why: {why}{look}", numbers.join("; ")),
        measures,
        ..Step::default()
    }
}

/// Returns the last answer on a GPU.
pub(super) fn not_on_a_gpu() -> Step {
    Step {
        id: "does-not-fit".to_owned(),
        title: "Real hardware is never asked for more than it has".to_owned(),
        detail: "A GPU that is short of memory for managed pages evicts and fetches them without end, and everybody who uses it waits. So \
                 this demo takes at most half of what is free. The model shows it: gpumem-tui demo unified --device sim."
            .to_owned(),
        ..Step::default()
    }
}

/// Returns a measurement in words.
fn words(measure: &Measure) -> String {
    let rate = measure.bytes as f64 / measure.ns.max(1) as f64;
    let mut parts = vec![match rate {
        // A few pages have no rate worth a figure.
        ..0.05 => format!("{:.1} ms", measure.ns as f64 / 1e6),
        _ => format!("{:.1} ms ({rate:.1} GB/s)", measure.ns as f64 / 1e6),
    }];
    let faults = [(measure.cpu_faults, "CPU faults"), (measure.gpu_faults, "GPU faults")];
    let known: Vec<_> = faults.into_iter().filter_map(|(n, name)| Some((n?, name))).collect();
    if !known.is_empty() && known.iter().all(|(n, _)| *n == 0) {
        parts.push("no faults".to_owned());
    }
    parts.extend(
        known
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, name)| format!("{} {name}", count(*n))),
    );
    for (bytes, way) in [(measure.to_gpu, "to the GPU"), (measure.to_cpu, "to the CPU")] {
        if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
            parts.push(format!("{} {way}", bytes_to_pib(bytes)));
        }
    }
    if let Some(evicted) = measure.evicted.filter(|bytes| *bytes > 0) {
        parts.push(format!("{} of that evicted", bytes_to_pib(evicted)));
    }
    format!("{}: {}", measure.name, parts.join(", "))
}

/// Says how many times faster or slower the second of two measures is.
pub(super) fn ratio(before: &Measure, after: &Measure) -> String {
    let (before, after) = (before.ns.max(1) as f64, after.ns.max(1) as f64);
    match before >= after {
        true => format!("{:.1} times faster", before / after),
        false => format!("{:.1} times slower", after / before),
    }
}
