use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn canonical_text_is_that_of_kubernetes() {
    for (text, want) in [
        ("0", "0"),
        ("0Ki", "0"),
        ("-0", "0"),
        ("100m", "100m"),
        ("0.1", "100m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("12345k", "12345k"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.3Ki", "307200m"),
        ("1.0001Ki", "1024102400u"),
        ("512Ki", "512Ki"),
        ("1e3", "1e3"),
        ("100e1", "1e3"),
        ("1E3", "1e3"),
        ("1e-3", "1e-3"),
        ("5e0", "5"),
        ("1E", "1E"),
        ("+2", "2"),
        ("-1500m", "-1500m"),
        ("-1Ki", "-1Ki"),
        (".5", "500m"),
        ("5.", "5"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1.0000000001", "1000000001n"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775807"),
        ("100E", "9223372036854775807"),
        ("-100E", "-9223372036854775807"),
        ("1000Ei", "9223372036854775807"),
        ("00100m", "100m"),
        ("1e100", "9223372036854775807"),
        ("1e-100", "1e-9"),
        ("0.000000000000000000000000000000000000001Ei", "1n"),
    ] {
        assert_eq!(parsed(text).to_string(), want, "{text}");
    }
}

#[test]
fn bad_text_has_the_stock_message() {
    use QuantityError::{Format, Numeric, Suffix};
    for (text, want) in [
        ("", Format),
        ("abc", Format),
        ("1 Gi", Format),
        ("1..2", Format),
        ("--1", Suffix),
        ("1,5", Format),
        ("1gi", Format),
        ("10GB", Format),
        ("Ki", Numeric),
        (".", Numeric),
        ("-", Numeric),
        ("1ki", Suffix),
        ("1K", Suffix),
        ("1e", Suffix),
        ("1mm", Suffix),
        ("1Ki3", Suffix),
        ("1e+", Suffix),
        ("１", Format),
    ] {
        assert_eq!(Quantity::parse(text), Err(want), "{text}");
    }
}

#[test]
fn values_round_away_from_zero() {
    for (text, value, milli) in [
        ("1", 1, 1000),
        ("1500m", 2, 1500),
        ("1n", 1, 1),
        ("-1500m", -2, -1500),
        ("100Mi", 104_857_600, 104_857_600_000),
        ("0.5", 1, 500),
        ("9E", 9_000_000_000_000_000_000, i64::MAX),
    ] {
        assert_eq!((parsed(text).value(), parsed(text).milli_value()), (value, milli), "{text}");
    }
}

#[test]
fn numbers_and_text_decode_and_text_is_written() {
    let read = |json: &str| serde_json::from_str::<Quantity>(json);
    assert_eq!(read("2").unwrap(), parsed("2"));
    assert_eq!(read("0.25").unwrap(), parsed("250m"));
    assert_eq!(read("\"1Gi\"").unwrap(), parsed("1Gi"));
    assert_eq!(read("18446744073709551615").unwrap().value(), i64::MAX);
    assert!(read("true").is_err() && read("\"x\"").is_err());
    assert_eq!(serde_json::to_string(&parsed("1024Ki")).unwrap(), "\"1Mi\"");
}

#[test]
fn sums_keep_the_writing_of_the_first_amount() {
    assert_eq!([parsed("0"), parsed("64Mi"), parsed("1M")].into_iter().sum::<Quantity>().to_string(), "68108864");
    assert_eq!(parsed("1Gi").minus(&parsed("512Mi")).to_string(), "512Mi");
    assert_eq!(parsed("9E").plus(&parsed("9E")).to_string(), "9223372036854775807");
}

proptest! {
    #[test]
    fn canonical_text_is_stable_and_loses_nothing(nanos in -(LARGEST)..LARGEST, format in 0usize..3) {
        let format = [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent][format];
        let quantity = Quantity::from_nanos(nanos, format);
        let text = quantity.to_string();
        let again = parsed(&text);
        prop_assert_eq!(again, quantity);
        prop_assert_eq!(again.to_string(), text);
    }

    #[test]
    fn whole_numbers_with_any_suffix_are_exact(number in 0i64..8191, suffix in 0usize..16) {
        let (name, factor): (&str, i128) = [
            ("", 1), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000), ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30),
            ("Ti", 1 << 40), ("Pi", 1 << 50), ("e3", 1000), ("E2", 100), ("e+1", 10), ("e0", 1), ("P", 1_000_000_000_000_000), ("000", 1000),
        ][suffix];
        prop_assert_eq!(i128::from(parsed(&format!("{number}{name}")).value()), i128::from(number) * factor);
    }

    #[test]
    fn binary_fractions_agree_with_long_division(whole in 0u32..100, fraction in "[0-9]{1,6}", shift in 1usize..6) {
        let (name, bits) = [("", 0), ("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50)][shift];
        let power = 10i128.pow(u32::try_from(fraction.len()).unwrap());
        let scaled = (i128::from(whole) * power + fraction.parse::<i128>().unwrap()) << bits;
        let want = divide_up(scaled * NANOS, power);
        prop_assert_eq!(parsed(&format!("{whole}.{fraction}{name}")).nanos, want);
    }

    #[test]
    fn parsing_never_panics(text in "[-+.0-9eEinumkKMGTP]{0,30}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            prop_assert_eq!(parsed(&quantity.to_string()), quantity);
        }
    }

    #[test]
    fn adding_commutes_and_order_agrees(a in -(1i128 << 80)..(1i128 << 80), b in -(1i128 << 80)..(1i128 << 80)) {
        let (a, b) = (Quantity::from_nanos(a, Format::DecimalSi), Quantity::from_nanos(b, Format::BinarySi));
        prop_assert_eq!(a.plus(&b), b.plus(&a));
        prop_assert_eq!(a.cmp(&b), a.minus(&b).cmp(&Quantity::ZERO));
    }
}
