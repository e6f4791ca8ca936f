//! Rows with medians, as a table for people and JSON for tools.

use std::fmt::Write as _;

use serde::Serialize;

/// One measured row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: String,
    /// Unit of all figures of the row.
    pub(crate) unit: &'static str,
    /// Every figure of the agent, in the order measured.
    pub(crate) agent: Vec<f64>,
    /// Every figure of the bare CRI calls.
    pub(crate) bare: Vec<f64>,
    /// The most that is allowed, and how it was found.
    pub(crate) limit: Option<Limit>,
}

/// The most a row may show.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) enum Limit {
    /// A fixed figure in the row's unit.
    AtMost(f64),
    /// So many times the bare median.
    TimesBare(f64),
}

impl Row {
    fn allowed(&self) -> Option<f64> {
        match self.limit? {
            Limit::AtMost(figure) => Some(figure),
            Limit::TimesBare(factor) => median(&self.bare).map(|bare| bare * factor),
        }
    }

    fn misses(&self) -> bool {
        matches!((median(&self.agent), self.allowed()), (Some(got), Some(allowed)) if got > allowed)
    }
}

/// All rows of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    agent: String,
    runtime: String,
    rows: Vec<Row>,
}

impl Report {
    /// Starts a report on the agent of that name on that runtime.
    pub(crate) fn new(agent: &str, runtime: &str) -> Self {
        Self { agent: agent.to_owned(), runtime: runtime.to_owned(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Returns how many rows miss their limit.
    pub(crate) fn misses(&self) -> usize {
        self.rows.iter().filter(|row| row.misses()).count()
    }

    /// Returns the rows as a Markdown table.
    pub(crate) fn table(&self) -> String {
        let mut out = format!("{} on {}\n\n", self.agent, self.runtime);
        out.push_str("| row | unit | agent (median, min–max) | bare (median, min–max) | allowed | |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let allowed = row.allowed().map_or_else(|| "–".to_owned(), |figure| format!("{figure:.2}"));
            let verdict = match row.allowed() {
                None => "",
                Some(_) if row.misses() => "misses",
                Some(_) => "holds",
            };
            // Writing to a string can't fail.
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} |",
                row.name,
                row.unit,
                spread(&row.agent),
                spread(&row.bare),
                allowed,
                verdict
            );
        }
        out
    }

    /// Returns all figures as JSON.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

fn spread(figures: &[f64]) -> String {
    match median(figures) {
        None => "–".to_owned(),
        Some(middle) if figures.len() == 1 => format!("{middle:.2}"),
        Some(middle) => {
            let low = figures.iter().copied().fold(f64::INFINITY, f64::min);
            let high = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{middle:.2} ({low:.2}–{high:.2})")
        }
    }
}

/// Returns the middle figure (the mean of the two middle ones of an even number).
pub(crate) fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted.get(half).copied()
    } else {
        Some(f64::midpoint(*sorted.get(half.checked_sub(1)?)?, *sorted.get(half)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_row_above_its_limit_misses() {
        let row = |agent: f64, limit| Row {
            name: "r".into(),
            unit: "s",
            agent: vec![agent],
            bare: vec![1.0],
            limit: Some(limit),
        };
        assert!(row(1.3, Limit::TimesBare(1.25)).misses());
        assert!(!row(1.2, Limit::TimesBare(1.25)).misses());
        assert!(row(0.3, Limit::AtMost(0.2)).misses());
    }
}
