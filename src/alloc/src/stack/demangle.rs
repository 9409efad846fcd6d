//! Names of functions as their sources have them.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// How deep names are looked into: enough for 98 of 100 in PyTorch. With expressions in them that takes exponential time, and less has to
/// do.
const DEPTH: u32 = 64;
const DEPTH_WITH_EXPRESSIONS: u32 = 24;
/// What that takes of the stack: 280 KiB where it is optimised, 900 where not.
const ROOM: u64 = 1 << 20;
/// Bytes of a name of C++, whose templates may have thousands. What is longer is cut.
const MOST: usize = 200;

/// Whether a function's name is as compilers of C++ write them.
pub(super) fn is_cpp(name: &str) -> bool {
    name.starts_with("_Z")
}

/// A function of C++ as its source has it, without what it takes and returns; as it is where it cannot be read, or not in so many bytes of
/// stack. Cut where it is long.
pub(super) fn demangled(name: &str, left: u64) -> String {
    let written = (left >= ROOM).then(|| written(name)).flatten();
    written.unwrap_or_else(|| {
        let mut cut = Bounded::default();
        cut.push(name);
        cut.finish()
    })
}

fn written(name: &str) -> Option<String> {
    let depth = if has_expressions(name) {
        DEPTH_WITH_EXPRESSIONS
    } else {
        DEPTH
    };
    let parsing = ParseOptions::default().recursion_limit(depth);
    let symbol = Symbol::new_with_options(name, &parsing).ok()?;
    let writing = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(depth);
    let mut written = Bounded::default();
    let whole = symbol.structured_demangle(&mut written, &writing).is_ok();
    (whole || written.full).then(|| written.finish())
}

/// It may have; addresses of functions are simple.
fn has_expressions(name: &str) -> bool {
    let mut marked = name.match_indices('X');
    name.contains("DT") || name.contains("Dt") || marked.any(|(at, _)| !name[at..].starts_with("XadL_Z"))
}

/// Refuses what does not fit.
#[derive(Default)]
struct Bounded {
    text: String,
    full: bool,
}

impl Bounded {
    fn push(&mut self, text: &str) {
        let room = MOST - self.text.len();
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        self.full |= text.len() > room;
    }

    fn finish(self) -> String {
        self.text + if self.full { "..." } else { "" }
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        if self.full { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_sources() {
        for (name, expected) in [
            (
                "_ZN2at4_ops2mm10redispatchEN3c1014DispatchKeySetERKNS_6TensorES6_",
                "at::_ops::mm::redispatch",
            ),
            (
                "_ZN5torch8autograd4NodeclEOSt6vectorIN2at6TensorESaIS4_EE",
                "torch::autograd::Node::operator()",
            ),
            (
                "_ZN2at12_GLOBAL__N_110create_outEN3c108ArrayRefIlEES3_RKNS1_13TensorOptionsE",
                "at::(anonymous namespace)::create_out",
            ),
            ("_ZSt3maxIiERKT_S2_S2_", "std::max<int>"),
            ("_Z", "_Z"),
            ("_ZN2at4_ops", "_ZN2at4_ops"),
            ("_Znonsense\u{fc}", "_Znonsense\u{fc}"),
        ] {
            assert_eq!(demangled(name, ROOM), expected);
        }
    }

    #[test]
    fn names_that_templates_make_long_are_cut() {
        // f<A<A<int>>>, and so on.
        let nested = |depth: usize| format!("_Z1fI{}i{}Evv", "1AI".repeat(depth), "E".repeat(depth));
        assert_eq!(demangled(&nested(2), ROOM), "f<A<A<int> > >");
        let wide = format!("_Z1fI{}Evv", "9Something".repeat(100));
        let long = demangled(&wide, ROOM);
        assert!(
            long.starts_with("f<Something, Something, ") && long.ends_with("..."),
            "{long}"
        );
        assert_eq!(long.len(), MOST + 3);
        // Deeper than anybody looks.
        let deep = nested(100_000);
        assert_eq!(demangled(&deep, ROOM), format!("{}...", &deep[..MOST]));
        // Each is of two of the one before.
        let doubled: String = (0..30).map(|n| format!("1BIS{n}_S{n}_E")).collect();
        assert!(demangled(&format!("_Z1fI1AIiE{doubled}Evv"), ROOM).len() <= MOST + 3);
    }

    /// Such as take most of it: nested operators, pointers, functions and templates. On so much stack as they get.
    #[test]
    fn names_need_no_more_stack_than_is_asked_for() {
        let names = [
            format!("_Z1fIi{}Evv", "Xaant".repeat(30)),
            format!(
                "_Z1fILb1EEN9enable_ifIX{}Lb1E{}EE4typeEv",
                "aa".repeat(20),
                "Lb1E".repeat(20)
            ),
            format!("_Z1fI{}iEvv", "P".repeat(60)),
            format!("_Z1f{}i{}", "PFi".repeat(20), "E".repeat(20)),
            format!("_Z1fI{}i{}Evv", "1AI".repeat(30), "E".repeat(30)),
        ];
        let read = move || names.map(|name| demangled(&name, ROOM)).concat().len();
        let thread = std::thread::Builder::new().stack_size(ROOM as usize).spawn(read);
        assert!(thread.ok().and_then(|thread| thread.join().ok()) > Some(300));
        assert_eq!(demangled("_ZSt3maxIiERKT_S2_S2_", ROOM - 1), "_ZSt3maxIiERKT_S2_S2_");
    }

    #[test]
    fn names_take_no_exponential_time() {
        let name = format!("_Z1fIDpT_EvDTclc{}lgvEEE", "ld".repeat(60));
        let began = std::time::Instant::now();
        assert_eq!(demangled(&name, ROOM), name);
        assert!(began.elapsed().as_secs() < 5);
    }
}
