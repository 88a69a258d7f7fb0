//! A JSON table none of whose keys is there twice. JSON allows it, readers keep one of the two silently, and which one
//! differs from reader to reader: a file that is not the same model everywhere.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// Stands for such a table, of which nothing is kept.
#[derive(Debug)]
pub(super) struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Once;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a table")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Once, M::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            if let Some(key) = seen.replace(key) {
                return Err(M::Error::custom(format_args!("`{key}` is there twice")));
            }
        }
        Ok(Once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_twice_is_named() {
        assert!(serde_json::from_str::<Once>(r#"{"a": 1, "b": {"a": 2}}"#).is_ok());
        let error = serde_json::from_str::<Once>(r#"{"a": 1, "b": 2, "\u0061": 3}"#).unwrap_err();
        assert!(error.to_string().contains("`a` is there twice"), "{error}");
    }
}
