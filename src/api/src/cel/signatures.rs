//! Which types functions and operators take, and what they give. Each line of the table is one form, written shortly: the types
//! of what is taken, the value in front of a method first, a colon, and the type of what is given.
//!
//! `b` bool, `i` int, `u` uint, `d` double, `s` string, `y` bytes, `t` timestamp, `p` duration, `q` quantity, `a` address,
//! `c` range of addresses, `r` URL, `v` version, `F` named format, `T` type, `*` anything, `A` and `B` any type but the same in one line, `L` list of,
//! `M` map from and to, `O` optional.

use std::rc::Rc;

use super::types::Kind;

/// Forms, by name. A function that is not here takes and gives anything.
const FORMS: &[(&str, &[&str])] = &[
    ("_+_", &["ii:i", "uu:u", "dd:d", "ss:s", "yy:y", "LALA:LA", "tp:t", "pt:t", "pp:p"]),
    ("_-_", &["ii:i", "uu:u", "dd:d", "tt:p", "tp:t", "pp:p"]),
    ("_*_", &["ii:i", "uu:u", "dd:d"]),
    ("_/_", &["ii:i", "uu:u", "dd:d"]),
    ("_%_", &["ii:i", "uu:u"]),
    ("-_", &["i:i", "d:d", "p:p"]),
    ("!_", &["b:b"]),
    ("_==_", &["AA:b"]),
    ("_!=_", &["AA:b"]),
    ("_<_", ORDER),
    ("_<=_", ORDER),
    ("_>_", ORDER),
    ("_>=_", ORDER),
    ("@in", &["ALA:b", "AMAB:b"]),
    ("_[_]", &["LAi:A", "MABA:B", "OLAi:OA", "OMABA:OB"]),
    ("_[?_]", &["LAi:OA", "MABA:OB", "OLAi:OA", "OMABA:OB"]),
    ("_?_:_", &["bAA:A"]),
    ("size", &["s:i", "y:i", "LA:i", "MAB:i"]),
    ("type", &["A:T"]),
    ("dyn", &["A:*"]),
    ("int", &["i:i", "u:i", "d:i", "s:i", "t:i", "p:i"]),
    ("uint", &["u:u", "i:u", "d:u", "s:u"]),
    ("double", &["d:d", "i:d", "u:d", "s:d"]),
    ("string", &["s:s", "b:s", "i:s", "u:s", "d:s", "y:s", "t:s", "p:s", "q:s", "a:s", "c:s"]),
    ("bytes", &["y:y", "s:y"]),
    ("bool", &["b:b", "s:b"]),
    ("duration", &["p:p", "s:p", "i:p"]),
    ("timestamp", &["t:t", "s:t", "i:t"]),
    ("contains", &["ss:b"]),
    ("startsWith", &["ss:b"]),
    ("endsWith", &["ss:b"]),
    ("matches", &["ss:b"]),
    ("getFullYear", DATE),
    ("getMonth", DATE),
    ("getDate", DATE),
    ("getDayOfMonth", DATE),
    ("getDayOfWeek", DATE),
    ("getDayOfYear", DATE),
    ("getHours", CLOCK),
    ("getMinutes", CLOCK),
    ("getSeconds", CLOCK),
    ("getMilliseconds", CLOCK),
    ("charAt", &["si:s"]),
    ("indexOf", &["ss:i", "ssi:i", "LAA:i"]),
    ("lastIndexOf", &["ss:i", "ssi:i", "LAA:i"]),
    ("lowerAscii", &["s:s"]),
    ("upperAscii", &["s:s"]),
    ("trim", &["s:s"]),
    ("replace", &["sss:s", "sssi:s"]),
    ("split", &["ss:Ls", "ssi:Ls"]),
    ("substring", &["si:s", "sii:s"]),
    ("join", &["Ls:s", "Lss:s"]),
    ("reverse", &["s:s", "LA:LA"]),
    ("isSorted", &["LA:b"]),
    ("sum", &["LA:A"]),
    ("min", &["LA:A"]),
    ("max", &["LA:A"]),
    ("slice", &["LAii:LA"]),
    ("flatten", &["LA:L*", "LAi:L*"]),
    ("distinct", &["LA:LA"]),
    ("sort", &["LA:LA"]),
    ("find", &["ss:s"]),
    ("findAll", &["ss:Ls", "ssi:Ls"]),
    ("url", &["s:r"]),
    ("isURL", &["s:b"]),
    ("getScheme", &["r:s"]),
    ("getHost", &["r:s"]),
    ("getHostname", &["r:s"]),
    ("getPort", &["r:s"]),
    ("getEscapedPath", &["r:s"]),
    ("getQuery", &["r:MsLs"]),
    ("ip", &["s:a", "c:a"]),
    ("isIP", &["s:b"]),
    ("family", &["a:i"]),
    ("isUnspecified", &["a:b"]),
    ("isLoopback", &["a:b"]),
    ("isLinkLocalMulticast", &["a:b"]),
    ("isLinkLocalUnicast", &["a:b"]),
    ("isGlobalUnicast", &["a:b"]),
    ("cidr", &["s:c"]),
    ("isCIDR", &["s:b"]),
    ("containsIP", &["ca:b", "cs:b"]),
    ("containsCIDR", &["cc:b", "cs:b"]),
    ("prefixLength", &["c:i"]),
    ("masked", &["c:c"]),
    ("quantity", &["s:q"]),
    ("isQuantity", &["s:b"]),
    ("sign", &["q:i"]),
    ("isGreaterThan", &["qq:b", "vv:b"]),
    ("isLessThan", &["qq:b", "vv:b"]),
    ("compareTo", &["qq:i", "vv:i"]),
    ("isInteger", &["q:b"]),
    ("asInteger", &["q:i"]),
    ("asApproximateFloat", &["q:d"]),
    ("add", &["qq:q", "qi:q"]),
    ("sub", &["qq:q", "qi:q"]),
    ("format", &["sLA:s"]),
    ("semver", &["s:v", "sb:v"]),
    ("isSemver", &["s:b", "sb:b"]),
    ("major", &["v:i"]),
    ("minor", &["v:i"]),
    ("patch", &["v:i"]),
    ("format.named", &["s:OF"]),
    ("validate", &["Fs:OLs"]),
    ("hasValue", &["OA:b"]),
    ("value", &["OA:A"]),
    ("orValue", &["OAA:A"]),
    ("or", &["OAOA:OA"]),
    ("optional.of", &["A:OA"]),
    ("optional.none", &[":OA"]),
    ("optional.ofNonZeroValue", &["A:OA"]),
    ("strings.quote", &["s:s"]),
    ("lists.range", &["i:Li"]),
    ("ip.isCanonical", &["s:b"]),
    ("sets.contains", &["LALA:b"]),
    ("sets.intersects", &["LALA:b"]),
    ("sets.equivalent", &["LALA:b"]),
];

