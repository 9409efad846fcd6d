//! The files that a process has mapped, and where their functions are in its memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::Root;

/// Most bytes of a process's list of mappings.
const MOST_MAPS: u64 = 16 << 20;
/// Most bytes of a program or library that is looked into. A Python without shared library has 30 MiB.
const MOST_FILE: u64 = 256 << 20;
/// Bytes at the start of a file that are compared with what is mapped.
const HEAD: usize = 1024;

/// A file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    /// Its path in the process's mount namespace.
    pub(super) path: String,
    /// Where its first byte is mapped.
    pub(super) start: u64,
}

/// Returns the files whose first byte a process has mapped, each once.
pub(super) fn mapped(root: &Root, pid: u32) -> io::Result<Vec<Mapped>> {
    let text = root.read(format!("proc/{pid}/maps"), MOST_MAPS)?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// Parses `/proc/PID/maps`: `START-END PERMISSIONS OFFSET DEVICE INODE PATH`.
fn parse(text: &str) -> Vec<Mapped> {
    let mut found: Vec<Mapped> = Vec::new();
    for line in text.lines() {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let (Some(range), Some(_), Some(offset), Some(_), Some(_)) = (word(), word(), word(), word(), word()) else {
            continue;
        };
        let path = rest.trim_start();
        let start = range
            .split_once('-')
            .and_then(|(start, _)| u64::from_str_radix(start, 16).ok());
        if let Some(start) = start.filter(|_| path.starts_with('/') && u64::from_str_radix(offset, 16) == Ok(0))
            && !found.iter().any(|known| known.path == path)
        {
            found.push(Mapped {
                path: path.to_owned(),
                start,
            });
        }
    }
    found
}

/// A program or library of a process.
pub(super) struct Library {
    bytes: Vec<u8>,
    /// What is added to its own addresses.
    bias: u64,
}

impl Library {
    /// Reads a mapped file, as the process sees it.
    ///
    /// # Errors
    /// A sentence: it cannot be read, is another file now than the mapped one, or is for another processor.
    pub(super) fn open(root: &Root, pid: u32, mapped: &Mapped, memory: &File) -> Result<Library, String> {
        let bytes = root
            .read(format!("proc/{pid}/root{}", mapped.path), MOST_FILE)
            .map_err(|error| format!("its file {} cannot be read: {error}", mapped.path))?;
        let mut head = [0; HEAD];
        let read = memory.read_exact_at(&mut head, mapped.start);
        if read.is_err() || bytes.get(..HEAD) != Some(&head[..]) {
            return Err(format!("its file {} was replaced since it started", mapped.path));
        }
        let elf = parse_elf(&bytes).ok_or_else(|| format!("its file {} is not for x86-64", mapped.path))?;
        let headers = elf.elf_program_headers();
        let first = headers.iter().find(|header| {
            header.p_type(Endianness::Little) == object::elf::PT_LOAD && header.p_offset(Endianness::Little) == 0
        });
        let own = first.map_or(0, |header| header.p_vaddr(Endianness::Little));
        let bias = mapped.start.wrapping_sub(own);
        Ok(Library { bytes, bias })
    }

    /// Returns the address of a function or variable in the process.
    pub(super) fn address(&self, name: &str) -> Option<u64> {
        let elf = parse_elf(&self.bytes)?;
        let defined =
            |symbol: &object::read::elf::ElfSymbol64<'_, '_>| symbol.is_definition() && symbol.name() == Ok(name);
        let symbol = elf.dynamic_symbols().find(defined)?;
        Some(symbol.address().wrapping_add(self.bias))
    }

    /// Returns the address of a `syscall` instruction in the process.
    pub(super) fn system_call(&self) -> Option<u64> {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let elf = parse_elf(&self.bytes)?;
        let text = elf.section_by_name(".text")?;
        let at = text.data().ok()?.windows(2).position(|bytes| bytes == SYSCALL)?;
        Some(text.address().wrapping_add(at as u64).wrapping_add(self.bias))
    }
}

fn parse_elf(bytes: &[u8]) -> Option<ElfFile64<'_>> {
    let elf = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let fits = elf.architecture() == object::Architecture::X86_64 && elf.is_little_endian();
    fits.then_some(elf)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn mappings_of_files_are_found_by_their_first_byte() {
        let text = "\
55d0c0000000-55d0c0001000 r--p 00000000 fd:01 131  /usr/bin/python3.12
55d0c0001000-55d0c0002000 r-xp 00001000 fd:01 131  /usr/bin/python3.12
7f0000000000-7f0000001000 r--p 00000000 00:2f 9    /opt/my models/libtorch_cuda.so
7f0000009000-7f000000a000 r--p 00000000 fd:01 7    /usr/lib/libc.so.6 (deleted)
7f0000010000-7f0000011000 rw-p 00000000 00:00 0
7f0000020000-7f0000021000 rw-p 00000000 00:00 0    [heap]
zz-7f0000021000 r--p 00000000 fd:01 7 /bad
7f0000030000-7f0000031000 r--p 00000000 fd:01";
        let found: Vec<_> = parse(text).into_iter().map(|m| (m.path, m.start)).collect();
        let expected = [
            ("/usr/bin/python3.12", 0x55d0_c000_0000),
            ("/opt/my models/libtorch_cuda.so", 0x7f00_0000_0000),
            ("/usr/lib/libc.so.6 (deleted)", 0x7f00_0000_9000),
        ];
        assert_eq!(found, expected.map(|(path, start)| (path.to_owned(), start)));
    }

    /// What a container's root has is its own business: a named pipe in the place of a library would be waited for.
    #[test]
    fn file_that_is_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("proc/1/root/libpython3.12.so");
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &library, rustix::fs::Mode::RUSR).unwrap();
        let mapped = Mapped {
            path: "/libpython3.12.so".into(),
            start: 0,
        };
        let memory = File::open("/dev/zero").unwrap();
        let opened = Library::open(&Root::at(folder.path()), 1, &mapped, &memory);
        assert_eq!(
            opened.err().as_deref(),
            Some("its file /libpython3.12.so was replaced since it started")
        );
    }
}
