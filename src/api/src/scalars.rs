//! What every visitor that builds JSON values does with values that hold no others.

/// The methods of a [`serde::de::Visitor`] whose value is [`serde_json::Value`] for null, booleans, numbers and texts.
macro_rules! visit_scalars {
    () => {
        fn visit_unit<E>(self) -> Result<serde_json::Value, E> {
            Ok(serde_json::Value::Null)
        }

        fn visit_bool<E>(self, value: bool) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_i64<E>(self, value: i64) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_u64<E>(self, value: u64) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_f64<E>(self, value: f64) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_str<E>(self, value: &str) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_string<E>(self, value: String) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }
    };
}

pub(crate) use visit_scalars;
