//! Expansion of `$(NAME)` in commands, arguments, environment values and `subPathExpr`.
//! `$$` stands for one `$`; a reference that nobody knows stays as it is written.

/// Replaces each `$(NAME)` by what `lookup` knows; unknown references stay verbatim.
pub fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    expand_reporting(text, lookup, |_| {})
}

/// Replaces references as [`expand`] does; the error names the first unknown one (`subPathExpr` must be complete).
pub fn expand_strict<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> Result<String, UnknownReference> {
    let mut unknown = None;
    let out = expand_reporting(text, lookup, |name| {
        unknown.get_or_insert_with(|| UnknownReference { name: name.to_owned() });
    });
    unknown.map_or(Ok(out), Err)
}

/// A `$(NAME)` that no variable answers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("missing value for {name:?}")]
pub struct UnknownReference {
    /// The name inside the brackets.
    pub name: String,
}

fn expand_reporting<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>, mut unknown: impl FnMut(&str)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('(') {
            let Some(end) = after.find(')') else {
                out.push_str("$(");
                rest = after;
                continue;
            };
            let name = &after[..end];
            if let Some(value) = lookup(name) {
                out.push_str(value);
            } else {
                unknown(name);
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
            rest = &after[end + 1..];
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<&'static str> {
        match name {
            "A" => Some("one"),
            "B" => Some("one-two"),
            "DOLLAR" => Some("$(A)"),
            "EMPTY" => Some(""),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced_once_and_unknown_ones_stay() {
        for (input, want) in [
            ("$(A)-$(B)-$(NOPE)-$$(A)-x", "one-one-two-$(NOPE)-$(A)-x"),
            ("$$(A) $(LATER)", "$(A) $(LATER)"),
            ("$(DOLLAR)", "$(A)"),
            ("$(EMPTY)|", "|"),
            ("$", "$"),
            ("$$", "$"),
            ("$$$(A)", "$one"),
            ("$A ${A} $(A", "$A ${A} $(A"),
            ("$()", "$()"),
            ("ä$(A)ö", "äoneö"),
            ("", ""),
        ] {
            assert_eq!(expand(input, lookup), want, "{input}");
        }
    }

    #[test]
    fn strict_expansion_names_the_unknown_variable() {
        assert_eq!(expand_strict("a/$(A)", lookup), Ok("a/one".to_owned()));
        assert_eq!(expand_strict("$(X)$(Y)", lookup), Err(UnknownReference { name: "X".to_owned() }));
    }
}
