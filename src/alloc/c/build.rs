//! How the shared object is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs keep addresses of our functions, and the C library calls one of them at exit: it must never be unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A program that was linked by path finds it as those do that were linked by name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgpumem_alloc.so");
    if std::env::var("CARGO_CFG_PANIC").as_deref() == Ok("abort") {
        println!(
            "cargo::warning=libgpumem_alloc.so will end its program if it has a bug, instead of returning an error: \
             build it with `cargo build --profile embed -p gpumem-alloc-c`"
        );
    }
}
