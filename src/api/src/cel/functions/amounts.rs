//! Functions of times and quantities.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::cel::eval::{Found, failed, no_overload};
use crate::cel::value::Val;
use crate::quantity::Quantity;

pub(super) fn time<'v>(time: Timestamp, name: &str, args: &[Val<'v>]) -> Found<'v> {
    let zone = match args {
        [] => TimeZone::UTC,
        [Val::Text(zone)] => match TimeZone::get(zone) {
            Ok(zone) => zone,
            Err(_) => return failed(format!("unknown time zone {zone}")),
        },
        _ => return no_overload(),
    };
    let at = time.to_zoned(zone);
    Ok(Val::Int(match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return no_overload(),
    }))
}

pub(super) fn quantity<'v>(quantity: &Quantity, name: &str, args: &[Val<'v>]) -> Found<'v> {
    let zero = Quantity::default();
    let made = |quantity: Quantity| Ok(Val::Quantity(Arc::new(quantity)));
    let sign = |order: Ordering| match order {
        Ordering::Less => Val::Int(-1),
        Ordering::Equal => Val::Int(0),
        Ordering::Greater => Val::Int(1),
    };
    match (name, args) {
        ("sign", []) => Ok(sign(quantity.cmp(&zero))),
        ("isInteger", []) => Ok(Val::Bool(quantity.is_whole())),
        ("asInteger", []) if quantity.is_whole() => Ok(Val::Int(quantity.value())),
        ("asInteger", []) => failed("cannot convert value to integer"),
        #[expect(clippy::cast_precision_loss, reason = "approximate by name")]
        ("asApproximateFloat", []) => Ok(Val::Double(quantity.milli_value() as f64 / 1000.0)),
        ("compareTo", [Val::Quantity(other)]) => Ok(sign(quantity.cmp(other))),
        ("isGreaterThan", [Val::Quantity(other)]) => Ok(Val::Bool(quantity > &**other)),
        ("isLessThan", [Val::Quantity(other)]) => Ok(Val::Bool(quantity < &**other)),
        ("add", [Val::Quantity(other)]) => made(quantity.plus(other)),
        ("sub", [Val::Quantity(other)]) => made(quantity.minus(other)),
        ("add", [Val::Int(number)]) => {
            Quantity::parse(&number.to_string()).map_or_else(|_| no_overload(), |other| made(quantity.plus(&other)))
        }
        ("sub", [Val::Int(number)]) => {
            Quantity::parse(&number.to_string()).map_or_else(|_| no_overload(), |other| made(quantity.minus(&other)))
        }
        _ => no_overload(),
    }
}
