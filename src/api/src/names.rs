//! Rules for names: DNS-1123 labels and subdomains, qualified names, label values, keys, ports, variables.
//! Each check returns the texts that a stock apiserver gives, so that callers only add the field path.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
const LABEL_REGEX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_REGEX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                              alphanumeric character";

/// The text for a value that must not be empty.
pub const EMPTY: &str = "must be non-empty";

/// The text for a value longer than `max` characters.
pub fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn regex_text(text: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{regex}')");
    }
    let quoted: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{regex}')", quoted.join(" or "))
}

fn is_label_shape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    bytes.iter().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

fn is_qualified_shape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    bytes.iter().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

/// Checks a DNS-1123 label (container, volume and namespace names).
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label_shape(value) {
        errors.push(regex_text(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character",
            LABEL_REGEX,
            &["my-name", "123-abc"],
        ));
    }
    errors
}

/// Checks a DNS-1123 subdomain (most object names).
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if !value.split('.').all(is_label_shape) {
        errors.push(regex_text(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            SUBDOMAIN_REGEX,
            &["example.com"],
        ));
    }
    errors
}

/// Checks a DNS-1035 label (service names).
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label_shape(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(regex_text(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// Checks a qualified name (label and annotation keys): `[prefix/]name`.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push(format!("prefix part {EMPTY}"));
            } else {
                errors.extend(dns1123_subdomain(prefix).into_iter().map(|text| format!("prefix part {text}")));
            }
            *name
        }
        _ => {
            errors.push(format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_text(QUALIFIED_TEXT, QUALIFIED_REGEX, &["MyName", "my.name", "123-abc"])
            ));
            return errors;
        }
    };
    if name.is_empty() {
        errors.push(format!("name part {EMPTY}"));
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !is_qualified_shape(name) {
        errors.push(format!(
            "name part {}",
            regex_text(QUALIFIED_TEXT, QUALIFIED_REGEX, &["MyName", "my.name", "123-abc"])
        ));
    }
    errors
}

/// Checks the value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !value.is_empty() && !is_qualified_shape(value) {
        errors.push(regex_text(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// Says whether a name may be given to an environment variable (printable ASCII without `=`).
pub fn is_env_name(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

/// Checks the name of an environment variable.
pub fn env_name(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec![format!("environment variable name {EMPTY}")];
    }
    if is_env_name(value) {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// Checks a key of a configmap or secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    let shape = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if value.is_empty() || !value.bytes().all(shape) {
        errors.push(regex_text(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// Checks the name of a port.
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 15 {
        errors.push(too_long(15));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// Checks the number of a port.
pub fn port_number(value: i64) -> Vec<String> {
    if (1..=65_535).contains(&value) { Vec::new() } else { vec!["must be between 1 and 65535, inclusive".to_owned()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_lower_case_and_start_and_end_alphanumeric() {
        for good in ["a", "a-b", "0a", &"x".repeat(63)] {
            assert!(dns1123_label(good).is_empty(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ä", "../x", &"x".repeat(64)] {
            assert!(!dns1123_label(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn subdomain_text_is_upstreams() {
        assert_eq!(
            dns1123_subdomain("Bad_Name"),
            ["a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"]
        );
        assert!(dns1123_subdomain("a.b-c.1").is_empty());
        assert!(!dns1123_subdomain("a..b").is_empty());
        assert!(!dns1123_subdomain("a/b").is_empty());
    }

    #[test]
    fn label_text_lists_both_examples() {
        let text = dns1123_label("-").remove(0);
        assert!(text.ends_with(
            "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ));
    }

    #[test]
    fn qualified_names_have_at_most_one_prefix() {
        for good in ["app", "example.com/app", "A_b.c-1"] {
            assert!(qualified_name(good).is_empty(), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "Upper.com/x", "-a", &"x".repeat(64)] {
            assert!(!qualified_name(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn label_values_may_be_empty() {
        assert!(label_value("").is_empty());
        assert!(label_value("a.b_c-1").is_empty());
        assert!(!label_value("a b").is_empty());
    }

    #[test]
    fn env_names_are_printable_without_equals() {
        for good in ["A", "bad-key", "1x", "a b"] {
            assert!(is_env_name(good), "{good}");
        }
        for bad in ["", "a=b", "a\nb", "ü"] {
            assert!(!is_env_name(bad), "{bad}");
        }
    }

    #[test]
    fn config_keys_cannot_climb() {
        for bad in [".", "..", "..data", "a/b", ""] {
            assert!(!config_key(bad).is_empty(), "{bad}");
        }
        assert!(config_key("ca.crt").is_empty());
    }

    #[test]
    fn port_names_and_numbers() {
        assert!(port_name("http-1").is_empty());
        for bad in ["", "1", "a--b", "-a", "Http", "abcdefghijklmnop"] {
            assert!(!port_name(bad).is_empty(), "{bad}");
        }
        assert!(port_number(65_535).is_empty());
        assert!(!port_number(0).is_empty());
    }
}
