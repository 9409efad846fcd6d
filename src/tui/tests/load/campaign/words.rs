//! A channel file as 64-bit words. This follows the format's documentation and does not use the crate that reads it: a judge of the reader
//! must not share its mistakes.

/// Words of the header that lead to the table of contents.
const TOC: usize = 4;
const TOC_ENTRIES: usize = 5;
const TOC_ENTRY: usize = 4;
/// First word of the job label in the header: its length, and then its text.
const JOB: usize = 28;
const JOB_WORDS: usize = 9;

/// Sections by their numbers in the format, with the names that mutants call them by.
pub(crate) const SECTIONS: [(u64, &str); 11] = [
    (1, "live"),
    (2, "devices"),
    (3, "stats"),
    (4, "segments"),
    (5, "blocks"),
    (6, "generations"),
    (7, "events"),
    (8, "strings"),
    (10, "lanes"),
    (11, "lane_generations"),
    (12, "lane_events"),
];

/// The position of a section in the file, all in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) start: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

impl Section {
    /// Returns the first word of a record.
    pub(crate) fn record(&self, record: usize) -> usize {
        self.start + record * self.stride
    }
}

/// Returns word number `n`, or 0 if the file ends before it.
pub(crate) fn word(bytes: &[u8], n: usize) -> u64 {
    let at = n.saturating_mul(8);
    let word = bytes.get(at..at.saturating_add(8));
    word.map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()))
}

/// Sets word number `n`, if the file has it.
pub(crate) fn set_word(bytes: &mut [u8], n: usize, value: u64) {
    let at = n.saturating_mul(8);
    if let Some(word) = bytes.get_mut(at..at.saturating_add(8)) {
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Returns the words of the table of contents, from the first entry to the end of the last.
pub(crate) fn contents(bytes: &[u8]) -> std::ops::Range<usize> {
    let start = word(bytes, TOC) as usize / 8;
    start..start.saturating_add((word(bytes, TOC_ENTRIES) as usize).saturating_mul(TOC_ENTRY))
}

/// Returns the section with this name, if the file has all of it.
pub(crate) fn section(bytes: &[u8], name: &str) -> Option<Section> {
    let (kind, _) = SECTIONS.iter().find(|(_, known)| *known == name)?;
    let toc = contents(bytes);
    if toc.end > bytes.len() / 8 {
        return None;
    }
    let at = toc.step_by(TOC_ENTRY).find(|at| word(bytes, *at) == *kind)?;
    let packed = word(bytes, at + 2);
    let section = Section {
        start: usize::try_from(word(bytes, at + 1)).ok()? / 8,
        stride: (packed & 0xffff_ffff) as usize / 8,
        count: (packed >> 32) as usize,
    };
    let end = section.start.checked_add(section.stride.checked_mul(section.count)?)?;
    (end <= bytes.len() / 8).then_some(section)
}

/// Gives a channel a job label by which its rows are found again.
pub(crate) fn set_job(bytes: &mut [u8], job: &str) {
    let mut text = [0; 8 * JOB_WORDS];
    text[..job.len()].copy_from_slice(job.as_bytes());
    set_word(bytes, JOB, job.len() as u64);
    for (n, chunk) in text.chunks_exact(8).enumerate() {
        set_word(bytes, JOB + 1 + n, u64::from_le_bytes(chunk.try_into().unwrap()));
    }
}

/// Returns the bytes of the header's job label.
pub(crate) fn job(bytes: &[u8]) -> Vec<u8> {
    let text = bytes.get(8 * (JOB + 1)..8 * (JOB + 1 + JOB_WORDS)).unwrap_or_default();
    let length = (word(bytes, JOB) as usize).min(text.len());
    text[..length].to_vec()
}
