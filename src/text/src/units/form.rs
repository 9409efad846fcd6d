//! One form for the sizes of a line: `1.2G of 80 GiB` makes its reader convert.

use super::size::gib;
use super::{bytes, bytes_short};

/// How the sizes of a line are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `23.0`: all are in GiB, which stands behind the last one.
    Gib,
    /// `23.0 GiB`, `512 MiB`.
    Long,
    /// `23.0G`, `512M`, for narrow lines.
    Short,
}

impl Form {
    /// Returns the form for the sizes of a line. They share GiB if none but 0 is below it, or far above it.
    pub fn of(sizes: impl IntoIterator<Item = u64>) -> Form {
        let in_gib = |n: u64| n == 0 || (1 << 30..1 << 40).contains(&n);
        match sizes.into_iter().all(in_gib) {
            true => Form::Gib,
            false => Form::Long,
        }
    }

    /// Formats a size.
    pub fn size(self, n: u64) -> String {
        match self {
            Form::Gib => gib(n),
            Form::Long | Form::Short if n == 0 => "0".to_owned(),
            Form::Long => bytes(n),
            Form::Short => bytes_short(n),
        }
    }

    /// Returns what stands behind the last size.
    pub fn unit(self) -> &'static str {
        match self {
            Form::Gib => " GiB",
            Form::Long | Form::Short => "",
        }
    }

    /// Formats a part and the whole: `52.1 of 79.6 GiB`, `307 MiB of 79.6 GiB`.
    pub fn of_total(part: u64, total: u64) -> String {
        let form = Form::of([part, total]);
        format!("{} of {}{}", form.size(part), form.size(total), form.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_a_line_have_one_form() {
        const M: u64 = 1 << 20;
        const G: u64 = 1 << 30;
        for (part, total, text) in [
            (52 * G, 80 * G, "52.0 of 80.0 GiB"),
            (0, 80 * G, "0.0 of 80.0 GiB"),
            (307 * M, 80 * G, "307 MiB of 80.0 GiB"),
            (G - 1, 80 * G, "1.0 GiB of 80.0 GiB"),
            (G, 80 * G, "1.0 of 80.0 GiB"),
            (20 * M, 512 * M, "20.0 MiB of 512 MiB"),
            (0, 512 * M, "0 of 512 MiB"),
            (0, 0, "0.0 of 0.0 GiB"),
            (600 * G, 1536 * G, "600.0 GiB of 1.5 TiB"),
            (u64::MAX, u64::MAX, "16.0 EiB of 16.0 EiB"),
        ] {
            assert_eq!(Form::of_total(part, total), text);
        }
        assert_eq!(Form::Short.size(307 * M), "307M");
    }
}
