//! Kinds that are told by tables: defaults, checks and frozen fields as rows, and a function only for what rows cannot say.

use serde_json::Value;

use super::{Strategy, checks, paths};
use crate::apiserver::error::Cause;
use crate::apiserver::object::list;

/// Reads an object as its type; see [`Strategy::decode`].
type Decode = fn(&Value) -> Result<(), String>;

/// Finds broken rules in an object that may take the place of an old one.
type RulesAfter = fn(&Value, Option<&Value>, &mut Vec<Cause>);

/// A default.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fill {
    /// A field and the JSON that stands there when nothing does.
    Set(&'static str, &'static str),
    /// The same, only where another field has this text.
    When(&'static str, &'static str, &'static str, &'static str),
}

/// A rule of one field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Check {
    /// Must be there and not empty; the text behind the standard one.
    Required(&'static str, &'static str),
    /// One of these, if it is there.
    OneOf(&'static str, &'static [&'static str]),
    /// Must be there and one of these.
    Chosen(&'static str, &'static [&'static str]),
    /// A number, if it is there, not below this.
    AtLeast(&'static str, i64),
    /// A text, if it is there, of this form.
    Form(&'static str, fn(&str) -> Vec<String>),
    /// A label selector, if it is there.
    Selector(&'static str),
    /// A number not below nought or a percentage, if it is there.
    Amount(&'static str),
    /// Quantities by name, none negative.
    Quantities(&'static str),
}

/// What becomes of a field that may not change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Frozen {
    /// Refused with the value and upstream's usual words.
    Immutable(&'static str),
    /// Refused with the value and these words.
    Invalid(&'static str, &'static str),
    /// Refused as forbidden with these words.
    Forbidden(&'static str, &'static str),
}

/// A kind told by tables.
#[derive(Debug)]
pub(crate) struct Described {
    /// Its type.
    pub(crate) decode: Decode,
    /// Its defaults, in this order.
    pub(crate) defaults: &'static [Fill],
    /// Where its pod template stands.
    pub(crate) template: Option<&'static str>,
    /// Defaults that rows cannot say; runs after them.
    pub(crate) fill: Option<fn(&mut Value)>,
    /// The status it is born with.
    pub(crate) status: Option<&'static str>,
    /// What the server decides at birth.
    pub(crate) birth: Option<fn(&mut Value)>,
    /// What an update may not touch.
    pub(crate) carry: Option<fn(&mut Value, &Value)>,
    /// What an update of the status may not touch.
    pub(crate) carry_status: Option<fn(&mut Value, &Value)>,
    /// Rules of fields.
    pub(crate) checks: &'static [Check],
    /// Rules that rows cannot say.
    pub(crate) rules: Option<fn(&Value, &mut Vec<Cause>)>,
    /// The same for kinds that go easier on what an old object has already, which is given when there is one.
    pub(crate) rules_after: Option<RulesAfter>,
    /// What may not change.
    pub(crate) frozen: &'static [Frozen],
    /// Changes that rows cannot judge.
    pub(crate) changes: Option<fn(&Value, &Value, &mut Vec<Cause>)>,
    /// The fields whose change makes a new generation.
    pub(crate) generation: &'static [&'static str],
}

impl Described {
    /// Returns a kind with a type and no rules.
    pub(crate) const fn new(decode: Decode) -> Self {
        Self {
            decode,
            defaults: &[],
            template: None,
            fill: None,
            status: None,
            birth: None,
            carry: None,
            carry_status: None,
            checks: &[],
            rules: None,
            rules_after: None,
            frozen: &[],
            changes: None,
            generation: &["spec"],
        }
    }
}

impl Described {
    fn causes(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        for check in self.checks {
            checks::check(check, object, &mut causes);
        }
        if let Some(path) = self.template {
            match paths::get(object, path) {
                Some(template) => causes.extend(template_causes(template, path)),
                None => causes.push(Cause::required(path, "")),
            }
        }
        if let Some(rules) = self.rules {
            rules(object, &mut causes);
        }
        if let Some(rules) = self.rules_after {
            rules(object, old, &mut causes);
        }
        causes
    }
}

impl Strategy for Described {
    fn decode(&self, object: &Value) -> Result<(), String> {
        (self.decode)(object)
    }

    fn defaults(&self, object: &mut Value) {
        for fill in self.defaults {
            match *fill {
                Fill::Set(path, value) => paths::fill(object, path, value),
                Fill::When(path, other, wanted, value) => {
                    if paths::text(object, other) == wanted {
                        paths::fill(object, path, value);
                    }
                }
            }
        }
        if let Some(template) = self.template.and_then(|path| paths::get_mut(object, path)) {
            longshore_api::defaults::template(template);
        }
        if let Some(fill) = self.fill {
            fill(object);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        if let Some(status) = self.status {
            object["status"] = serde_json::from_str(status).unwrap_or_default();
        }
        if let Some(birth) = self.birth {
            birth(object);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if let Some(carry) = self.carry {
            carry(object, old);
        }
    }

    fn prepare_status(&self, object: &mut Value, old: &Value) {
        if let Some(carry) = self.carry_status {
            carry(object, old);
        }
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        self.causes(object, None)
    }

    fn validate_again(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = self.causes(object, Some(old));
        causes.extend(self.validate_update(object, old));
        causes
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        for frozen in self.frozen {
            let (Frozen::Immutable(path) | Frozen::Invalid(path, _) | Frozen::Forbidden(path, _)) = *frozen;
            let (now, before) = (paths::get(object, path), paths::get(old, path));
            if now == before {
                continue;
            }
            let now = now.unwrap_or(&Value::Null);
            causes.push(match *frozen {
                Frozen::Immutable(path) => Cause::invalid(path, now, "field is immutable"),
                Frozen::Invalid(path, text) => Cause::invalid(path, now, text),
                Frozen::Forbidden(path, text) => Cause::forbidden(path, text),
            });
        }
        if let Some(changes) = self.changes {
            changes(object, old, &mut causes);
        }
        causes
    }

    fn is_new_generation(&self, object: &Value, old: &Value) -> bool {
        self.generation.iter().any(|path| paths::get(object, path) != paths::get(old, path))
    }
}

/// Checks a pod template by the rules of pods.
pub(crate) fn template_causes(template: &Value, path: &str) -> Vec<Cause> {
    let found = longshore_api::validate::template(template, path).into_iter();
    let mut causes: Vec<Cause> =
        found.map(|fault| Cause { reason: fault.kind.reason(), message: fault.message, field: fault.path }).collect();
    if !list(template, "/spec/ephemeralContainers").is_empty() {
        let field = format!("{path}.spec.ephemeralContainers");
        causes.push(Cause::forbidden(field, "ephemeral containers not allowed in pod template"));
    }
    causes
}