/// Numbers of different types have one order.
const ORDER: &[&str] =
    &["bb:b", "ii:b", "iu:b", "id:b", "uu:b", "ui:b", "ud:b", "dd:b", "di:b", "du:b", "ss:b", "yy:b", "tt:b", "pp:b"];
const DATE: &[&str] = &["t:i", "ts:i"];
const CLOCK: &[&str] = &["t:i", "ts:i", "p:i"];

/// What the types of a call come to.
pub(super) struct Match<'s> {
    /// The forms that fit.
    pub(super) forms: Vec<&'static str>,
    /// What is given.
    pub(super) gives: Kind<'s>,
}

/// Finds the forms that fit; nothing if there is none such.
pub(super) fn find<'s>(name: &str, takes: &[Kind<'s>]) -> Option<Match<'s>> {
    let Some((_, forms)) = FORMS.iter().find(|(own, _)| *own == name) else {
        return Some(Match { forms: Vec::new(), gives: Kind::Dyn });
    };
    let mut found: Option<Match<'s>> = None;
    for form in *forms {
        let mut reader = Reader { rest: form.as_bytes(), bound: [None, None] };
        if !takes.iter().all(|kind| reader.takes(kind)) || reader.rest.first() != Some(&b':') {
            continue;
        }
        reader.next();
        let gives = reader.gives();
        found = Some(match found {
            None => Match { forms: vec![form], gives },
            Some(mut found) => {
                found.forms.push(form);
                let same = found.gives.fits(&gives);
                found.gives = if same { found.gives.both(&gives) } else { Kind::Dyn };
                found
            }
        });
    }
    found
}

struct Reader<'s> {
    rest: &'static [u8],
    /// What `A` and `B` are.
    bound: [Option<Kind<'s>>; 2],
}

impl<'s> Reader<'s> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return b'*' };
        self.rest = rest;
        *first
    }

    /// Whether the type that stands here takes one.
    fn takes(&mut self, kind: &Kind<'s>) -> bool {
        if self.rest.first() == Some(&b':') {
            return false;
        }
        let letter = self.next();
        match letter {
            b'A' | b'B' => {
                let bound = &mut self.bound[usize::from(letter == b'B')];
                let fits = bound.as_ref().is_none_or(|bound| bound.fits(kind));
                *bound = Some(bound.take().map_or_else(|| kind.clone(), |bound| bound.both(kind)));
                fits
            }
            b'L' | b'O' => {
                let inner = match kind {
                    Kind::List(inner) if letter == b'L' => inner,
                    Kind::Optional(inner) if letter == b'O' => inner,
                    Kind::Dyn => &Rc::new(Kind::Dyn),
                    _ => return false,
                };
                self.takes(inner)
            }
            b'M' => match kind {
                Kind::Map(key, value) => self.takes(key) && self.takes(value),
                Kind::Dyn => self.takes(kind) && self.takes(kind),
                _ => false,
            },
            plain => plain_kind(plain).fits(kind),
        }
    }

    /// Reads the type that stands here.
    fn gives(&mut self) -> Kind<'s> {
        match self.next() {
            b'A' => self.bound[0].clone().unwrap_or(Kind::Dyn),
            b'B' => self.bound[1].clone().unwrap_or(Kind::Dyn),
            b'L' => Kind::List(Rc::new(self.gives())),
            b'O' => Kind::Optional(Rc::new(self.gives())),
            b'M' => Kind::Map(Rc::new(self.gives()), Rc::new(self.gives())),
            plain => plain_kind(plain),
        }
    }
}

fn plain_kind<'s>(letter: u8) -> Kind<'s> {
    match letter {
        b'b' => Kind::Bool,
        b'i' => Kind::Int,
        b'u' => Kind::Uint,
        b'd' => Kind::Double,
        b's' => Kind::Text,
        b'y' => Kind::Bytes,
        b't' => Kind::Time,
        b'p' => Kind::Span,
        b'q' => Kind::Quantity,
        b'a' => Kind::Ip,
        b'c' => Kind::Cidr,
        b'r' => Kind::Url,
        b'v' => Kind::Version,
        b'F' => Kind::Format,
        b'T' => Kind::Type,
        _ => Kind::Dyn,
    }
}
