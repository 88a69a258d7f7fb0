//! A JSON object without duplicate keys. JSON allows duplicates, but readers silently keep different ones, so such a
//! file would be a different model for different readers.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// Stands for such an object; its content is discarded.
#[derive(Debug)]
pub(super) struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = UniqueKeys;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a table")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<UniqueKeys, M::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            if let Some(key) = seen.replace(key) {
                return Err(M::Error::custom(format_args!("`{key}` occurs twice")));
            }
        }
        Ok(UniqueKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_key_is_named() {
        assert!(serde_json::from_str::<UniqueKeys>(r#"{"a": 1, "b": {"a": 2}}"#).is_ok());
        let error = serde_json::from_str::<UniqueKeys>(r#"{"a": 1, "b": 2, "\u0061": 3}"#).unwrap_err();
        assert!(error.to_string().contains("`a` occurs twice"), "{error}");
    }
}
