//! Tokens of the label selector's text form.

/// A token with its text; the text is what errors quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Error,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    In,
    NotIn,
    Identifier,
}

const SPECIAL: &[char] = &['=', '!', '(', ')', ',', '>', '<'];
const SPACE: &[char] = &[' ', '\t', '\r', '\n'];

/// Splits a text into tokens; the last one is `End`.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut rest = text;
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches(SPACE);
        if rest.is_empty() {
            tokens.push(Token { kind: Kind::End, text: "" });
            return tokens;
        }
        let (kind, length) = if rest.starts_with(SPECIAL) { special(rest) } else { word(rest) };
        let (text, after) = rest.split_at(length);
        tokens.push(Token { kind, text });
        rest = after;
    }
}

fn special(rest: &str) -> (Kind, usize) {
    const KNOWN: [(&str, Kind); 9] = [
        // The longest first.
        ("==", Kind::Equals),
        ("!=", Kind::NotEquals),
        ("=", Kind::Equals),
        ("!", Kind::Not),
        ("(", Kind::Open),
        (")", Kind::Close),
        (",", Kind::Comma),
        (">", Kind::Greater),
        ("<", Kind::Less),
    ];
    let known = KNOWN.iter().find(|(text, _)| rest.starts_with(text));
    known.map_or((Kind::Error, rest.len()), |(text, kind)| (*kind, text.len()))
}

fn word(rest: &str) -> (Kind, usize) {
    let end = rest.find(|character| SPECIAL.contains(&character) || SPACE.contains(&character)).unwrap_or(rest.len());
    let kind = match &rest[..end] {
        "in" => Kind::In,
        "notin" => Kind::NotIn,
        _ => Kind::Identifier,
    };
    (kind, end)
}
