//! Marks on the timeline, and who allocates.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};

use gpumem::Scope;

use crate::boundary::enter;
use crate::devices;
use crate::failure::Failure;

/// Longest name that is looked at; the channel shows fewer bytes.
const LONGEST: usize = 256;
/// Scopes of a thread at the same time. More is a push without a pop.
const DEEPEST: usize = 256;

thread_local! {
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
    /// The one that is set, beside those that nest.
    static SET: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// A name of the caller's, cut between characters after at most [`LONGEST`] bytes.
///
/// # Safety
///
/// `name` is null or points to a string that ends in a zero byte.
unsafe fn name(name: *const c_char) -> Result<String, Failure> {
    if name.is_null() {
        return Err(Failure::misuse("no name was given"));
    }
    // SAFETY: not null, so a C string by this function's contract.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    // More than enough for as many bytes of text, however many are none.
    let text = String::from_utf8_lossy(bytes.get(..2 * LONGEST).unwrap_or(bytes));
    Ok(text[..text.floor_char_boundary(LONGEST)].to_owned())
}

/// # Safety
///
/// `text` is null or points to a string that ends in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_mark(text: *const c_char) -> c_int {
    enter("gpumem_mark", -1, || {
        // SAFETY: the caller's contract.
        let text = unsafe { name(text) }?;
        devices::chosen(-1)?.for_each(|allocator| allocator.mark(&text));
        Ok(0)
    })
}

/// # Safety
///
/// `text` is null or points to a string that ends in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_scope_push(text: *const c_char) -> c_int {
    enter("gpumem_scope_push", -1, || {
        // SAFETY: the caller's contract.
        let text = unsafe { name(text) }?;
        scopes(|scopes| {
            if scopes.len() >= DEEPEST {
                return Err(Failure::misuse(format!(
                    "{DEEPEST} scopes are open on this thread: is one not popped?"
                )));
            }
            scopes.push(gpumem::scope(&text));
            Ok(0)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_scope_pop() -> c_int {
    enter("gpumem_scope_pop", -1, || {
        scopes(|scopes| match scopes.pop() {
            Some(_) => Ok(0),
            None => Err(Failure::misuse("no scope is open on this thread")),
        })
    })
}

/// # Safety
///
/// `text` is null or points to a string that ends in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_scope_set(text: *const c_char) -> c_int {
    enter("gpumem_scope_set", -1, || {
        let text = match text.is_null() {
            true => String::new(),
            // SAFETY: the caller's contract.
            false => unsafe { name(text) }?,
        };
        let set = SET.try_with(|set| {
            set.take();
            set.replace((!text.is_empty()).then(|| gpumem::scope(&text)));
        });
        set.map(|()| 0).map_err(|_| Failure::misuse("this thread ends"))
    })
}

fn scopes<R>(work: impl FnOnce(&mut Vec<Scope>) -> Result<R, Failure>) -> Result<R, Failure> {
    SCOPES
        .try_with(|scopes| work(&mut scopes.borrow_mut()))
        .unwrap_or_else(|_| Err(Failure::misuse("this thread ends")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::ffi::CString;

    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        let cut = |bytes: &[u8]| {
            let text = CString::new(bytes).unwrap();
            // SAFETY: a string that ends in a zero byte.
            unsafe { name(text.as_ptr()) }.unwrap()
        };
        assert_eq!(cut("scope".as_bytes()), "scope");
        assert_eq!(
            cut(format!("x{}", "é".repeat(200)).as_bytes()),
            format!("x{}", "é".repeat(127))
        );
        assert_eq!(cut(&[0xff; 1000]), "\u{fffd}".repeat(85));
        assert_eq!(cut(&[b'a'; 256]), "a".repeat(256));
    }
}
