//! What an expression may cost at most, estimated before it runs, as upstream does it: each step costs one, a look through a
//! text a tenth for each character, and a loop as often as its list can have items. Where upstream's estimate is not known, ours is low.

mod calls;
mod range;

use super::Known;
use super::parser::{Bind, Each, Expr, Literal};
use super::scope::{TYPES, Types, place};
use super::shape::{Base, Shape};
use super::types::Kind;
use range::Range;

/// What it costs to make a list, and a map.
const LIST: u64 = 10;
const MAP: u64 = 30;

/// Where a value comes from.
#[derive(Debug, Clone, Copy)]
enum Place<'s> {
    /// It is made by the expression.
    Made,
    /// A variable or something in it.
    At(&'s Shape),
    /// A key of a map.
    Key,
    /// Somewhere in a variable of which nothing is known.
    Lost,
}

impl<'s> Place<'s> {
    fn of(shape: Option<&'s Shape>) -> Self {
        shape.map_or(Self::Lost, Self::At)
    }

    fn size(self) -> Option<Range> {
        match self {
            Self::At(shape) => Some(Range { least: 0, most: shape.most }),
            Self::Key => Some(Range { least: 0, most: 0 }),
            Self::Made | Self::Lost => None,
        }
    }
}

/// Sizes of the keys and of the values in a list or map.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: Range,
    value: Range,
}

impl Entry {
    fn or(self, other: Self) -> Self {
        Self { key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}

/// What is estimated of an expression.
#[derive(Debug, Clone, Copy)]
struct Estimate<'s> {
    cost: u64,
    size: Option<Range>,
    entry: Option<Entry>,
    place: Place<'s>,
}

impl Estimate<'_> {
    fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }
}

