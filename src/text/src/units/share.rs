//! Shares of a whole.

/// Formats a share of 0..=1 as percent without decimals: `43%`.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", (share * 100.0).clamp(0.0, 100.0))
}
