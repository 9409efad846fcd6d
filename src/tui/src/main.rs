//! The program: see `gpumem-tui --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gpumem_tui::run::main().into()
}
