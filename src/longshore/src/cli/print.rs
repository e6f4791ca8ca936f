//! Output of data: tables, JSON, YAML. A reader that went away (`| head`) is no failure.

use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Shape of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Shape {
    /// Columns for people.
    #[default]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The flag of every command that shows data.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Output {
    /// Shape of the data
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Shape,
}

impl Output {
    /// Writes data in the wanted shape; the table is only made when it is the one.
    pub(crate) fn show(self, data: &Value, table: impl FnOnce() -> String) -> Result<()> {
        let text = match self.output {
            Shape::Table => table(),
            Shape::Json => serde_json::to_string_pretty(data)?,
            Shape::Yaml => longshore_util::yaml::to_string(data)?,
        };
        out(text.trim_end_matches('\n'))
    }
}

/// Writes a line to stdout.
pub(crate) fn out(line: &str) -> Result<()> {
    out_bytes(line.as_bytes())?;
    out_bytes(b"\n")
}

/// Writes bytes to stdout at once.
pub(crate) fn out_bytes(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("write to stdout"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lays rows out in columns, three blanks between.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            let blanks = width.saturating_sub(cell.chars().count()) + 3;
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// An age as kubectl writes it: the more, the rougher.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 && !seconds.is_multiple_of(60) => format!("{minutes}m{}s", seconds % 60),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 && !minutes.is_multiple_of(60) => format!("{hours}h{}m", minutes % 60),
        () if days < 2 => format!("{hours}h"),
        () if days < 8 && !hours.is_multiple_of(24) => format!("{days}d{}h", hours % 24),
        () => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_does() {
        for (seconds, text) in [
            (5, "5s"),
            (119, "119s"),
            (125, "2m5s"),
            (180, "3m"),
            (3600, "60m"),
            (4 * 3600 + 60, "4h1m"),
            (90000, "25h"),
            (200_000, "2d7h"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["A".to_owned(), "B".to_owned()], vec!["long".to_owned(), "x".to_owned()]];
        assert_eq!(table(&rows), "A      B\nlong   x\n");
    }
}
