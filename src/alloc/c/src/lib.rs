//! The allocator behind a C ABI: `libgpumem_alloc.so`. What each function does is said once, in `include/gpumem_alloc.h`.
//!
//! | file | what |
//! |---|---|
//! | `boundary` | the way in and out: no panic passes, failures become messages |
//! | `failure` | what can go wrong, and who is told |
//! | `devices` | one allocator per device, made at first use |
//! | `config` | what those are told |
//! | `exit` | the end of the process |
//! | `memory` | allocate, free, streams: the ABI of PyTorch, of CuPy, of C |
//! | `torch` | what else PyTorch asks of an allocator |
//! | `trust` | versions of PyTorch that are known from inside |
//! | `throw` | what failed, as the exception that PyTorch throws itself |
//! | `adopt` | what PyTorch has nothing to set for |
//! | `cxx` | what C++ passes by value |
//! | `share` | memory for other processes |
//! | `profiler` | what PyTorch's profiler is told |
//! | `cache` | what is cached goes back, or together |
//! | `pools`, `filter`, `graphs` | its private pools, and what goes to them |
//! | `library` | what other libraries have |
//! | `figures` | statistics |
//! | `names` | marks and scopes |
//! | `history` | what happened, who holds the memory, snapshots |
//! | `python` | call stacks of Python |
#![allow(unsafe_code, reason = "the C ABI is an interface of pointers")]

mod adopt;
mod boundary;
mod cache;
mod config;
mod cxx;
mod devices;
mod exit;
mod failure;
mod figures;
mod filter;
mod graphs;
mod history;
mod library;
mod memory;
mod names;
mod pools;
mod profiler;
mod python;
mod share;
mod throw;
mod torch;
mod trust;
