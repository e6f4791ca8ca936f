//! Feature gates: which exist, what they default to, and what a configuration makes of them.

mod table;

use std::collections::BTreeMap;

use table::GATES;

/// How far a gate has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Off by default.
    Alpha,
    /// Mostly on by default.
    Beta,
    /// Done; setting it only earns a warning.
    Ga,
    /// On its way out; setting it only earns a warning.
    Deprecated,
}

/// One gate as upstream knows it.
#[derive(Debug)]
struct Gate {
    name: &'static str,
    stage: Stage,
    default: bool,
    /// No other value can be set.
    locked: bool,
    /// Gates that must be on when this one is.
    needs: &'static [&'static str],
}

/// The value of every gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    values: BTreeMap<&'static str, bool>,
    /// What was set although it has no effect any more, for a warning.
    pub warnings: Vec<String>,
}

impl Gates {
    /// Applies what is set over the defaults: `AllAlpha` and `AllBeta` first, then the named ones. All faults are reported.
    pub fn resolve<'a>(set: impl IntoIterator<Item = (&'a str, bool)>) -> Result<Self, Vec<String>> {
        let set: Vec<(&str, bool)> = set.into_iter().collect();
        let mut values: BTreeMap<&'static str, bool> = GATES.iter().map(|gate| (gate.name, gate.default)).collect();
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        for (all, stage) in [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)] {
            if let Some((_, value)) = set.iter().find(|(name, _)| *name == all) {
                let of_stage =
                    GATES.iter().filter(|gate| gate.stage == stage && !gate.locked && !gate.name.starts_with("All"));
                values.extend(of_stage.map(|gate| (gate.name, *value)));
            }
        }
        for (name, value) in set {
            let Some(gate) = GATES.iter().find(|gate| gate.name == name) else {
                let hint = crate::flags::closest(name, GATES.iter().map(|gate| gate.name));
                let hint = hint.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
                errors.push(format!("unrecognized feature gate: {name}{hint}"));
                continue;
            };
            if gate.locked && value != gate.default {
                errors
                    .push(format!("cannot set feature gate {name} to {value}, feature is locked to {}", gate.default));
                continue;
            }
            match gate.stage {
                Stage::Ga => warnings
                    .push(format!("Setting GA feature gate {name}={value}. It will be removed in a future release.")),
                Stage::Deprecated => {
                    warnings.push(format!(
                        "Setting deprecated feature gate {name}={value}. It will be removed in a future release."
                    ));
                }
                Stage::Alpha | Stage::Beta => {}
            }
            values.insert(gate.name, value);
        }
        for gate in GATES.iter().filter(|gate| values.get(gate.name) == Some(&true)) {
            let missing: Vec<&str> =
                gate.needs.iter().copied().filter(|needed| values.get(needed) == Some(&false)).collect();
            if !missing.is_empty() {
                errors.push(format!(
                    "{} is enabled, but depends on features that are disabled: [{}]",
                    gate.name,
                    missing.join(" ")
                ));
            }
        }
        if errors.is_empty() { Ok(Self { values, warnings }) } else { Err(errors) }
    }

    /// Says whether a gate is on; one that does not exist is off.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.values.get(name).copied().unwrap_or(false)
    }

    /// All gates with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> + '_ {
        self.values.iter().map(|(name, value)| (*name, *value))
    }
}

impl Default for Gates {
    fn default() -> Self {
        let values = GATES.iter().map(|gate| (gate.name, gate.default)).collect();
        Self { values, warnings: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_reference() {
        let reference = include_str!("../../tests/data/features.tsv");
        let rows =
            reference.lines().filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("gate\t"));
        let mut known = GATES.iter();
        for row in rows {
            let columns: Vec<&str> = row.split('\t').collect();
            let [name, stage, default, locked, _, needs, ..] = columns.as_slice() else { panic!("{row}") };
            let gate = known.next().unwrap();
            let shown = match gate.stage {
                Stage::Alpha => "alpha",
                Stage::Beta => "beta",
                Stage::Ga => "GA",
                Stage::Deprecated => "deprecated",
            };
            let wanted: Vec<&str> = if *needs == "-" { Vec::new() } else { needs.split(',').collect() };
            assert_eq!(
                (gate.name, shown, gate.default.to_string().as_str(), gate.locked),
                (*name, *stage, *default, *locked == "yes")
            );
            assert_eq!(gate.needs, wanted, "{name}");
        }
        assert!(known.next().is_none());
    }

    #[test]
    fn named_gates_win_over_the_sweeping_ones() {
        let gates = Gates::resolve([("AllAlpha", true), ("MemoryQoS", false)]);
        // Alpha gates whose needs are off make it fail in upstream, too: here all needs are on or alpha themselves.
        let gates = gates.unwrap();
        assert!(gates.is_enabled("EventedPLEG") && !gates.is_enabled("MemoryQoS"));
        assert!(!Gates::default().is_enabled("EventedPLEG"));
    }

    #[test]
    fn what_cannot_be_set_is_said() {
        let errors =
            Gates::resolve([("NodeSwap", false), ("EventedPLEGG", true), ("GangScheduling", true)]).unwrap_err();
        assert_eq!(
            errors,
            [
                "cannot set feature gate NodeSwap to false, feature is locked to true",
                "unrecognized feature gate: EventedPLEGG (did you mean EventedPLEG?)",
                "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
            ]
        );
        assert_eq!(Gates::resolve([("NodeSwap", true)]).unwrap().warnings.len(), 1);
    }
}
