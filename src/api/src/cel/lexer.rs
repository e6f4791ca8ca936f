//! Words of expressions.

/// A word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Ident(String),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// Signs, the longer ones first.
const SIGNS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "@",
];

/// Splits an expression into words, each with its place.
pub(super) fn words(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or(' ');
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (token, length) = if let Some(word) = quoted(rest)? {
            word
        } else if first.is_ascii_digit()
            || (first == '.' && rest.chars().nth(1).is_some_and(|next| next.is_ascii_digit()))
        {
            number(rest)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
            (Token::Ident(rest.get(..end).unwrap_or_default().to_owned()), end)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else if first == '`' {
            let end = rest
                .get(1..)
                .and_then(|rest| rest.find('`'))
                .ok_or_else(|| syntax(text, at, "Syntax error: token recognition error at: '`'"))?;
            (Token::Ident(rest.get(1..=end).unwrap_or_default().to_owned()), end + 2)
        } else {
            return Err(syntax(text, at, &format!("Syntax error: token recognition error at: '{first}'")));
        };
        found.push((at, token));
        at += length;
    }
    Ok(found)
}

/// Words an error as upstream does.
pub(super) fn syntax(text: &str, at: usize, detail: &str) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("ERROR: <input>:{line}:{column}: {detail}")
}

fn number(rest: &str) -> Result<(Token, usize), String> {
    let bad = |word: &str| format!("ERROR: <input>:1:1: invalid number: {word}");
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let end = hex.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(hex.len());
        let digits = hex.get(..end).unwrap_or_default();
        let unsigned = hex.get(end..).is_some_and(|rest| rest.starts_with(['u', 'U']));
        return if unsigned {
            u64::from_str_radix(digits, 16).map(|number| (Token::Uint(number), end + 3)).map_err(|_| bad(digits))
        } else {
            i64::from_str_radix(digits, 16).map(|number| (Token::Int(number), end + 2)).map_err(|_| bad(digits))
        };
    }
    let bytes = rest.as_bytes();
    let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    let mut whole = true;
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        whole = false;
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let more = digits(end + 1 + sign);
        if more > 0 {
            whole = false;
            end += 1 + sign + more;
        }
    }
    let word = rest.get(..end).unwrap_or_default();
    if !whole {
        return word.parse().map(|number| (Token::Double(number), end)).map_err(|_| bad(word));
    }
    if matches!(bytes.get(end), Some(b'u' | b'U')) {
        return word.parse().map(|number| (Token::Uint(number), end + 1)).map_err(|_| bad(word));
    }
    // The smallest number is written as the negation of one that is no number by itself.
    match word.parse::<u64>() {
        Ok(number) => match i64::try_from(number) {
            Ok(number) => Ok((Token::Int(number), end)),
            Err(_) if number == 1 << 63 => Ok((Token::Int(i64::MIN), end)),
            Err(_) => Err(bad(word)),
        },
        Err(_) => Err(bad(word)),
    }
}

/// Reads a text, `"…"`, `'…'`, `r"…"`, `b"…"` or with three marks.
fn quoted(rest: &str) -> Result<Option<(Token, usize)>, String> {
    let (mut raw, mut bytes, mut at) = (false, false, 0);
    for letter in rest.chars().take(2) {
        match letter {
            'r' | 'R' if !raw => raw = true,
            'b' | 'B' if !bytes => bytes = true,
            _ => break,
        }
        at += 1;
    }
    let body = rest.get(at..).unwrap_or_default();
    let Some(mark) = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|mark| body.starts_with(mark)) else {
        return Ok(None);
    };
    let bad = |detail: &str| format!("ERROR: <input>:1:1: Syntax error: {detail}");
    at += mark.len();
    let mut text = String::new();
    loop {
        let left = rest.get(at..).unwrap_or_default();
        if left.starts_with(mark) {
            at += mark.len();
            let token = if bytes { Token::Bytes(text.into_bytes()) } else { Token::Text(text) };
            return Ok(Some((token, at)));
        }
        let mut letters = left.chars();
        match letters.next() {
            None => return Err(bad("unterminated string")),
            Some('\n') if mark.len() == 1 => return Err(bad("unterminated string")),
            Some('\\') if !raw => {
                let (letter, length) = escape(letters.as_str()).ok_or_else(|| bad("invalid escape sequence"))?;
                text.push(letter);
                at += 1 + length;
            }
            Some(letter) => {
                text.push(letter);
                at += letter.len_utf8();
            }
        }
    }
}

fn escape(rest: &str) -> Option<(char, usize)> {
    let first = rest.chars().next()?;
    let code = |from: usize, to: usize, base: u32| -> Option<char> {
        char::from_u32(u32::from_str_radix(rest.get(from..to)?, base).ok()?)
    };
    Some(match first {
        'a' => ('\u{7}', 1),
        'b' => ('\u{8}', 1),
        'f' => ('\u{c}', 1),
        'n' => ('\n', 1),
        'r' => ('\r', 1),
        't' => ('\t', 1),
        'v' => ('\u{b}', 1),
        '\\' | '\'' | '"' | '`' | '?' => (first, 1),
        'x' | 'X' => (code(1, 3, 16)?, 3),
        'u' => (code(1, 5, 16)?, 5),
        'U' => (code(1, 9, 16)?, 9),
        '0'..='3' => (code(0, 3, 8)?, 3),
        _ => return None,
    })
}
