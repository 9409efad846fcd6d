//! What happens while the library is loaded.

use std::time::Duration;

use crate::source;

/// The dynamic loader calls the functions in this section. It also does so in programs that link this crate, which have no scenario.
#[used]
// SAFETY: the section is a list of such functions, and this one needs nothing that is set up later.
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    let Ok(world) = source::world() else { return };
    std::thread::sleep(Duration::from_millis(world.load_delay_ms));
    if let Some(code) = world.load_exit {
        std::process::exit(code);
    }
}
