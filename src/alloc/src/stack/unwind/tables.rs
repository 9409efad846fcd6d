//! How to get from a native function to its caller: what the tables say that compilers write for exceptions, in the memory of the program and
//! its libraries.
#![allow(
    unsafe_code,
    reason = "the loader tells where they are by a C function, with pointers"
)]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindSection, UnwindTableRow, X86_64,
};

use super::INSIDE;

/// Where a function that is in a call was called from. `cfa` is what the stack pointer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The return address is below `cfa`.
    Called {
        cfa: Cfa,
        /// Where the caller's frame pointer is, from `cfa`; else the register has it.
        frame_pointer: Option<i32>,
    },
    /// It was not called.
    Outermost,
    /// Something less simple, or nothing.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    StackPointer(i32),
    FramePointer(i32),
}

/// How often libraries were loaded and unloaded.
pub(super) type Loads = (u64, u64);

/// Of a table's row: as many registers as there are. In place, and no more, for it is on the stack of whoever allocates.
struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 17];
    type Stack = [UnwindTableRow<usize, Self>; 3];
}

type Context = UnwindContext<usize, Storage>;

struct Search {
    /// None: only the loads.
    address: Option<u64>,
    context: Context,
    loads: Loads,
    found: Rule,
}

/// The rule for a place in a function, and as of which loads. `None` where the loader cannot be asked.
pub(super) fn rule(address: u64) -> Option<(Rule, Loads)> {
    search(Some(address))
}

pub(super) fn loads() -> Option<Loads> {
    Some(search(None)?.1)
}

/// Takes the loader's lock.
#[cold]
fn search(address: Option<u64>) -> Option<(Rule, Loads)> {
    let _inside = INSIDE.enter()?;
    let mut search = Search {
        address,
        context: Context::new_in(),
        loads: (0, 0),
        found: Rule::Other,
    };
    // SAFETY: `look_in` does not panic, and its argument is a search.
    unsafe { libc::dl_iterate_phdr(Some(look_in), (&raw mut search).cast()) };
    Some((search.found, search.loads))
}

/// Stops at what has the address. Nothing here allocates, for the loader's lock is held.
unsafe extern "C" fn look_in(module: *mut libc::dl_phdr_info, size: usize, search: *mut c_void) -> c_int {
    // Who puts another loader in its place may tell less.
    if size < offset_of!(libc::dl_phdr_info, dlpi_tls_modid) {
        return 1;
    }
    // SAFETY: what `rule` gave, and what the loader gives.
    let (module, search) = unsafe { (&*module, &mut *search.cast::<Search>()) };
    search.loads = (module.dlpi_adds, module.dlpi_subs);
    let Some(wanted) = search.address else { return 1 };
    if module.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: so many are there as long as the module is, which cannot go meanwhile.
    let segments = unsafe { std::slice::from_raw_parts(module.dlpi_phdr, usize::from(module.dlpi_phnum)) };
    let range = |segment: &libc::Elf64_Phdr| {
        let start = module.dlpi_addr.wrapping_add(segment.p_vaddr);
        start..start.saturating_add(segment.p_filesz)
    };
    let loaded = |address: u64| {
        let mut loaded = segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
        loaded.find(|segment| range(segment).contains(&address))
    };
    if loaded(wanted).is_none() {
        return 0;
    }
    // From there to the end of what the file has in memory.
    let bytes = |address: u64| {
        let segment = loaded(address).filter(|segment| segment.p_flags & libc::PF_R != 0)?;
        let length = usize::try_from(range(segment).end - address).ok()?;
        // SAFETY: mapped, and readable, as long as the module is; and nobody writes there.
        Some(unsafe {
            std::slice::from_raw_parts(
                std::ptr::with_exposed_provenance(usize::try_from(address).ok()?),
                length,
            )
        })
    };
    let index = segments.iter().find(|segment| segment.p_type == libc::PT_GNU_EH_FRAME);
    let found = index.and_then(|index| find(wanted, range(index), bytes, &mut search.context));
    search.found = found.unwrap_or(Rule::Other);
    1
}

fn find<'a>(
    address: u64,
    index: Range<u64>,
    bytes: impl Fn(u64) -> Option<&'a [u8]>,
    context: &mut Context,
) -> Option<Rule> {
    let length = usize::try_from(index.end - index.start).ok()?;
    let index_bytes = bytes(index.start)?.get(..length)?;
    // As all linkers write it. Others are left to the unwinder: what reads them here may overflow.
    if index_bytes.get(..4)? != [1, 0x1b, 3, 0x3b] {
        return None;
    }
    let at = BaseAddresses::default().set_eh_frame_hdr(index.start);
    let index = EhFrameHdr::new(index_bytes, LittleEndian).parse(&at, 8).ok()?;
    let start = index.eh_frame_ptr().direct().ok()?;
    let at = at.set_eh_frame(start);
    let frames = EhFrame::new(bytes(start)?, LittleEndian);
    let function = index.table()?.lookup(address, &at).ok()?.direct().ok()?;
    let function = usize::try_from(function.checked_sub(start)?).ok()?;
    let function = frames
        .fde_from_offset(&at, function.into(), EhFrame::cie_from_offset)
        .ok()?;
    if !function.contains(address) || function.is_signal_trampoline() {
        return None;
    }
    let row = function.unwind_info_for_address(&frames, &at, context, address).ok()?;
    // The stack pointer is the caller's, and no other.
    if row.register(X86_64::RSP).is_some() {
        return None;
    }
    let cfa = match *row.cfa() {
        CfaRule::RegisterAndOffset {
            register: X86_64::RSP,
            offset,
        } => Cfa::StackPointer(i32::try_from(offset).ok()?),
        CfaRule::RegisterAndOffset {
            register: X86_64::RBP,
            offset,
        } => Cfa::FramePointer(i32::try_from(offset).ok()?),
        _ => return None,
    };
    let frame_pointer = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(offset)) => Some(i32::try_from(offset).ok()?),
        Some(_) => return None,
    };
    match row.register(X86_64::RA)? {
        RegisterRule::Offset(-8) => Some(Rule::Called { cfa, frame_pointer }),
        RegisterRule::Undefined => Some(Rule::Outermost),
        _ => None,
    }
}
