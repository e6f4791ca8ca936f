//! JSONPath as columns use it: fields, indices, slices, wildcards, `..` and filters by comparison.

use serde_json::Value;

/// Longest path that is read.
const MAX_LENGTH: usize = 4096;

/// Most values that a path finds.
const MAX_FOUND: usize = 10_000;

/// A path.
#[derive(Debug, Clone, PartialEq)]
pub struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// A field.
    Field(String),
    /// Every field or item.
    Every,
    /// An item, counted from the end if negative.
    Item(i64),
    /// Items from, to, by.
    Slice(Option<i64>, Option<i64>, i64),
    /// The value and all below it.
    Deep,
    /// Items for which this holds.
    Filter(Operand, Option<(Compare, Operand)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    /// Of the item.
    Path(Path),
    Value(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A path that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(String);

impl Path {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.len() > MAX_LENGTH {
            return Err(PathError("path is too long".to_owned()));
        }
        let mut reader = Reader { text, at: 0 };
        if reader.rest().starts_with('$') || reader.rest().starts_with('@') {
            reader.at = 1;
        }
        let path = reader.steps()?;
        if reader.rest().is_empty() { Ok(path) } else { Err(reader.unexpected()) }
    }

    /// Returns what the path finds, in order.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                step.take(value, &mut next);
                if next.len() > MAX_FOUND {
                    next.truncate(MAX_FOUND);
                    break;
                }
            }
            found = next;
        }
        found
    }

    /// Whether it is made of plain fields alone.
    pub fn is_simple(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|step| matches!(step, Step::Field(_)))
    }
}

impl Step {
    fn take<'v>(&self, value: &'v Value, found: &mut Vec<&'v Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => found.extend(map.get(name)),
            (Self::Every, Value::Object(map)) => found.extend(map.values()),
            (Self::Every, Value::Array(items)) => found.extend(items),
            (Self::Item(index), Value::Array(items)) => {
                let at = if *index < 0 { *index + length(items) } else { *index };
                found.extend(usize::try_from(at).ok().and_then(|at| items.get(at)));
            }
            (Self::Slice(from, to, by), Value::Array(items)) => {
                let bound = |at: i64| if at < 0 { at + length(items) } else { at }.clamp(0, length(items));
                let (from, to) = (bound(from.unwrap_or(0)), bound(to.unwrap_or_else(|| length(items))));
                let (from, to) = (usize::try_from(from).unwrap_or(0), usize::try_from(to).unwrap_or(0));
                let by = usize::try_from(*by).unwrap_or(1).max(1);
                found.extend(items.get(from..to).into_iter().flatten().step_by(by));
            }
            (Self::Deep, value) => deep(value, found),
            (Self::Filter(left, right), Value::Array(items)) => {
                found.extend(items.iter().filter(|item| holds(item, left, right.as_ref())));
            }
            _ => {}
        }
    }
}

fn length(items: &[Value]) -> i64 {
    i64::try_from(items.len()).unwrap_or(i64::MAX)
}

