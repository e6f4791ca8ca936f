//! Bytes as lower-case hex digits, the form of digests and fingerprints.

/// Two digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(super::encode(&[0, 10, 0xff]), "000aff");
    }
}
