//! From return addresses to functions, files and lines.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use gpumem_text::clean;

use super::demangle::{demangled, is_cpp};
use super::named::{is_named, named};
use super::table::Stack;
use super::unwind::own;
use crate::lock::Shared;

/// Who looks names up. The `backtrace` crate has a lock for that, but waits for it without end, as the unwinder's would be.
static NAMES: Shared<()> = Shared::new(());

/// A call: where in the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StackFrame {
    /// The function; where nothing of the program names it, its library and the place in it (`libtorch.so+0x1f00`).
    pub name: String,
    /// Its source file, if the program was built with that.
    pub file: Option<String>,
    /// The line in that file, if the program was built with that.
    pub line: Option<u32>,
    /// Whether it is a function of C++.
    pub(crate) cpp: bool,
}

impl StackFrame {
    /// One without a file.
    pub(crate) fn bare(name: String) -> StackFrame {
        StackFrame {
            name,
            file: None,
            line: None,
            cpp: false,
        }
    }

    /// Whether it is of the library of Rust or of C++.
    pub(crate) fn is_library(&self) -> bool {
        let name = self.name.trim_start_matches('<');
        let paths: &[&str] = if self.cpp {
            &["std::"]
        } else {
            &["core::", "std::", "alloc::", "__rust_"]
        };
        let named = paths.iter().any(|path| name.starts_with(path));
        named || self.file.as_ref().is_some_and(|file| file.starts_with("/rustc/"))
    }
}

impl fmt::Display for StackFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As the program's files have them, which may be anything.
        f.write_str(&clean(&self.name))?;
        match (self.file.as_deref().map(clean), self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            (Some(file), None) => write!(f, " ({file})"),
            _ => Ok(()),
        }
    }
}

/// Names that were looked up, so that each address is only once.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    by_address: HashMap<u64, Vec<StackFrame>>,
    by_stack: HashMap<Stack, Arc<[StackFrame]>>,
    maps: Option<Vec<u8>>,
    /// The stack of the thread that looks.
    stack: Option<Range<u64>>,
}

impl Symbols {
    pub(crate) fn new() -> Symbols {
        Symbols::default()
    }

    /// The frames of a stack, innermost first, from the program's call of the allocator on.
    pub(crate) fn frames(&mut self, stack: Stack) -> Arc<[StackFrame]> {
        if let Some(known) = self.by_stack.get(&stack) {
            return Arc::clone(known);
        }
        let mut frames = self.all_frames(stack);
        let begin = match stack.addresses().first() {
            Some(number) if is_named(*number) => 0,
            _ => begin(&frames),
        };
        let frames: Arc<[StackFrame]> = frames.split_off(begin).into();
        self.by_stack.insert(stack, Arc::clone(&frames));
        frames
    }

    /// The same with the allocator's own.
    pub(crate) fn all_frames(&mut self, stack: Stack) -> Vec<StackFrame> {
        let mut frames = Vec::new();
        for address in stack.addresses().iter() {
            frames.extend_from_slice(self.at(*address));
        }
        frames
    }

    /// The calls at a return address: more than one where functions were inlined.
    fn at(&mut self, address: u64) -> &[StackFrame] {
        let (maps, stack) = (&mut self.maps, &mut self.stack);
        self.by_address.entry(address).or_insert_with(|| {
            if let Some(frame) = named(address) {
                return vec![frame];
            }
            let mut found = Vec::new();
            let name = |symbol: &backtrace::Symbol| {
                if let Some(name) = symbol.name() {
                    // `{:#}` leaves the compiler's hash out.
                    found.push(StackFrame {
                        name: format!("{name:#}"),
                        file: symbol.filename().map(|file| file.display().to_string()),
                        line: symbol.lineno(),
                        cpp: false,
                    });
                }
            };
            if let Some(_alone) = NAMES.lock() {
                backtrace::resolve(address as *mut c_void, name);
            }
            // Others may look up names meanwhile.
            for frame in found.iter_mut().filter(|frame| is_cpp(&frame.name)) {
                frame.cpp = true;
                let stack = stack.get_or_insert_with(|| own::own().unwrap_or_default());
                frame.name = demangled(&frame.name, own::left(stack));
            }
            if found.is_empty() {
                let maps = maps.get_or_insert_with(|| std::fs::read("/proc/self/maps").unwrap_or_default());
                found.push(StackFrame::bare(place(maps, address)));
            }
            found
        })
    }
}

impl Drop for Symbols {
    fn drop(&mut self) {
        // What was read of the program's files may be large, and is hardly needed again.
        if let Some(_alone) = NAMES.lock() {
            backtrace::clear_symbol_cache();
        }
    }
}

/// How a place in the library for C is told where that was stripped, as packages are.
const STRIPPED: &str = "libgpumem_alloc.so+";

/// Where the program's frames begin: nobody looks for a leak in the unwinder, the allocator, or what of
/// Rust's library lies between.
fn begin(frames: &[StackFrame]) -> usize {
    let name = |frame: &StackFrame| frame.name.trim_start_matches('<').to_owned();
    let drops = ["core::ptr::drop", "core::mem::drop", "drop_in_place<", "drop<"];
    let ours = |frame: &StackFrame| {
        let name = name(frame);
        // Functions that were inlined may have a name without its path; those for C have no path.
        name.starts_with("gpumem_alloc::")
            || name.starts_with("backtrace::")
            || name.starts_with("gpumem_") && !name.contains("::")
            || name.starts_with(STRIPPED)
            || frame.is_library() && drops.iter().any(|drop| name.starts_with(drop))
            || frame
                .file
                .as_ref()
                .is_some_and(|file| file.contains(our_folder()) || file.contains("/backtrace-"))
    };
    let first = frames
        .iter()
        .take_while(|frame| ours(frame) || frame.is_library())
        .count();
    frames[..first].iter().rposition(ours).map_or(0, |last| last + 1)
}