/// Values are no deeper than JSON is read.
fn deep<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    if found.len() > MAX_FOUND {
        return;
    }
    found.push(value);
    match value {
        Value::Object(map) => map.values().for_each(|below| deep(below, found)),
        Value::Array(items) => items.iter().for_each(|below| deep(below, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn holds(item: &Value, left: &Operand, right: Option<&(Compare, Operand)>) -> bool {
    let value = |operand: &Operand| match operand {
        Operand::Path(path) => path.find(item).first().map(|value| (*value).clone()),
        Operand::Value(value) => Some(value.clone()),
    };
    let Some(left) = value(left) else { return false };
    let Some((compare, right)) = right else { return true };
    let Some(right) = value(right) else { return false };
    let order = match (&left, &right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    let Some(order) = order else { return *compare == Compare::Unequal };
    match compare {
        Compare::Equal => order.is_eq(),
        Compare::Unequal => order.is_ne(),
        Compare::Less => order.is_lt(),
        Compare::LessOrEqual => order.is_le(),
        Compare::Greater => order.is_gt(),
        Compare::GreaterOrEqual => order.is_ge(),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn eat(&mut self, what: &str) -> bool {
        let eats = self.rest().starts_with(what);
        self.at += if eats { what.len() } else { 0 };
        eats
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn unexpected(&self) -> PathError {
        PathError(format!("unrecognized character in action: {:?}", self.rest().chars().next().unwrap_or(' ')))
    }

    fn steps(&mut self) -> Result<Path, PathError> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                steps.push(Step::Deep);
                if !self.rest().starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.eat(".") {
                if self.rest().starts_with('[') {
                    continue;
                }
                steps.push(self.field()?);
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(Path(steps));
            }
        }
    }

    fn field(&mut self) -> Result<Step, PathError> {
        let mut name = String::new();
        let mut characters = self.rest().chars();
        while let Some(character) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some(escaped) => {
                        name.push(escaped);
                        self.at += 1 + escaped.len_utf8();
                    }
                    None => return Err(PathError("unexpected end of path".to_owned())),
                },
                '.' | '[' | ']' | '(' | ')' | ' ' | '=' | '!' | '<' | '>' | '&' | '|' | '{' | '}' => break,
                other => {
                    name.push(other);
                    self.at += other.len_utf8();
                }
            }
        }
        match name.as_str() {
            "" => Err(self.unexpected()),
            "*" => Ok(Step::Every),
            _ => Ok(Step::Field(name)),
        }
    }

    fn bracket(&mut self) -> Result<Step, PathError> {
        self.space();
        let step = if self.eat("?(") {
            self.filter()?
        } else if let Some(text) = self.quoted()? {
            Step::Field(text)
        } else {
            let end = self.rest().find(']').ok_or_else(|| PathError("unterminated array".to_owned()))?;
            let inner = self.rest().get(..end).unwrap_or("").trim();
            self.at += end;
            if inner == "*" { Step::Every } else { Self::index(inner)? }
        };
        self.space();
        if self.eat("]") { Ok(step) } else { Err(PathError("unterminated array".to_owned())) }
    }

    fn index(inner: &str) -> Result<Step, PathError> {
        let bad = || PathError(format!("invalid array index {inner}"));
        let number = |text: &str| -> Result<Option<i64>, PathError> {
            if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| bad()) }
        };
        let parts: Vec<&str> = inner.split(':').map(str::trim).collect();
        match parts.as_slice() {
            [one] => number(one)?.map(Step::Item).ok_or_else(bad),
            [from, to] => Ok(Step::Slice(number(from)?, number(to)?, 1)),
            [from, to, by] => Ok(Step::Slice(number(from)?, number(to)?, number(by)?.unwrap_or(1))),
            _ => Err(bad()),
        }
    }

    fn quoted(&mut self) -> Result<Option<String>, PathError> {
        let Some(quote) = self.rest().chars().next().filter(|first| matches!(first, '"' | '\'')) else {
            return Ok(None);
        };
        let mut text = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.at += at + 1;
                return Ok(Some(text));
            }
            match character {
                '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
                other => text.push(other),
            }
        }
        Err(PathError("unterminated quoted string".to_owned()))
    }

    /// Reads what stands in `[?(…)]`, without the last bracket.
    fn filter(&mut self) -> Result<Step, PathError> {
        self.space();
        let left = self.operand()?;
        self.space();
        let compare = [
            ("==", Compare::Equal),
            ("!=", Compare::Unequal),
            ("<=", Compare::LessOrEqual),
            (">=", Compare::GreaterOrEqual),
            ("<", Compare::Less),
            (">", Compare::Greater),
        ];
        let compare = compare.into_iter().find(|(word, _)| self.eat(word)).map(|(_, compare)| compare);
        let right = match compare {
            Some(compare) => {
                self.space();
                Some((compare, self.operand()?))
            }
            None => None,
        };
        self.space();
        if self.eat(")") { Ok(Step::Filter(left, right)) } else { Err(PathError("unterminated filter".to_owned())) }
    }

    fn operand(&mut self) -> Result<Operand, PathError> {
        if let Some(text) = self.quoted()? {
            return Ok(Operand::Value(text.into()));
        }
        if self.eat("@") || self.rest().starts_with('.') {
            // A filter inside a filter would nest without end.
            let before = self.at;
            let path = self.steps()?;
            let nests = path.0.iter().any(|step| matches!(step, Step::Filter(..)));
            return if nests {
                self.at = before;
                Err(self.unexpected())
            } else {
                Ok(Operand::Path(path))
            };
        }
        let end = self.rest().find([')', ' ', '=', '!', '<', '>']).unwrap_or_else(|| self.rest().len());
        let word = self.rest().get(..end).unwrap_or("");
        let value = serde_json::from_str::<Value>(word).map_err(|_| self.unexpected())?;
        self.at += end;
        Ok(Operand::Value(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(path: &str) -> Vec<Value> {
        let value = json!({"spec": {"a": 1, "a.b/c": 2, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}, {"n": "z", "v": 3}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}});
        Path::parse(path).unwrap().find(&value).into_iter().cloned().collect()
    }

    #[test]
    fn paths_find_what_upstream_finds() {
        for (path, want) in [
            (".spec.a", json!([1])),
            ("$.spec.a", json!([1])),
            (".spec.a\\.b/c", json!([2])),
            (".spec['a.b/c']", json!([2])),
            (".spec.list[0].n", json!(["x"])),
            (".spec.list[-1].n", json!(["z"])),
            (".spec.list[9].n", json!([])),
            (".spec.list[*].v", json!([1, 2, 3])),
            (".spec.list[0:2].v", json!([1, 2])),
            (".spec.list[::2].v", json!([1, 3])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type == 'Nope')].status", json!([])),
            (".spec.list[?(@.v>1)].n", json!(["y", "z"])),
            (".spec.list[?(@.v)].n", json!(["x", "y", "z"])),
            ("..type", json!(["Ready", "Other"])),
            (".nope.deeper", json!([])),
        ] {
            assert_eq!(json!(found(path)), want, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_refused() {
        for bad in [".", ".a[", ".a[x]", ".a[?(@.b==]", ".a['b", ".a b", "a", ".a[1:2:3:4]", ".a\\", "[?(@[?(@.a)].b)]"]
        {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
        assert!(Path::parse(&".a".repeat(5000)).is_err());
        assert!(Path::parse(".a.b").unwrap().is_simple() && !Path::parse(".a[0]").unwrap().is_simple());
    }
}
