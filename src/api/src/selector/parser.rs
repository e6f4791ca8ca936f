//! Grammar of the label selector's text form. What is accepted and what errors say is the apiserver's habit, odd empty
//! values included: `a in (,)` means the empty value, `a=` too.

use super::lexer::{Kind, Token, tokens};
use super::{Operator, Requirement, SelectorError};
use crate::names;

/// Reads requirements separated by commas.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (Kind::Identifier | Kind::Not, _) => {
                let requirement = parser
                    .requirement()
                    .map_err(|error| SelectorError::new(format!("unable to parse requirement: {error}")))?;
                requirements.push(requirement);
                match parser.next() {
                    (Kind::End, _) => return Ok(requirements),
                    (Kind::Comma, _) => match parser.peek() {
                        (Kind::Identifier | Kind::Not, _) => {}
                        (_, found) => return Err(unexpected(found, ", expected: identifier after ','")),
                    },
                    (_, found) => return Err(unexpected(found, ", expected: ',' or 'end of string'")),
                }
            }
            (Kind::End, _) => return Ok(requirements),
            (_, found) => return Err(unexpected(found, ", expected: !, identifier, or 'end of string'")),
        }
    }
}

fn unexpected(found: &str, expected: &str) -> SelectorError {
    SelectorError::new(format!("found '{found}'{expected}"))
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    /// The next token, the words `in` and `notin` taken as they are.
    fn keyword(&mut self) -> (Kind, &'a str) {
        let found = self.tokens.get(self.at).map_or((Kind::End, ""), |token| (token.kind, token.text));
        self.at += 1;
        found
    }

    /// The next token where a name or a value may stand: `in` and `notin` are names there.
    fn next(&mut self) -> (Kind, &'a str) {
        let found = self.peek();
        self.at += 1;
        found
    }

    fn peek(&self) -> (Kind, &'a str) {
        match self.tokens.get(self.at) {
            None => (Kind::End, ""),
            Some(Token { kind: Kind::In | Kind::NotIn, text }) => (Kind::Identifier, text),
            Some(token) => (token.kind, token.text),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let (mut kind, mut key) = self.next();
        let absent = kind == Kind::Not;
        if absent {
            (kind, key) = self.next();
        }
        if kind != Kind::Identifier {
            return Err(unexpected(key, ", expected: identifier"));
        }
        if let [first, ..] = names::qualified_name(key).as_slice() {
            return Err(SelectorError::new(format!("key: Invalid value: {key:?}: {first}")));
        }
        if absent {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let (operator, is_set) = match self.keyword() {
            (Kind::In, _) => (Operator::In, true),
            (Kind::NotIn, _) => (Operator::NotIn, true),
            (Kind::Equals, _) => (Operator::In, false),
            (Kind::NotEquals, _) => (Operator::NotIn, false),
            (Kind::Greater, _) => (Operator::GreaterThan, false),
            (Kind::Less, _) => (Operator::LessThan, false),
            (_, found) => return Err(unexpected(found, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = if is_set { self.set()? } else { vec![self.value()?] };
        Requirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            (Kind::End | Kind::Comma, _) => Ok(String::new()),
            (Kind::Identifier, value) => {
                self.at += 1;
                Ok(value.to_owned())
            }
            (_, found) => Err(unexpected(found, ", expected: identifier")),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        match self.next() {
            (Kind::Open, _) => {}
            (_, found) => return Err(unexpected(found, " expected: '('")),
        }
        match self.peek() {
            (Kind::Close, _) => {
                self.at += 1;
                return Ok(Vec::new());
            }
            (Kind::Identifier | Kind::Comma, _) => {}
            (_, found) => return Err(unexpected(found, ", expected: ',', ')' or identifier")),
        }
        let mut values = Vec::new();
        // A comma with nothing before or after it stands for the empty value.
        loop {
            match self.next() {
                (Kind::Identifier, value) => {
                    values.push(value.to_owned());
                    match self.next() {
                        (Kind::Close, _) => return Ok(values),
                        (Kind::Comma, _) => {}
                        (_, found) => return Err(unexpected(found, ", expected: ',' or ')'")),
                    }
                    if self.peek().0 == Kind::Close {
                        values.push(String::new());
                        self.at += 1;
                        return Ok(values);
                    }
                }
                (Kind::Comma, _) => {
                    values.push(String::new());
                    if self.peek().0 == Kind::Close {
                        self.at += 1;
                        return Ok(values);
                    }
                }
                (_, found) => return Err(unexpected(found, ", expected: ',', or identifier")),
            }
        }
    }
}