/// Estimates what an expression costs at most.
pub(super) fn most(expr: &Expr, names: &[Known<'_>], types: &Types<'_>) -> u64 {
    let root = names.iter().find(|name| name.name == "self").and_then(|name| name.shape);
    let known = names.iter().map(|name| {
        let place = Place::of(name.shape);
        (name.name.to_owned(), Estimate { cost: 1, size: None, entry: None, place })
    });
    Walk { known: known.collect(), root, types }.see(expr).cost
}

struct Walk<'s, 't> {
    known: Vec<(String, Estimate<'s>)>,
    root: Option<&'s Shape>,
    types: &'t Types<'s>,
}

impl<'s> Walk<'s, '_> {
    fn see(&mut self, expr: &Expr) -> Estimate<'s> {
        let mut found = self.estimate(expr);
        let scalar = || self.types.of(expr).is_scalar().then_some(Range::fixed(1));
        // A variable of a macro has the size of its schema, if it has one, before that of what it was bound to.
        let bound = if matches!(expr, Expr::Ident(_)) { found.size.take() } else { None };
        found.size = found.size.or_else(|| found.place.size()).or_else(scalar).or(bound);
        found
    }

    fn made(cost: u64, size: Option<Range>) -> Estimate<'s> {
        Estimate { cost, size, entry: None, place: Place::Made }
    }

    /// Goes one step from a place. What was made has none: upstream then looks at the rule's own value.
    fn step(&self, from: Place<'s>, to: impl FnOnce(&'s Shape) -> Option<&'s Shape>) -> Place<'s> {
        match from {
            Place::Made => Place::of(self.root),
            Place::At(shape) => Place::of(to(shape)),
            Place::Key | Place::Lost => Place::Lost,
        }
    }

    fn item(&self, from: Place<'s>) -> Place<'s> {
        self.step(from, |shape| shape.item.as_deref())
    }

    fn key(&self, from: Place<'s>) -> Place<'s> {
        match from {
            Place::At(shape) if shape.base == Base::Map => Place::Key,
            Place::Made => Place::of(self.root),
            Place::At(_) | Place::Key | Place::Lost => Place::Lost,
        }
    }

    fn estimate(&mut self, expr: &Expr) -> Estimate<'s> {
        match expr {
            Expr::Literal(literal) => Self::made(0, Some(Range::fixed(length(literal)))),
            Expr::Ident(name) => match self.known.iter().rev().find(|(own, _)| own == name) {
                Some((_, known)) => Estimate { cost: 1, ..*known },
                None if TYPES.contains(&name.as_str()) => {
                    Estimate { place: Place::of(self.root), ..Self::made(1, None) }
                }
                None => Self::made(1, None),
            },
            Expr::Select { of, field, optional } => {
                let below = self.see(of);
                let own = match self.types.of(of) {
                    Kind::Map(..) | Kind::Object(_) => 1,
                    _ => u64::from(*optional),
                };
                let place = self.step(below.place, |shape| shape.field(field));
                Estimate { place, ..Self::made(below.cost.saturating_add(own), None) }
            }
            Expr::Has { of, .. } => Self::made(self.see(of).cost, None),
            Expr::Index { of, index, .. } => {
                let (below, index) = (self.see(of), self.see(index));
                let place = self.item(below.place);
                let size = below.entry.map(|entry| entry.value);
                Estimate { place, ..Self::made(sum([below.cost, index.cost, 1]), size) }
            }
            Expr::List(items) => {
                let items: Vec<Estimate<'s>> = items.iter().map(|item| self.see(item)).collect();
                let entry = Entry { key: Range::fixed(1), value: all(&items) };
                let cost = sum(items.iter().map(|item| item.cost)).saturating_add(LIST);
                Estimate { entry: Some(entry), ..Self::made(cost, Some(Range::count(items.len()))) }
            }
            Expr::Map(entries) => {
                let keys: Vec<Estimate<'s>> = entries.iter().map(|(key, _)| self.see(key)).collect();
                let values: Vec<Estimate<'s>> = entries.iter().map(|(_, value)| self.see(value)).collect();
                let entry = Entry { key: all(&keys), value: all(&values) };
                let cost = sum(keys.iter().chain(&values).map(|part| part.cost)).saturating_add(MAP);
                Estimate { entry: Some(entry), ..Self::made(cost, Some(Range::count(entries.len()))) }
            }
            Expr::Not(of) | Expr::Negate(of) => Self::made(self.see(of).cost.saturating_add(1), None),
            Expr::Binary { sign, left, right } => {
                let (left, right) = (self.see(left), self.see(right));
                self.binary(expr, sign, &left, &right)
            }
            Expr::Chain { parts, .. } => {
                let costs: Vec<u64> = parts.iter().map(|part| self.see(part).cost).collect();
                Self::made(sum(costs), None)
            }
            Expr::Choice { condition, yes, no } => {
                let (condition, yes, no) = (self.see(condition), self.see(yes), self.see(no));
                let entry = yes.entry.zip(no.entry).map(|(yes, no)| yes.or(no));
                let cost = condition.cost.saturating_add(yes.cost.max(no.cost));
                Estimate { entry, ..Self::made(cost, Some(yes.size().or(no.size()))) }
            }
            Expr::Each { kind, range, one, two, body } => {
                let is_list = matches!(self.types.of(range), Kind::List(_));
                let range = self.see(range);
                self.each(*kind, &range, is_list, (one, two.as_deref()), body)
            }
            Expr::Bind { kind, name, value, body } => {
                let value = self.see(value);
                self.known.push((name.clone(), value));
                let body = self.see(body);
                self.known.pop();
                let cost = sum([LIST, value.cost, body.cost]);
                match kind {
                    Bind::Plain => Estimate { place: Place::Made, ..body }.costing(cost),
                    // The optional is asked whether it has a value, and for it.
                    Bind::OptMap => body.costing(sum([cost, value.cost, 3])),
                    Bind::OptFlatMap => body.costing(sum([cost, value.cost, 2])),
                }
            }
            Expr::Call { on, name, args } => {
                let place = place(on.as_deref(), &self.known);
                let target = on.as_deref().filter(|_| place.is_none());
                let seen = target.map(|target| self.see(target));
                let args: Vec<Estimate<'s>> = args.iter().map(|arg| self.see(arg)).collect();
                let own = match place {
                    Some(place) => self.placed(expr, place, name, &args),
                    None => self.called(expr, name, target.zip(seen.as_ref()), &args),
                };
                let below = seen.iter().chain(&args).map(|part| part.cost);
                let cost = sum(below).saturating_add(own.cost);
                own.costing(cost)
            }
        }
    }

    /// A loop costs what its list can have items; what it keeps books with costs, too.
    fn each(
        &mut self,
        kind: Each,
        range: &Estimate<'s>,
        is_list: bool,
        names: (&str, Option<&str>),
        body: &[Expr],
    ) -> Estimate<'s> {
        let (key, item) = (self.key(range.place), self.item(range.place));
        let variable = |place, size| Estimate { place, ..Self::made(1, size) };
        let keys = variable(key, range.entry.map(|entry| entry.key));
        let items = variable(item, range.entry.map(|entry| entry.value));
        let depth = self.known.len();
        match names.1 {
            None => self.known.push((names.0.to_owned(), if is_list { items } else { keys })),
            Some(two) => {
                self.known.push((names.0.to_owned(), if is_list { variable(Place::Lost, None) } else { keys }));
                self.known.push((two.to_owned(), items));
            }
        }
        let parts: Vec<Estimate<'s>> = body.iter().map(|part| self.see(part)).collect();
        let one = self.see(&Expr::Ident(names.0.to_owned()));
        self.known.truncate(depth);
        let times = range.size().most;
        let inner = sum(parts.iter().map(|part| part.cost));
        let (begin, step, end) = match kind {
            Each::All => (0, 3, 1),
            Each::Exists => (0, 4, 1),
            Each::ExistsOne => (0, 2, 2),
            Each::Map | Each::TransformList => (LIST, LIST + 2, 1),
            Each::Filter => (LIST, LIST + 3, 1),
            Each::TransformMap => (MAP, 3, 1),
        };
        let cost = sum([range.cost, begin, end, times.saturating_mul(inner.saturating_add(step))]);
        let kept = |part: Option<&Estimate<'s>>| {
            let value = part.map_or(Range::UNKNOWN, Estimate::size);
            Some(Entry { key: Range::fixed(1), value: Range { least: 0, ..value } })
        };
        match kind {
            Each::All | Each::Exists | Each::ExistsOne => Self::made(cost, Some(Range::fixed(1))),
            Each::TransformMap => Self::made(cost, Some(range.size())),
            Each::Filter => Estimate { entry: kept(Some(&one)), ..Self::made(cost, Some(range.size())) },
            Each::Map | Each::TransformList => {
                Estimate { entry: kept(parts.last()), ..Self::made(cost, Some(range.size())) }
            }
        }
    }
}

impl Estimate<'_> {
    fn costing(self, cost: u64) -> Self {
        Self { cost, ..self }
    }
}

fn sum(costs: impl IntoIterator<Item = u64>) -> u64 {
    costs.into_iter().fold(0, u64::saturating_add)
}

/// Returns the size that covers all parts.
fn all(parts: &[Estimate<'_>]) -> Range {
    parts.iter().map(Estimate::size).reduce(Range::or).unwrap_or(Range { least: 0, most: 0 })
}

fn length(literal: &Literal) -> u64 {
    match literal {
        Literal::Text(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        Literal::Null | Literal::Bool(_) | Literal::Int(_) | Literal::Uint(_) | Literal::Double(_) => 1,
    }
}

#[cfg(test)]
mod tests;
