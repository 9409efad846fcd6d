//! The list of options for people.

use super::options::{ConfOption, OPTIONS, Origin};

const HEADS: [(Origin, &str); 3] = [
    (Origin::PyTorch, "PyTorch's, with its names and meanings:"),
    (Origin::Gpumem, "gpumem's own:"),
    (
        Origin::Ignored,
        "PyTorch's that are read and have no effect here, which is said:",
    ),
];
const WIDTH: usize = 80;

fn of(origin: Origin) -> impl Iterator<Item = &'static ConfOption> {
    OPTIONS.iter().filter(move |option| option.origin == origin)
}

/// All options as text for a terminal of 80 columns.
pub fn listing() -> String {
    let mut text = "Options of GPUMEM_ALLOC_CONF: option:value,option:value\n".to_owned();
    for (origin, head) in HEADS {
        text += &format!("\n{head}\n");
        let mut options = of(origin).peekable();
        while let Some(option) = options.next() {
            text += &match origin {
                Origin::Ignored => format!("  {}\n", option.name),
                _ => format!("  {}:{} [default: {}]\n", option.name, option.values, option.default),
            };
            // Several in a row may have none for one reason.
            if options.peek().is_none_or(|next| next.about != option.about) {
                wrap(&mut text, option.about);
            }
        }
    }
    text
}

fn wrap(text: &mut String, about: &str) {
    const INDENT: &str = "      ";
    let mut line = INDENT.to_owned();
    for word in about.split(' ') {
        if line.len() + word.len() >= WIDTH {
            *text += &format!("{}\n", line.trim_end());
            line = INDENT.to_owned();
        }
        line += word;
        line.push(' ');
    }
    *text += &format!("{}\n", line.trim_end());
}

/// The table of the crate's README.
pub fn markdown() -> String {
    let mut text = "| option | values | default | |\n|---|---|---|---|\n".to_owned();
    for option in of(Origin::PyTorch).chain(of(Origin::Gpumem)) {
        let whose = if option.origin == Origin::PyTorch {
            " (PyTorch)"
        } else {
            ""
        };
        text += &format!(
            "| `{}`{whose} | {} | {} | {} |\n",
            option.name, option.values, option.default, option.about
        );
    }
    let ignored: Vec<String> = of(Origin::Ignored).map(|option| format!("`{}`", option.name)).collect();
    text + &format!(
        "\nRead without effect, which is said with the reason: {}.\n",
        ignored.join(", ")
    )
}
