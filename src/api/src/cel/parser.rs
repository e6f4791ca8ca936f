//! Expressions as trees. Macros are parts of the tree, not rewritten into loops.

use super::lexer::{Token, syntax, words};

/// Longest expression that is read.
const MAX_LENGTH: usize = 64 << 10;

/// Deepest expression that is read.
const MAX_DEPTH: u32 = 64;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    Literal(Literal),
    Ident(String),
    /// `a.b`, `a.?b`.
    Select {
        of: Box<Self>,
        field: String,
        optional: bool,
    },
    /// `has(a.b)`.
    Has {
        of: Box<Self>,
        field: String,
    },
    /// `a[b]`, `a[?b]`.
    Index {
        of: Box<Self>,
        index: Box<Self>,
        optional: bool,
    },
    Call {
        on: Option<Box<Self>>,
        name: String,
        args: Vec<Self>,
    },
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Not(Box<Self>),
    Negate(Box<Self>),
    Binary {
        sign: &'static str,
        left: Box<Self>,
        right: Box<Self>,
    },
    /// `a && b && …`, `a || b || …`.
    Chain {
        and: bool,
        parts: Vec<Self>,
    },
    Choice {
        condition: Box<Self>,
        yes: Box<Self>,
        no: Box<Self>,
    },
    /// A macro over a list or map.
    Each {
        kind: Each,
        range: Box<Self>,
        one: String,
        two: Option<String>,
        body: Vec<Self>,
    },
    /// A name for a value: `cel.bind`, `optMap`, `optFlatMap`.
    Bind {
        kind: Bind,
        name: String,
        value: Box<Self>,
        body: Box<Self>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Each {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bind {
    Plain,
    OptMap,
    OptFlatMap,
}

impl Expr {
    /// Calls a function for each part.
    pub(super) fn parts<'e>(&'e self, see: &mut dyn FnMut(&'e Self)) {
        match self {
            Self::Literal(_) | Self::Ident(_) => {}
            Self::Select { of, .. } | Self::Has { of, .. } => see(of),
            Self::Index { of, index, .. } => [of, index].into_iter().for_each(|part| see(part)),
            Self::Call { on, args, .. } => on.as_deref().into_iter().chain(args).for_each(see),
            Self::List(items) | Self::Chain { parts: items, .. } => items.iter().for_each(see),
            Self::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).for_each(see),
            Self::Not(of) | Self::Negate(of) => see(of),
            Self::Binary { left, right, .. } => [left, right].into_iter().for_each(|part| see(part)),
            Self::Choice { condition, yes, no } => [condition, yes, no].into_iter().for_each(|part| see(part)),
            Self::Each { range, body, .. } => std::iter::once(&**range).chain(body).for_each(see),
            Self::Bind { value, body, .. } => [value, body].into_iter().for_each(|part| see(part)),
        }
    }

    /// Whether a name stands anywhere.
    pub(super) fn uses(&self, name: &str) -> bool {
        if matches!(self, Self::Ident(own) if own == name) {
            return true;
        }
        let mut found = false;
        self.parts(&mut |part| found = found || part.uses(name));
        found
    }
}

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Expr, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!(
            "ERROR: <input>:1:1: expression code point size exceeds limit: size: {}, limit {MAX_LENGTH}",
            text.len()
        ));
    }
    let mut parser = Parser { text, words: words(text)?, at: 0, depth: 0, height: 0 };
    let expr = parser.choice()?;
    if parser.at < parser.words.len() { Err(parser.unexpected()) } else { Ok(expr) }
}

struct Parser<'t> {
    text: &'t str,
    words: Vec<(usize, Token)>,
    at: usize,
    /// How many expressions are open.
    depth: u32,
    /// How deep the expression is that was read last.
    height: u32,
}

