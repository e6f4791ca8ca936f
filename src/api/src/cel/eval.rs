//! Evaluation, every step of which is paid for.

mod arithmetic;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use super::CelError;
use super::functions;
use super::parser::{Bind, Each, Expr, Literal};
use super::value::Val;
use crate::custom::pattern;

/// What one expression may cost, as upstream has it.
const PER_EXPRESSION: u64 = 1_000_000;

/// What all expressions of one object may cost together, as upstream has it.
const PER_OBJECT: u64 = 10_000_000;

/// What reading a regular expression costs, beside its length.
const PER_REGEX: u64 = 1000;

/// Bytes of text that are one step.
const BYTES_PER_STEP: usize = 10;

/// What expressions may cost.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    left: u64,
    of_this: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: PER_OBJECT, of_this: PER_EXPRESSION }
    }
}

impl Budget {
    /// Whether nothing is left for any other expression.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Begins another expression.
    fn begin(&mut self) {
        self.of_this = PER_EXPRESSION;
    }

    fn pay(&mut self, steps: u64) -> Result<(), CelError> {
        self.left = self.left.saturating_sub(steps);
        self.of_this = self.of_this.saturating_sub(steps);
        if self.left == 0 || self.of_this == 0 { Err(CelError::Cost) } else { Ok(()) }
    }
}

/// One evaluation.
pub(super) struct Run<'v, 'b> {
    names: Vec<(&'v str, Val<'v>)>,
    /// Regular expressions that were read: the same one is asked of each item.
    regexes: HashMap<Arc<str>, Regex>,
    budget: &'b mut Budget,
}

pub(super) type Found<'v> = Result<Val<'v>, CelError>;

pub(super) fn failed<T>(text: impl Into<String>) -> Result<T, CelError> {
    Err(CelError::Failed(text.into()))
}

pub(super) fn no_overload<T>() -> Result<T, CelError> {
    failed("no such overload")
}

impl<'v, 'b> Run<'v, 'b> {
    pub(super) fn new(names: Vec<(&'v str, Val<'v>)>, budget: &'b mut Budget) -> Self {
        budget.begin();
        Self { names, regexes: HashMap::new(), budget }
    }

