//! What functions and operators cost, and how large what they give can be.

use super::range::{CHARACTER, PATTERN, Range};
use super::{Estimate, LIST, Place, Walk, sum};
use crate::cel::parser::{Expr, Literal};
use crate::cel::types::Kind;

/// How long a number, a time or an address is at most as a text.
const SCALAR: u64 = 64;

/// How long the regular expression of a named format is taken for.
const NAMED: u64 = 128;

impl<'s> Walk<'s, '_> {
    /// An operator between two values, with what these cost.
    pub(super) fn binary(&self, expr: &Expr, sign: &str, left: &Estimate<'s>, right: &Estimate<'s>) -> Estimate<'s> {
        let below = left.cost.saturating_add(right.cost);
        let forms = self.types.forms(expr);
        let texts = forms.iter().any(|form| form.starts_with("ss") || form.starts_with("yy"));
        let smaller = || Range::fixed(left.size().most.min(right.size().most)).cost(CHARACTER);
        match sign {
            "==" | "!=" => {
                let (Expr::Binary { left, right, .. }, true) = (expr, left.size.is_none() && right.size.is_none())
                else {
                    return Self::made(below.saturating_add(smaller()), None);
                };
                // Neither size is known: so it is for values that are no texts, lists or maps, and comparing them costs little.
                let large = |part: &Expr| {
                    matches!(self.types.of(part), Kind::Text | Kind::Bytes | Kind::List(_) | Kind::Map(..))
                };
                let own = if large(left) && large(right) { smaller() } else { 1 };
                Self::made(below.saturating_add(own), None)
            }
            "<" | "<=" | ">" | ">=" => {
                let others = forms.iter().any(|form| !form.starts_with("ss") && !form.starts_with("yy"));
                let own = if texts { smaller().max(u64::from(others)) } else { 1 };
                Self::made(below.saturating_add(own), None)
            }
            "in" => {
                let own = if forms.contains(&"ALA:b") { right.size().most } else { 1 };
                Self::made(below.saturating_add(own), None)
            }
            "+" => {
                let size = left.size().plus(right.size());
                let lists = forms.contains(&"LALA:LA");
                let own = if texts { size.cost(CHARACTER).max(1) } else { 1 };
                let entry = left.entry.zip(right.entry).map(|(left, right)| left.or(right));
                let size = (texts || lists).then_some(size);
                Estimate { entry, ..Self::made(below.saturating_add(own), size) }
            }
            _ => Self::made(below.saturating_add(1), None),
        }
    }

    /// A function with a place in front, without what its arguments cost.
    pub(super) fn placed(&self, expr: &Expr, place: &str, name: &str, args: &[Estimate<'s>]) -> Estimate<'s> {
        match (place, name, args) {
            ("sets", _, [a, b]) => {
                let pairs = a.size().times(b.size());
                let each = if name == "equivalent" { 2.0 } else { 1.0 };
                Self::made(pairs.cost(each).saturating_add(1), None)
            }
            ("strings", _, [text]) => {
                let size = text.size();
                let quoted = size.plus(Range { least: 0, most: size.most }).plus(Range::fixed(2));
                Self::made(size.cost(CHARACTER), Some(quoted))
            }
            ("lists", _, [_]) => {
                let most = match expr {
                    Expr::Call { args, .. } => whole(args.first()).unwrap_or(u64::MAX),
                    _ => u64::MAX,
                };
                Self::made(sum([most, LIST, 1]), Some(Range::fixed(most)))
            }
            // What is in it is as large as before.
            ("optional", _, [value]) => Estimate { place: Place::Made, ..*value }.costing(1),
            _ => Self::made(1, None),
        }
    }

    /// A function or a method (`on` stands in front), without what its arguments cost.
    pub(super) fn called(
        &self,
        expr: &Expr,
        name: &str,
        on: Option<(&Expr, &Estimate<'s>)>,
        args: &[Estimate<'s>],
    ) -> Estimate<'s> {
        let one = Self::made(1, None);
        match (on, name, args) {
            (None, "dyn", [value]) => Estimate { place: Place::Made, ..*value }.costing(1),
            (None, "url", [text]) => Self::made(text.size().cost(CHARACTER), None),
            (None, "string", [value]) if self.types.forms(expr).contains(&"y:s") => {
                let size = value.size();
                Self::made(size.cost(CHARACTER).max(1), Some(Range { least: size.least / 4, most: size.most }))
            }
            // Upstream takes this size for unknown; but its own examples put numbers into messages this way.
            (None, "string", [value]) => {
                let forms = self.types.forms(expr);
                let small = |form: &&&str| !matches!(**form, "s:s" | "y:s");
                let scalar = !forms.is_empty() && forms.iter().all(|form| small(&form));
                Self::made(1, if scalar { Some(Range { least: 0, most: SCALAR }) } else { value.size })
            }
            (None, "bytes", [text]) if self.types.forms(expr).contains(&"s:y") => {
                let size = text.size();
                Self::made(size.cost(CHARACTER), Some(Range { least: size.least, most: size.most.saturating_mul(4) }))
            }
            (None, ..) => one,
            (Some((_, on)), "orValue" | "or", [other]) => Self::made(1, on.size.zip(other.size).map(|(a, b)| a.or(b))),
            (Some((_, on)), "value", []) => Estimate { cost: 1, ..*on },
            (Some((target, on)), _, _) => self.method(expr, name, (target, on), args).unwrap_or(one),
        }
    }

    fn method(
        &self,
        expr: &Expr,
        name: &str,
        (target, on): (&Expr, &Estimate<'s>),
        args: &[Estimate<'s>],
    ) -> Option<Estimate<'s>> {
        let size = on.size();
        let kind = self.types.of(target);
        let list = matches!(kind, Kind::List(_));
        let text = |text: &Estimate<'_>| text.size().cost(CHARACTER);
        Some(match (name, args) {
            ("isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf", _) => match kind {
                Kind::List(item) => {
                    let large = matches!(**item, Kind::Text | Kind::Bytes);
                    let own = if large { self.item_size(on).cost(CHARACTER).saturating_add(1) } else { 1 };
                    Self::made(size.most.saturating_mul(own), None)
                }
                _ => Self::made(size.cost(CHARACTER), None),
            },
            ("lowerAscii" | "upperAscii" | "substring" | "trim", _) => Self::made(size.cost(CHARACTER), Some(size)),
            ("replace", [old, new, ..]) => {
                Self::made(size.cost(2.0 * CHARACTER), Some(replaced(size, old.size(), new.size())))
            }
            ("split", _) => {
                let Expr::Call { args, .. } = expr else { return None };
                let most = whole(args.get(1)).unwrap_or(size.most);
                Self::made(size.cost(2.0 * CHARACTER), Some(Range { least: 0, most }))
            }
            ("join", _) => {
                let between = Range { least: size.least.saturating_sub(1), most: size.most.saturating_sub(1) };
                let texts = if list { size.times(self.item_size(on)) } else { Range::fixed(0) };
                let separators = args.first().map_or(Range::fixed(0), |mark| mark.size().times(between));
                let made = texts.plus(separators);
                Self::made(made.cost(CHARACTER), Some(made))
            }
            ("find" | "findAll" | "matches", [pattern, ..]) => {
                // One more, so that a costly expression costs on an empty text, too.
                let cost = size.plus(Range::fixed(1)).cost(CHARACTER).saturating_mul(pattern.size().cost(PATTERN));
                let made = Range { least: 0, most: size.most };
                Self::made(cost, (name != "matches").then_some(made))
            }
            ("validate", [value]) => Self::made(text(value).saturating_mul(Range::fixed(NAMED).cost(PATTERN)), None),
            ("contains", [part]) => Self::made(text(on).saturating_mul(text(part)), None),
            ("startsWith" | "endsWith", [part]) => Self::made(text(part), None),
            ("format", [values]) => Self::made(text(on), Some(size.plus(values.size()))),
            ("containsIP" | "containsCIDR", [other]) => {
                let parsed = if self.types.forms(expr).contains(&"cs:b") { text(other) } else { 0 };
                Self::made(sum([parsed, if name == "containsIP" { 4 } else { 7 }]), None)
            }
            ("slice" | "reverse" | "flatten", _) if list => {
                Estimate { entry: on.entry, ..Self::made(sum([size.most, LIST, 1]), Some(size)) }
            }
            ("distinct" | "sort", _) if list => {
                let pairs = size.times(size);
                let large = name == "sort" && matches!(kind, Kind::List(item) if matches!(**item, Kind::Text));
                let each = if large { 2.0 + CHARACTER } else { 2.0 };
                Estimate { entry: on.entry, ..Self::made(sum([pairs.cost(each), LIST, 1]), Some(size)) }
            }
            _ => return None,
        })
    }

    /// Returns how large items of a list can be. One that the expression makes has no schema.
    fn item_size(&self, list: &Estimate<'s>) -> Range {
        match list.place {
            Place::Made => list.entry.map_or(Range::UNKNOWN, |entry| entry.value),
            place => self.item(place).size().unwrap_or(Range::UNKNOWN),
        }
    }
}

/// Returns a number that is written out.
fn whole(expr: Option<&Expr>) -> Option<u64> {
    let Some(Expr::Literal(Literal::Int(number))) = expr else { return None };
    u64::try_from(*number).ok()
}

/// Returns how large a text can be in which another one was replaced.
fn replaced(size: Range, old: Range, new: Range) -> Range {
    let most = if old.least == 0 {
        // Between all characters, and at both ends.
        size.most.saturating_add(1).saturating_mul(new.most).saturating_add(size.most)
    } else if new.most <= old.least {
        size.most
    } else {
        size.most.div_ceil(old.least).saturating_mul(new.most)
    };
    let least = if old.most == 0 {
        size.least.saturating_add(1).saturating_mul(new.least).saturating_add(size.least)
    } else if old.most <= new.least {
        size.least
    } else {
        size.least.div_ceil(old.most).saturating_mul(new.least)
    };
    Range { least, most }
}
