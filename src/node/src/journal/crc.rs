//! CRC-32 (the reflected 0xEDB88320 polynomial) over record payloads.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut index = 0u32;
    while index < 256 {
        let mut value = index;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xEDB8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[index as usize] = value;
        index += 1;
    }
    table
}

/// Returns the checksum of `bytes`.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        let [low, ..] = crc.to_le_bytes();
        crc = (crc >> 8) ^ TABLE[usize::from(low ^ byte)];
    }
    !crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn matches_the_check_value() {
        assert_eq!(super::crc32(b"123456789"), 0xCBF4_3926);
    }
}
