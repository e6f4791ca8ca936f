//! `+`, `-`, `*`, `/` and `%`.

use super::{Found, Run, failed, no_overload, overflow};
use crate::cel::value::Val;

impl<'v> Run<'v, '_> {
    pub(super) fn arithmetic(&mut self, sign: &str, left: &Val<'v>, right: &Val<'v>) -> Found<'v> {
        let zero = || failed(if sign == "%" { "modulus by zero" } else { "division by zero" });
        match (left, right) {
            (Val::Int(a), Val::Int(b)) => {
                let made = match sign {
                    "+" => a.checked_add(*b),
                    "-" => a.checked_sub(*b),
                    "*" => a.checked_mul(*b),
                    _ if *b == 0 => return zero(),
                    "/" => a.checked_div(*b),
                    _ => a.checked_rem(*b),
                };
                made.map(Val::Int).ok_or_else(overflow)
            }
            (Val::Uint(a), Val::Uint(b)) => {
                let made = match sign {
                    "+" => a.checked_add(*b),
                    "-" => a.checked_sub(*b),
                    "*" => a.checked_mul(*b),
                    _ if *b == 0 => return zero(),
                    "/" => a.checked_div(*b),
                    _ => a.checked_rem(*b),
                };
                made.map(Val::Uint).ok_or_else(overflow)
            }
            (Val::Double(a), Val::Double(b)) => match sign {
                "+" => Ok(Val::Double(a + b)),
                "-" => Ok(Val::Double(a - b)),
                "*" => Ok(Val::Double(a * b)),
                "/" => Ok(Val::Double(a / b)),
                _ => no_overload(),
            },
            (Val::Text(a), Val::Text(b)) if sign == "+" => {
                self.pay(&[left, right])?;
                Ok(Val::text(format!("{a}{b}")))
            }
            (Val::Bytes(a), Val::Bytes(b)) if sign == "+" => {
                self.pay(&[left, right])?;
                Ok(Val::Bytes([&**a, &**b].concat().into()))
            }
            (Val::List(_) | Val::JsonList(..), Val::List(_) | Val::JsonList(..)) if sign == "+" => {
                self.pay(&[left, right])?;
                if matches!(left, Val::JsonList(_, Some(_))) {
                    self.pay_deep(left, right)?;
                }
                left.joined(right).map(Val::list).map_or_else(no_overload, Ok)
            }
            (Val::Time(time), Val::Span(span)) | (Val::Span(span), Val::Time(time)) if sign == "+" => {
                time.checked_add(*span).map(Val::Time).map_err(|_| overflow())
            }
            (Val::Time(time), Val::Span(span)) if sign == "-" => {
                time.checked_sub(*span).map(Val::Time).map_err(|_| overflow())
            }
            (Val::Time(a), Val::Time(b)) if sign == "-" => Ok(Val::Span(a.duration_since(*b))),
            (Val::Span(a), Val::Span(b)) => {
                let made = match sign {
                    "+" => a.checked_add(*b),
                    "-" => a.checked_sub(*b),
                    _ => return no_overload(),
                };
                made.map(Val::Span).ok_or_else(overflow)
            }
            _ => no_overload(),
        }
    }
}
