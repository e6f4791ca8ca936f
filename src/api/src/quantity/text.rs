//! Text form of quantities: reading with suffixes, writing the canonical form.

use std::fmt;

use super::{Format, LARGEST, NANOS, Quantity, QuantityError};

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// What a suffix multiplies by.
enum Scale {
    Power10(i32),
    Power2(u32),
}

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let whole_end = digits_end(rest, 0);
    let (fraction, number_end) = if rest[whole_end..].starts_with('.') {
        let end = digits_end(rest, whole_end + 1);
        (&rest[whole_end + 1..end], end)
    } else {
        ("", whole_end)
    };
    let whole = &rest[..whole_end];
    let (suffix, scale) = (&rest[number_end..], suffix_form(&rest[number_end..])?);
    if whole.is_empty() && fraction.is_empty() {
        return Err(QuantityError::Numeric);
    }
    let (scale, format) = scale.map_or_else(|| known_suffix(suffix), Ok)?;
    let amount = match scale {
        Scale::Power10(power) => scale_decimal(whole, fraction, power),
        Scale::Power2(shift) => scale_binary(whole, fraction, shift),
    };
    let amount = amount.min(LARGEST);
    Ok(Quantity { nanos: if negative { -amount } else { amount }, format })
}

fn digits_end(text: &str, from: usize) -> usize {
    text[from..].find(|character: char| !character.is_ascii_digit()).map_or(text.len(), |end| from + end)
}

/// Checks the shape of a suffix; an exponent (`e3`, `E-2`) is read here already.
fn suffix_form(suffix: &str) -> Result<Option<(Scale, Format)>, QuantityError> {
    let letters = suffix.find(|character: char| !"eEinumkKMGTP".contains(character)).unwrap_or(suffix.len());
    let exponent = &suffix[letters..];
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    if exponent.is_empty() {
        return Ok(None);
    }
    if !matches!(&suffix[..letters], "e" | "E") || digits.is_empty() {
        return Err(QuantityError::Suffix);
    }
    // Beyond any amount that is kept either way.
    let power = exponent.trim_start_matches('+').parse::<i32>().map_err(|_| QuantityError::Suffix)?.clamp(-1000, 1000);
    Ok(Some((Scale::Power10(power), Format::DecimalExponent)))
}

fn known_suffix(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((Scale::Power10(*power), Format::DecimalSi));
    }
    let (_, shift) = BINARY.iter().find(|(name, _)| *name == suffix).ok_or(QuantityError::Suffix)?;
    Ok((Scale::Power2(*shift), Format::BinarySi))
}

/// `whole.fraction * 10^power` in nano units, rounded up, at most a bit over [`LARGEST`].
fn scale_decimal(whole: &str, fraction: &str, power: i32) -> i128 {
    let mut amount: i128 = 0;
    // Digits left of this place count as nano units or more.
    let places = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(i64::from(power) + 9);
    let mut place: i64 = 0;
    for digit in whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0')) {
        if place < places {
            amount = amount.saturating_mul(10).saturating_add(digit);
            if amount > LARGEST {
                return LARGEST;
            }
        } else if digit != 0 {
            // Anything below a nano rounds up.
            return amount + 1;
        }
        place += 1;
    }
    if amount == 0 {
        return 0;
    }
    while place < places {
        amount = amount.saturating_mul(10);
        if amount > LARGEST {
            return LARGEST;
        }
        place += 1;
    }
    amount
}

/// `whole.fraction * 2^shift` in nano units, rounded up, at most a bit over [`LARGEST`].
fn scale_binary(whole: &str, fraction: &str, shift: u32) -> i128 {
    let step = (1i128 << shift) * NANOS;
    let mut units: i128 = 0;
    for digit in whole.bytes() {
        units = units * 10 + i128::from(digit - b'0');
        if units > LARGEST / NANOS {
            return LARGEST;
        }
    }
    let Some(amount) = units.checked_mul(step).filter(|amount| *amount <= LARGEST) else { return LARGEST };
    // From the last digit to the first; dividing a sum with an integer in it loses nothing more than dividing once.
    let (mut part, mut lost) = (0i128, false);
    for digit in fraction.bytes().rev() {
        let sum = i128::from(digit - b'0') * step + part;
        lost |= sum % 10 != 0;
        part = sum / 10;
    }
    amount + part + i128::from(lost)
}

pub(super) fn write(quantity: &Quantity, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Quantity { nanos, format } = *quantity;
    if nanos == 0 {
        return f.write_str("0");
    }
    let whole = nanos % NANOS == 0;
    match format {
        // Small and fractional amounts are written decimal, so that nothing is lost.
        Format::BinarySi if whole && nanos.abs() >= 1024 * NANOS => {
            let mut units = nanos / NANOS;
            let mut suffix = "";
            for (name, _) in BINARY {
                if units % 1024 != 0 {
                    break;
                }
                units /= 1024;
                suffix = name;
            }
            write!(f, "{units}{suffix}")
        }
        Format::BinarySi | Format::DecimalSi => {
            let (mantissa, power) = largest_power(nanos);
            let suffix = DECIMAL.iter().find(|(_, known)| *known == power).map_or("", |(name, _)| name);
            write!(f, "{mantissa}{suffix}")
        }
        Format::DecimalExponent => match largest_power(nanos) {
            (mantissa, 0) => write!(f, "{mantissa}"),
            (mantissa, power) => write!(f, "{mantissa}e{power}"),
        },
    }
}

/// Splits into a mantissa and the largest power of 1000 that loses nothing.
fn largest_power(nanos: i128) -> (i128, i32) {
    let (mut mantissa, mut power) = (nanos, -9);
    while mantissa % 1000 == 0 && power < 18 {
        mantissa /= 1000;
        power += 3;
    }
    (mantissa, power)
}
