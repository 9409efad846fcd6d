//! Names of functions as their sources have them.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Templates in templates that are looked into: enough for 98 of 100 names in PyTorch, in 48 KiB of stack.
const DEPTH: u32 = 64;
/// Bytes of a name of C++, whose templates may have thousands. What is longer is cut.
const MOST: usize = 200;

/// As the compiler of C++ made it, without what it takes and returns; any other name as it is.
pub(super) fn demangled(name: String) -> String {
    if !name.starts_with("_Z") {
        return name;
    }
    written(&name).unwrap_or_else(|| {
        let mut cut = Bounded::default();
        cut.push(&name);
        cut.finish()
    })
}

fn written(name: &str) -> Option<String> {
    let parsing = ParseOptions::default().recursion_limit(DEPTH);
    let symbol = Symbol::new_with_options(name, &parsing).ok()?;
    let writing = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(DEPTH);
    let mut written = Bounded::default();
    let whole = symbol.structured_demangle(&mut written, &writing).is_ok();
    (whole || written.full).then(|| written.finish())
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
        self.full = text.len() > room;
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
            ("main", "main"),
            ("gpumem::train", "gpumem::train"),
            ("_Z", "_Z"),
            ("_ZN2at4_ops", "_ZN2at4_ops"),
            ("_Znonsense\u{fc}", "_Znonsense\u{fc}"),
        ] {
            assert_eq!(demangled(name.to_owned()), expected);
        }
    }

    #[test]
    fn names_that_templates_make_long_are_cut() {
        // f<A<A<int>>>, and so on.
        let nested = |depth: usize| format!("_Z1fI{}i{}Evv", "1AI".repeat(depth), "E".repeat(depth));
        assert_eq!(demangled(nested(2)), "f<A<A<int> > >");
        let wide = format!("_Z1fI{}Evv", "9Something".repeat(100));
        let long = demangled(wide);
        assert!(
            long.starts_with("f<Something, Something, ") && long.ends_with("..."),
            "{long}"
        );
        assert_eq!(long.len(), MOST + 3);
        // Deeper than anybody looks.
        let deep = nested(100_000);
        assert_eq!(demangled(deep.clone()), format!("{}...", &deep[..MOST]));
        // Each is of two of the one before.
        let doubled: String = (0..30).map(|n| format!("1BIS{n}_S{n}_E")).collect();
        assert!(demangled(format!("_Z1fI1AIiE{doubled}Evv")).len() <= MOST + 3);
    }
}