    /// Pays for work on values.
    pub(super) fn pay(&mut self, values: &[&Val<'v>]) -> Result<(), CelError> {
        let steps = values.iter().map(|value| match value {
            Val::Text(text) => text.len() / BYTES_PER_STEP,
            Val::Bytes(bytes) => bytes.len() / BYTES_PER_STEP,
            other => other.size(),
        });
        self.budget.pay(u64::try_from(steps.sum::<usize>()).unwrap_or(u64::MAX).saturating_add(1))
    }

    /// Pays for steps that are no work on values.
    pub(super) fn pay_steps(&mut self, steps: u64) -> Result<(), CelError> {
        self.budget.pay(steps)
    }

    /// Reads a regular expression, once.
    pub(super) fn regex(&mut self, text: &Arc<str>) -> Result<Regex, CelError> {
        if let Some(regex) = self.regexes.get(text) {
            return Ok(regex.clone());
        }
        let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
        self.budget.pay(PER_REGEX.saturating_add(length.saturating_mul(10)))?;
        match pattern::compile(text) {
            Ok(regex) => {
                self.regexes.insert(Arc::clone(text), regex.clone());
                Ok(regex)
            }
            Err(error) => failed(format!("error parsing regexp: {error}")),
        }
    }

    /// Pays for a comparison: all that lies in the smaller value may be looked at, and sets are compared each with each.
    fn pay_deep(&mut self, a: &Val<'v>, b: &Val<'v>) -> Result<(), CelError> {
        fn weight(value: &serde_json::Value) -> u64 {
            match value {
                serde_json::Value::Array(items) => items.iter().map(weight).sum::<u64>() + 1,
                serde_json::Value::Object(map) => map.values().map(weight).sum::<u64>() + 1,
                serde_json::Value::String(text) => u64::try_from(text.len() / BYTES_PER_STEP).unwrap_or(1) + 1,
                _ => 1,
            }
        }
        fn deep(value: &Val<'_>) -> u64 {
            match value {
                Val::JsonList(items, node) => {
                    let sum = items.iter().map(weight).sum::<u64>() + 1;
                    let set = node.is_some_and(|node| node.list != crate::custom::structural::ListType::Atomic);
                    if set { sum.saturating_mul(u64::try_from(items.len()).unwrap_or(u64::MAX).max(1)) } else { sum }
                }
                Val::JsonMap(map, _) => map.values().map(weight).sum::<u64>() + 1,
                Val::List(items) => items.iter().map(deep).fold(1, u64::saturating_add),
                Val::Map(entries) => {
                    let sum = entries.iter().map(|(_, value)| deep(value)).fold(1, u64::saturating_add);
                    sum.saturating_mul(u64::try_from(entries.len()).unwrap_or(u64::MAX).max(1))
                }
                other => u64::try_from(other.size() / BYTES_PER_STEP).unwrap_or(1) + 1,
            }
        }
        self.budget.pay(deep(a).min(deep(b).saturating_mul(2)).saturating_add(1))
    }

    pub(super) fn equal(&mut self, a: &Val<'v>, b: &Val<'v>) -> Result<bool, CelError> {
        self.pay_deep(a, b)?;
        Ok(a.equals(b))
    }

    pub(super) fn eval(&mut self, expr: &'v Expr) -> Found<'v> {
        self.budget.pay(1)?;
        match expr {
            Expr::Literal(literal) => Ok(match literal {
                Literal::Null => Val::Null,
                Literal::Bool(value) => Val::Bool(*value),
                Literal::Int(number) => Val::Int(*number),
                Literal::Uint(number) => Val::Uint(*number),
                Literal::Double(number) => Val::Double(*number),
                Literal::Text(text) => Val::text(text.as_str()),
                Literal::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
            }),
            Expr::Ident(name) => self.name(name),
            Expr::Select { of, field, optional } => {
                let of = self.eval(of)?;
                self.select(&of, field, *optional)
            }
            Expr::Has { of, field } => match self.eval(of)? {
                Val::Optional(inner) => Ok(Val::Bool(inner.is_some_and(|inner| inner.field(field).is_some()))),
                of @ (Val::Map(_) | Val::JsonMap(..)) => Ok(Val::Bool(of.field(field).is_some())),
                _ => no_overload(),
            },
            Expr::Index { of, index, optional } => {
                let (of, index) = (self.eval(of)?, self.eval(index)?);
                self.index(of, &index, *optional)
            }
            Expr::Call { on, name, args } => self.call(on.as_deref(), name, args),
            Expr::List(items) => {
                let items = items.iter().map(|item| self.eval(item)).collect::<Result<Vec<_>, _>>()?;
                Ok(Val::list(items))
            }
            Expr::Map(entries) => {
                let mut made: Vec<(Val<'v>, Val<'v>)> = Vec::new();
                for (key, value) in entries {
                    let (key, value) = (self.eval(key)?, self.eval(value)?);
                    if made.iter().any(|(own, _)| own.equals(&key)) {
                        return failed("Failed with repeated key");
                    }
                    made.push((key, value));
                }
                Ok(Val::Map(Arc::new(made)))
            }
            Expr::Not(of) => match self.eval(of)? {
                Val::Bool(value) => Ok(Val::Bool(!value)),
                _ => no_overload(),
            },
            Expr::Negate(of) => match self.eval(of)? {
                Val::Int(number) => number.checked_neg().map(Val::Int).ok_or_else(overflow),
                Val::Double(number) => Ok(Val::Double(-number)),
                Val::Span(span) => span.checked_neg().map(Val::Span).ok_or_else(overflow),
                _ => no_overload(),
            },
            Expr::Binary { sign, left, right } => {
                let (left, right) = (self.eval(left)?, self.eval(right)?);
                self.binary(sign, &left, &right)
            }
            Expr::Chain { and, parts } => self.chain(*and, parts),
            Expr::Choice { condition, yes, no } => match self.eval(condition)? {
                Val::Bool(true) => self.eval(yes),
                Val::Bool(false) => self.eval(no),
                _ => no_overload(),
            },
            Expr::Each { kind, range, one, two, body } => self.each(*kind, range, one, two.as_deref(), body),
            Expr::Bind { kind, name, value, body } => self.bind(*kind, name, value, body),
        }
    }

    fn name(&self, name: &str) -> Found<'v> {
        if let Some((_, value)) = self.names.iter().rev().find(|(own, _)| *own == name) {
            return Ok(value.clone());
        }
        const TYPES: [&str; 9] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type"];
        match TYPES.iter().find(|own| **own == name) {
            Some(name) => Ok(Val::Type(name)),
            None => failed(format!("no such attribute(s): {name}")),
        }
    }

    fn select(&self, of: &Val<'v>, field: &str, optional: bool) -> Found<'v> {
        match of {
            Val::Optional(inner) => {
                let found = inner.as_ref().and_then(|inner| inner.field(field));
                Ok(Val::Optional(found.map(Box::new)))
            }
            Val::Map(_) | Val::JsonMap(..) => match (of.field(field), optional) {
                (found, true) => Ok(Val::Optional(found.map(Box::new))),
                (Some(found), false) => Ok(found),
                (None, false) => failed(format!("no such key: {field}")),
            },
            _ => no_overload(),
        }
    }

    fn index(&mut self, of: Val<'v>, index: &Val<'v>, optional: bool) -> Found<'v> {
        let (of, optional, inside) = match of {
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => (*inner, true, true),
            other => (other, optional, false),
        };
        let found = match &of {
            Val::List(_) | Val::JsonList(..) => {
                let at = match index {
                    Val::Int(at) => *at,
                    Val::Uint(at) => i64::try_from(*at).unwrap_or(i64::MAX),
                    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
                    Val::Double(at) if at.fract() == 0.0 && at.abs() < 1e15 => *at as i64,
                    _ => return no_overload(),
                };
                let at_index = usize::try_from(at).ok();
                let found = match &of {
                    Val::JsonList(items, node) => at_index
                        .and_then(|at| items.get(at))
                        .map(|item| Val::of(item, node.and_then(|node| node.items.as_deref()))),
                    Val::List(items) => at_index.and_then(|at| items.get(at)).cloned(),
                    _ => None,
                };
                found.ok_or_else(|| format!("index out of bounds: {at}"))
            }
            Val::Map(_) | Val::JsonMap(..) => {
                self.pay(&[&of])?;
                of.get(index).ok_or_else(|| format!("no such key: {}", functions::shown(index)))
            }
            _ => return no_overload(),
        };
        match (found, optional || inside) {
            (found, true) => Ok(Val::Optional(found.ok().map(Box::new))),
            (Ok(found), false) => Ok(found),
            (Err(text), false) => failed(text),
        }
    }

    /// `&&` and `||`: one part that decides is enough, even beside one that fails.
    fn chain(&mut self, and: bool, parts: &'v [Expr]) -> Found<'v> {
        let mut failure = None;
        for part in parts {
            match self.eval(part) {
                Ok(Val::Bool(value)) if value != and => return Ok(Val::Bool(value)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => failure = failure.or_else(|| no_overload::<()>().err()),
                Err(CelError::Cost) => return Err(CelError::Cost),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(Val::Bool(and)), Err)
    }

    fn binary(&mut self, sign: &str, left: &Val<'v>, right: &Val<'v>) -> Found<'v> {
        match sign {
            "==" => self.equal(left, right).map(Val::Bool),
            "!=" => self.equal(left, right).map(|equal| Val::Bool(!equal)),
            "<" | "<=" | ">" | ">=" => {
                self.pay_deep(left, right)?;
                let Some(order) = left.order(right) else {
                    let numbers = |value: &Val<'v>| matches!(value, Val::Double(_) | Val::Int(_) | Val::Uint(_));
                    // Nothing is smaller or larger than what is no number.
                    return if numbers(left) && numbers(right) { Ok(Val::Bool(false)) } else { no_overload() };
                };
                Ok(Val::Bool(match sign {
                    "<" => order == Ordering::Less,
                    "<=" => order != Ordering::Greater,
                    ">" => order == Ordering::Greater,
                    _ => order != Ordering::Less,
                }))
            }
            "in" => self.contains(left, right),
            _ => self.arithmetic(sign, left, right),
        }
    }

    fn contains(&mut self, item: &Val<'v>, of: &Val<'v>) -> Found<'v> {
        self.pay(&[of])?;
        match of {
            Val::Map(_) | Val::JsonMap(..) => Ok(Val::Bool(of.get(item).is_some())),
            Val::List(_) | Val::JsonList(..) => {
                for other in of.items().unwrap_or_default() {
                    if self.equal(&other, item)? {
                        return Ok(Val::Bool(true));
                    }
                }
                Ok(Val::Bool(false))
            }
            _ => no_overload(),
        }
    }

    fn each(&mut self, kind: Each, range: &'v Expr, one: &'v str, two: Option<&'v str>, body: &'v [Expr]) -> Found<'v> {
        let range = self.eval(range)?;
        self.pay(&[&range])?;
        // With one variable a map is its keys; with two, a list is its places and items.
        let pairs: Vec<(Val<'v>, Option<Val<'v>>)> = if let Some(items) = range.items() {
            let at = |at: usize| Val::Int(i64::try_from(at).unwrap_or(i64::MAX));
            let numbered = items.into_iter().enumerate();
            numbered.map(|(index, item)| if two.is_some() { (at(index), Some(item)) } else { (item, None) }).collect()
        } else if let Some(entries) = range.entries() {
            entries.into_iter().map(|(key, value)| (key, Some(value))).collect()
        } else {
            return no_overload();
        };
        let depth = self.names.len();
        let (mut made, mut entries, mut count, mut failure) = (Vec::new(), Vec::new(), 0, None);
        for (first, second) in pairs {
            self.names.push((one, first.clone()));
            if let (Some(two), Some(second)) = (two, second) {
                self.names.push((two, second));
            }
            let outcome = self.step(kind, &first, body, &mut made, &mut entries);
            self.names.truncate(depth);
            match (kind, outcome) {
                (_, Err(CelError::Cost)) => return Err(CelError::Cost),
                (Each::All | Each::Exists, Err(error)) => failure = failure.or(Some(error)),
                (_, Err(error)) => return Err(error),
                (Each::All, Ok(false)) => return Ok(Val::Bool(false)),
                (Each::Exists, Ok(true)) => return Ok(Val::Bool(true)),
                (_, Ok(holds)) => count += usize::from(holds),
            }
        }
        match (kind, failure) {
            (_, Some(error)) => Err(error),
            (Each::All, None) => Ok(Val::Bool(true)),
            (Each::Exists, None) => Ok(Val::Bool(false)),
            (Each::ExistsOne, None) => Ok(Val::Bool(count == 1)),
            (Each::Map | Each::Filter | Each::TransformList, None) => Ok(Val::list(made)),
            (Each::TransformMap, None) => Ok(Val::Map(Arc::new(entries))),
        }
    }

    fn truth(&mut self, expr: &'v Expr) -> Result<bool, CelError> {
        match self.eval(expr)? {
            Val::Bool(value) => Ok(value),
            _ => no_overload(),
        }
    }

    /// One item of a macro; returns whether it holds.
    fn step(
        &mut self,
        kind: Each,
        item: &Val<'v>,
        body: &'v [Expr],
        made: &mut Vec<Val<'v>>,
        entries: &mut Vec<(Val<'v>, Val<'v>)>,
    ) -> Result<bool, CelError> {
        match (kind, body) {
            (Each::All | Each::Exists | Each::ExistsOne, [condition]) => self.truth(condition),
            (Each::Filter, [condition]) => {
                let holds = self.truth(condition)?;
                if holds {
                    made.push(item.clone());
                }
                Ok(holds)
            }
            (Each::Map | Each::TransformList | Each::TransformMap, [.., value]) => {
                if let [condition, _] = body
                    && !self.truth(condition)?
                {
                    return Ok(false);
                }
                let value = self.eval(value)?;
                if kind == Each::TransformMap {
                    entries.push((item.clone(), value));
                } else {
                    made.push(value);
                }
                Ok(true)
            }
            _ => no_overload(),
        }
    }

    fn bind(&mut self, kind: Bind, name: &'v str, value: &'v Expr, body: &'v Expr) -> Found<'v> {
        let value = match (kind, self.eval(value)?) {
            (Bind::Plain, value) => value,
            (_, Val::Optional(None)) => return Ok(Val::Optional(None)),
            (_, Val::Optional(Some(value))) => *value,
            _ => return no_overload(),
        };
        self.names.push((name, value));
        let made = self.eval(body);
        self.names.pop();
        match kind {
            Bind::Plain | Bind::OptFlatMap => made,
            Bind::OptMap => made.map(|value| Val::Optional(Some(Box::new(value)))),
        }
    }

    fn call(&mut self, on: Option<&'v Expr>, name: &'v str, args: &'v [Expr]) -> Found<'v> {
        // `optional.of(x)`, `sets.contains(a, b)`, `math.…` are functions with a dot in their name.
        if let Some(Expr::Ident(place)) = on
            && functions::PLACES.contains(&place.as_str())
            && !self.names.iter().any(|(own, _)| own == place)
        {
            let args = args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
            return functions::placed(self, place, name, &args);
        }
        let on = on.map(|on| self.eval(on)).transpose()?;
        // Only evaluated where it is needed.
        if let (Some(Val::Optional(inner)), "orValue" | "or", [other]) = (&on, name, args) {
            return match (inner, name) {
                (Some(value), "orValue") => Ok((**value).clone()),
                (Some(value), _) => Ok(Val::Optional(Some(value.clone()))),
                (None, _) => self.eval(other),
            };
        }
        let args = args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<&Val<'v>> = on.iter().chain(&args).collect();
        self.pay(&all)?;
        match on {
            Some(on) => functions::method(self, &on, name, &args),
            None => functions::function(self, name, &args),
        }
    }
}

pub(super) fn overflow() -> CelError {
    CelError::Failed("integer overflow".to_owned())
}
