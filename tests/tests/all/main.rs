//! Rules that the workspace keeps, and `libgpumem_alloc.so` as programs in C, C++ and Python use it.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod borders;
mod c_abi;
mod python;
