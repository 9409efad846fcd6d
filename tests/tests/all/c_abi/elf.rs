//! What a shared object says of itself: 64-bit, little-endian ELF.

use std::path::Path;

const SECTION_DYNAMIC: u32 = 6;
const SECTION_SYMBOLS: u32 = 11;
const NEEDED: u64 = 1;
const SONAME: u64 = 14;

pub(crate) struct Elf(Vec<u8>);

struct Section {
    kind: u32,
    link: usize,
    offset: usize,
    size: usize,
}

impl Elf {
    pub(crate) fn read(path: &Path) -> Elf {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(&bytes[..6], b"\x7fELF\x02\x01");
        Elf(bytes)
    }

    fn number(&self, at: usize, bytes: usize) -> u64 {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&self.0[at..at + bytes]);
        u64::from_le_bytes(word)
    }

    fn section(&self, index: usize) -> Section {
        let at = self.number(0x28, 8) as usize + index * self.number(0x3a, 2) as usize;
        Section {
            kind: self.number(at + 4, 4) as u32,
            link: self.number(at + 0x28, 4) as usize,
            offset: self.number(at + 0x18, 8) as usize,
            size: self.number(at + 0x20, 8) as usize,
        }
    }

    /// Offsets of the entries of the one section of a kind, and where its strings begin.
    fn entries(&self, kind: u32, size: usize) -> (impl Iterator<Item = usize>, usize) {
        let sections = self.number(0x3c, 2) as usize;
        let found = (0..sections)
            .map(|index| self.section(index))
            .find(|section| section.kind == kind);
        let found = found.unwrap();
        let strings = self.section(found.link).offset;
        ((found.offset..found.offset + found.size).step_by(size), strings)
    }

    fn string(&self, at: usize) -> String {
        let text = self.0[at..].split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    }

    /// Names of the symbols that others can use.
    pub(crate) fn exported(&self) -> Vec<String> {
        let (symbols, strings) = self.entries(SECTION_SYMBOLS, 24);
        let defined = symbols.filter(|at| self.number(at + 6, 2) != 0);
        defined
            .map(|at| self.string(strings + self.number(at, 4) as usize))
            .collect()
    }

    /// Names of the libraries it cannot be loaded without.
    pub(crate) fn needed(&self) -> Vec<String> {
        self.names(NEEDED)
    }

    /// What programs that were linked to it load it by.
    pub(crate) fn soname(&self) -> Option<String> {
        self.names(SONAME).pop()
    }

    fn names(&self, kind: u64) -> Vec<String> {
        let (entries, strings) = self.entries(SECTION_DYNAMIC, 16);
        let of_kind = entries.filter(|at| self.number(*at, 8) == kind);
        of_kind
            .map(|at| self.string(strings + self.number(at + 8, 8) as usize))
            .collect()
    }
}