/// The folder of this crate's sources, as debug information names it.
fn our_folder() -> &'static str {
    file!().trim_end_matches("stack/symbols.rs")
}

/// The file that is mapped at an address and the place in it, from the text of `/proc/self/maps`. Names of files are any bytes.
fn place(maps: &[u8], address: u64) -> String {
    let mut lines = maps.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
    let found = lines.find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        if !(start..end).contains(&address) {
            return None;
        }
        let offset = number(fields.nth(1)?)?;
        // Device and inode lie between, and have none of these; the name may have spaces.
        let path = line[line.find(['/', '['])?..].trim_end_matches(" (deleted)");
        let file = path.rsplit('/').next()?;
        Some(format!("{file}+{:#x}", (address - start).checked_add(offset)?))
    });
    found.unwrap_or_else(|| format!("{address:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_begins_where_the_program_calls() {
        let frame = |name: &str, file: &str| StackFrame {
            name: name.to_owned(),
            file: (!file.is_empty()).then(|| file.to_owned()),
            line: None,
            cpp: false,
        };
        let home = format!("/home/me/{}home.rs", our_folder());
        let inner = [
            frame("core::result::Result<T,E>::map", "/rustc/1/library/core/src/result.rs"),
            frame(
                "try_with<gpumem_alloc::stack::Memo>",
                "/rustc/1/library/std/src/thread/local.rs",
            ),
            frame("enter_recorded<u8>", &home),
            frame("<gpumem_alloc::buffer::Buffer<T> as core::ops::drop::Drop>::drop", ""),
            frame(
                "core::ptr::drop_in_place<alloc::vec::Vec<gpumem_alloc::buffer::Buffer<u8>>>",
                "",
            ),
            frame("drop_in_place<app::Batch>", "/rustc/1/library/core/src/ptr/mod.rs"),
            frame("core::mem::drop", ""),
        ];
        let outer = [
            frame("train<gpumem_alloc::Allocator>", "/home/me/src/train.rs"),
            frame("gpumem_demo::run", ""),
            frame("core::ops::function::FnOnce::call_once", ""),
        ];
        let whole = [&inner[..], &outer[..]].concat();
        assert_eq!(begin(&whole), inner.len());
        assert_eq!(begin(&outer), 0);
        assert_eq!(begin(&outer[2..]), 0, "of the library alone nothing is left out");
        assert_eq!(begin(&[frame("gpumem_malloc", ""), frame("main", "")]), 1);
        let through = [
            "gpumem_alloc::memory::take",
            "__rust_try",
            "gpumem_alloc",
            "leaky",
            "main",
        ];
        assert_eq!(begin(&through.map(|name| frame(name, ""))), 3);
        let stripped = [
            "libgpumem_alloc.so+0x98ef6",
            "gpumem_torch_alloc",
            "at::empty",
            "libtorch.so+0x1f00",
        ];
        assert_eq!(begin(&stripped.map(|name| frame(name, ""))), 2);
        assert_eq!(begin(&[]), 0);
    }

    #[test]
    fn what_a_terminal_would_heed_is_not_shown() {
        let frame = StackFrame {
            name: "a\x1b[2Jname".to_owned(),
            file: Some("a\rfile.c".to_owned()),
            line: Some(3),
            cpp: false,
        };
        let shown = frame.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.contains("name") && shown.ends_with("file.c:3)"), "{shown:?}");
    }

    #[test]
    fn what_has_no_name_is_told_by_its_file() {
        let maps = b"\
7effff000000-7effff001000 r--s 00000000 fe:00 124    /data/donn\xe9es
7f0000000000-7f0000001000 r--p 00000000 fe:00 123    /opt/lib/libtorch.so
7f0000001000-7f0000009000 r-xp 00001000 fe:00 123    /opt/lib/libtorch.so
7f000000a000-7f000000b000 rwxp 00000000 00:00 0
7f000000b000-7f000000c000 r-xp 00000000 fe:00 125    /opt/my lib/lib\xe9 1.so
7f000000c000-7f000000d000 r-xp 00000000 00:00 0      [vdso]
7f000000d000-7f000000e000 r-xp 00000000 00:01 126    /memfd:jit (deleted)
";
        assert_eq!(place(maps, 0x7f00_0000_1f00), "libtorch.so+0x1f00");
        assert_eq!(
            place(maps, 0x7f00_0000_a010),
            "0x7f000000a010",
            "code that a program made"
        );
        assert_eq!(place(maps, 0x7f00_0000_b010), "lib\u{fffd} 1.so+0x10");
        assert_eq!(place(maps, 0x7f00_0000_c010), "[vdso]+0x10");
        assert_eq!(place(maps, 0x7f00_0000_d010), "memfd:jit+0x10");
        assert_eq!(place(maps, 1), "0x1");
        assert_eq!(place(b"nonsense\n1-\n", 1), "0x1");
    }
}
