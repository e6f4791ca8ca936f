//! Keys and raw values of protobuf, one after the other.

use super::WireError;

/// Written as a number of variable length.
pub(super) const VARINT: u8 = 0;
/// Written as eight bytes.
pub(super) const FIXED64: u8 = 1;
/// Written as a length and that many bytes.
pub(super) const BYTES: u8 = 2;
/// Written as four bytes.
const FIXED32: u8 = 5;

/// What is left of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(super) fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next field's number and how it is written; nothing at the end.
    pub(super) fn key(&mut self) -> Result<Option<(u32, u8)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| WireError::Malformed)?;
        if number == 0 {
            return Err(WireError::Malformed);
        }
        // Three bits always fit.
        Ok(Some((number, u8::try_from(key & 7).unwrap_or_default())))
    }

    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first().ok_or(WireError::Short)?;
            if shift == 63 && byte > 1 {
                return Err(WireError::Malformed);
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(WireError::Malformed)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Returns a number, written as `wire` says.
    pub(super) fn number(&mut self, wire: u8, field: &str) -> Result<u64, WireError> {
        expect(wire, VARINT, field)?;
        self.varint()
    }

    pub(super) fn double(&mut self, wire: u8, field: &str) -> Result<f64, WireError> {
        expect(wire, FIXED64, field)?;
        let bytes = self.take(8)?.try_into().map_err(|_| WireError::Short)?;
        Ok(f64::from_le_bytes(bytes))
    }

    pub(super) fn bytes(&mut self, wire: u8, field: &str) -> Result<&'a [u8], WireError> {
        expect(wire, BYTES, field)?;
        let length = usize::try_from(self.varint()?).map_err(|_| WireError::Malformed)?;
        self.take(length)
    }

    /// Returns a text; what is not UTF-8 is replaced, as Go's JSON does.
    pub(super) fn text(&mut self, wire: u8, field: &str) -> Result<String, WireError> {
        self.bytes(wire, field).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self, wire: u8) -> Result<(), WireError> {
        match wire {
            VARINT => self.varint().map(drop),
            FIXED64 => self.take(8).map(drop),
            BYTES => self.bytes(wire, "").map(drop),
            FIXED32 => self.take(4).map(drop),
            // Groups are of a time before Kubernetes.
            _ => Err(WireError::Malformed),
        }
    }
}

fn expect(wire: u8, wanted: u8, field: &str) -> Result<(), WireError> {
    if wire == wanted { Ok(()) } else { Err(WireError::WrongType { field: field.to_owned(), wire }) }
}
