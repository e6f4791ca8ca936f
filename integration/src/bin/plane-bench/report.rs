//! Rows with what is allowed, as a table for people and JSON for tools.

use std::fmt::Write as _;

use serde::Serialize;

/// One measured row.
#[derive(Debug, Clone, Serialize)]
struct Row {
    name: String,
    unit: &'static str,
    value: f64,
    /// The most that is allowed.
    limit: Option<f64>,
}

impl Row {
    fn verdict(&self) -> &'static str {
        match self.limit {
            None => "",
            Some(limit) if self.value > limit => "MISSES",
            Some(_) => "holds",
        }
    }
}

/// All rows of one run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    rows: Vec<Row>,
    /// What was measured on what, in words.
    notes: Vec<String>,
}

impl Report {
    /// Adds a row that only tells.
    pub(crate) fn tell(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        self.rows.push(Row { name: name.into(), unit, value, limit: None });
    }

    /// Adds a row that must stay within a limit.
    pub(crate) fn limit(&mut self, name: impl Into<String>, unit: &'static str, value: f64, limit: f64) {
        self.rows.push(Row { name: name.into(), unit, value, limit: Some(limit) });
    }

    /// Adds a sentence.
    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Returns how many rows miss their limit.
    pub(crate) fn misses(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict() == "MISSES").count()
    }

    /// Returns the rows as a Markdown table.
    pub(crate) fn table(&self) -> String {
        let mut out = self.notes.join("\n");
        out.push_str("\n\n| row | unit | measured | allowed | |\n|---|---|---|---|---|\n");
        for row in &self.rows {
            let limit = row.limit.map_or_else(|| "–".to_owned(), figure);
            // Writing to a string can't fail.
            let _ =
                writeln!(out, "| {} | {} | {} | {limit} | {} |", row.name, row.unit, figure(row.value), row.verdict());
        }
        out
    }

    /// Returns all figures as JSON.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

fn figure(value: f64) -> String {
    if value >= 1000.0 && value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_above_its_limit_misses() {
        let mut report = Report::default();
        report.limit("a", "ms", 20.1, 20.0);
        report.limit("b", "ms", 20.0, 20.0);
        report.tell("c", "ms", 99.0);
        assert_eq!(report.misses(), 1);
        let table = report.table();
        assert!(table.contains("| a | ms | 20.10 | 20.00 | MISSES |") && table.contains("| c | ms | 99.00 | – |  |"));
    }
}
