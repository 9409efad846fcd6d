//! Tests of the workspace's own rules, and of `libgpumem_alloc.so` in programs in C, C++ and Python.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod borders;
mod c_abi;
mod python;