/// How tightly signs between two operands bind.
fn strength(sign: &str) -> Option<u8> {
    Some(match sign {
        "||" => 1,
        "&&" => 2,
        "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" => 3,
        "+" | "-" => 4,
        "*" | "/" | "%" => 5,
        _ => return None,
    })
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.words.get(self.at).map(|(_, token)| token)
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(own)) if *own == sign)
    }

    fn eat(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        self.at += usize::from(is);
        is
    }

    fn need(&mut self, sign: &str) -> Result<(), String> {
        if self.eat(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> String {
        let at = self.words.get(self.at).map_or(self.text.len(), |(at, _)| *at);
        let detail = match self.text.get(at..).and_then(|rest| rest.split_whitespace().next()) {
            Some(word) => format!("Syntax error: mismatched input '{}'", word.chars().take(20).collect::<String>()),
            None => "Syntax error: mismatched input '<EOF>'".to_owned(),
        };
        syntax(self.text, at, &detail)
    }

    /// Takes note of how deep an expression is that holds the one read last and others.
    fn above(&mut self, others: u32) -> Result<(), String> {
        self.height = self.height.max(others) + 1;
        if self.height > MAX_DEPTH { Err(self.too_deep()) } else { Ok(()) }
    }

    fn too_deep(&self) -> String {
        syntax(self.text, 0, &format!("expression recursion limit exceeded: {MAX_DEPTH}"))
    }

    fn choice(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.too_deep());
        }
        let condition = self.binary(1)?;
        let mut height = self.height;
        let expr = if self.eat("?") {
            let yes = self.binary(1)?;
            height = height.max(self.height);
            self.need(":")?;
            let no = self.choice()?;
            self.above(height)?;
            Expr::Choice { condition: Box::new(condition), yes: Box::new(yes), no: Box::new(no) }
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn binary(&mut self, least: u8) -> Result<Expr, String> {
        let mut left = self.unary()?;
        loop {
            let sign = match self.peek() {
                Some(Token::Sign(sign)) => *sign,
                Some(Token::Ident(word)) if word == "in" => "in",
                _ => return Ok(left),
            };
            let Some(strength) = strength(sign).filter(|own| *own >= least) else { return Ok(left) };
            self.at += 1;
            let height = self.height;
            let right = self.binary(strength + 1)?;
            left = match (sign, left) {
                ("&&" | "||", Expr::Chain { and, mut parts }) if and == (sign == "&&") => {
                    // One more part makes a chain no deeper, unless it is deep itself.
                    self.height = height.max(self.height + 1);
                    parts.push(right);
                    Expr::Chain { and, parts }
                }
                ("&&" | "||", left) => {
                    self.above(height)?;
                    Expr::Chain { and: sign == "&&", parts: vec![left, right] }
                }
                (sign, left) => {
                    // A long sum is a deep tree.
                    self.above(height)?;
                    Expr::Binary { sign, left: Box::new(left), right: Box::new(right) }
                }
            };
        }
    }

    fn unary(&mut self) -> Result<Expr, String> {
        let mut not = 0_u32;
        let mut negate = 0_u32;
        while self.is("!") || self.is("-") {
            if self.eat("!") {
                not += 1;
            } else {
                self.at += 1;
                negate += 1;
            }
            if not > 0 && negate > 0 {
                return Err(self.unexpected());
            }
        }
        let mut expr = self.member()?;
        if not > 0 || negate > 0 {
            self.above(0)?;
        }
        if not % 2 == 1 {
            expr = Expr::Not(Box::new(expr));
        }
        if negate % 2 == 1 {
            expr = match expr {
                Expr::Literal(Literal::Int(number)) => Expr::Literal(Literal::Int(number.wrapping_neg())),
                Expr::Literal(Literal::Double(number)) => Expr::Literal(Literal::Double(-number)),
                other => Expr::Negate(Box::new(other)),
            };
        } else if matches!(expr, Expr::Literal(Literal::Int(i64::MIN))) {
            return Err(syntax(self.text, 0, "invalid int literal"));
        }
        Ok(expr)
    }

    fn member(&mut self) -> Result<Expr, String> {
        let mut expr = self.primary()?;
        loop {
            let height = self.height;
            if self.eat(".") {
                let optional = self.eat("?");
                let Some(Token::Ident(name)) = self.peek().cloned() else { return Err(self.unexpected()) };
                self.at += 1;
                expr = if !optional && self.eat("(") {
                    let args = self.arguments(")")?;
                    self.above(height)?;
                    self.method(expr, name, args)?
                } else {
                    self.above(0)?;
                    Expr::Select { of: Box::new(expr), field: name, optional }
                };
            } else if self.eat("[") {
                let optional = self.eat("?");
                let index = self.choice()?;
                self.need("]")?;
                self.above(height)?;
                expr = Expr::Index { of: Box::new(expr), index: Box::new(index), optional };
            } else {
                return Ok(expr);
            }
        }
    }

    fn arguments(&mut self, end: &str) -> Result<Vec<Expr>, String> {
        let mut args = Vec::new();
        let mut height = 0;
        while !self.eat(end) {
            args.push(self.choice()?);
            height = height.max(self.height);
            if !self.eat(",") {
                self.need(end)?;
                break;
            }
        }
        self.height = height;
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let Some(token) = self.peek().cloned() else { return Err(self.unexpected()) };
        self.at += 1;
        self.height = 1;
        let literal = |literal| Ok(Expr::Literal(literal));
        match token {
            Token::Int(number) => literal(Literal::Int(number)),
            Token::Uint(number) => literal(Literal::Uint(number)),
            Token::Double(number) => literal(Literal::Double(number)),
            Token::Text(text) => literal(Literal::Text(text)),
            Token::Bytes(bytes) => literal(Literal::Bytes(bytes)),
            Token::Ident(name) => match name.as_str() {
                "true" => literal(Literal::Bool(true)),
                "false" => literal(Literal::Bool(false)),
                "null" => literal(Literal::Null),
                "in" => {
                    self.at -= 1;
                    Err(self.unexpected())
                }
                _ if self.eat("(") => {
                    let args = self.arguments(")")?;
                    self.above(0)?;
                    self.function(name, args)
                }
                _ => Ok(Expr::Ident(name)),
            },
            Token::Sign("(") => {
                let expr = self.choice()?;
                self.need(")")?;
                Ok(expr)
            }
            Token::Sign("[") => {
                let items = self.arguments("]")?;
                self.above(0)?;
                Ok(Expr::List(items))
            }
            Token::Sign("{") => {
                let mut entries = Vec::new();
                let mut height = 0;
                while !self.eat("}") {
                    let key = self.choice()?;
                    height = height.max(self.height);
                    self.need(":")?;
                    entries.push((key, self.choice()?));
                    height = height.max(self.height);
                    if !self.eat(",") {
                        self.need("}")?;
                        break;
                    }
                }
                self.above(height)?;
                Ok(Expr::Map(entries))
            }
            Token::Sign(_) => {
                self.at -= 1;
                Err(self.unexpected())
            }
        }
    }

    fn function(&self, name: String, mut args: Vec<Expr>) -> Result<Expr, String> {
        if name != "has" {
            return Ok(Expr::Call { on: None, name, args });
        }
        match (args.len(), args.pop()) {
            (1, Some(Expr::Select { of, field, optional: false })) => Ok(Expr::Has { of, field }),
            _ => Err(syntax(self.text, 0, "invalid argument to has() macro")),
        }
    }

    fn method(&self, on: Expr, name: String, mut args: Vec<Expr>) -> Result<Expr, String> {
        let variable = |expr: &Expr| match expr {
            Expr::Ident(name) => Some(name.clone()),
            _ => None,
        };
        let bad = |detail: &str| Err(syntax(self.text, 0, detail));
        if name == "bind" && on == Expr::Ident("cel".to_owned()) && args.len() == 3 {
            let Some(own) = variable(&args[0]) else {
                return bad("cel.bind() variable names must be simple identifiers");
            };
            let (body, value) = (args.remove(2), args.remove(1));
            return Ok(Expr::Bind { kind: Bind::Plain, name: own, value: Box::new(value), body: Box::new(body) });
        }
        if matches!(name.as_str(), "optMap" | "optFlatMap") && args.len() == 2 {
            let kind = if name == "optMap" { Bind::OptMap } else { Bind::OptFlatMap };
            let Some(own) = variable(&args[0]) else { return bad("argument must be a simple name") };
            return Ok(Expr::Bind { kind, name: own, value: Box::new(on), body: Box::new(args.remove(1)) });
        }
        let (kind, two) = match (name.as_str(), args.len()) {
            ("all", 2) => (Each::All, false),
            ("exists", 2) => (Each::Exists, false),
            ("exists_one" | "existsOne", 2) => (Each::ExistsOne, false),
            ("map", 2 | 3) => (Each::Map, false),
            ("filter", 2) => (Each::Filter, false),
            ("all", 3) => (Each::All, true),
            ("exists", 3) => (Each::Exists, true),
            ("exists_one" | "existsOne", 3) => (Each::ExistsOne, true),
            ("transformList", 3 | 4) => (Each::TransformList, true),
            ("transformMap", 3 | 4) => (Each::TransformMap, true),
            _ => return Ok(Expr::Call { on: Some(Box::new(on)), name, args }),
        };
        let body = args.split_off(if two { 2 } else { 1 });
        let Some(one) = args.first().and_then(variable) else { return bad("argument must be a simple name") };
        let second = args.get(1).map(variable);
        if second == Some(None) {
            return bad("argument must be a simple name");
        }
        Ok(Expr::Each { kind, range: Box::new(on), one, two: second.flatten(), body })
    }
}
