//! Canonical JSON: one text per value, so that equal values have equal digests.
//!
//! Object keys are sorted by their UTF-8 bytes, there is no white space, and numbers are written as `serde_json`
//! writes them (shortest text that reads back to the same value). A non-finite float becomes `null`, as in JSON itself.

use serde::Serialize;
use serde_json::Value;

/// `value` as canonical JSON.
///
/// # Errors
/// When `value` cannot be JSON at all, a map with non-string keys for example.
pub fn canonical_json<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    write(&serde_json::to_value(value)?, &mut text);
    Ok(text)
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
            join(out, ['{', '}'], keys, |(key, value), out| {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(value, out);
            });
        }
        Value::Array(items) => join(out, ['[', ']'], items, write),
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn join<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl IntoIterator<Item = T>,
    each: impl Fn(T, &mut String),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        each(item, out);
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth_and_arrays_keep_their_order() {
        let value = json!({"b": [2, {"z": null, "a": "é\n"}], "a": 0.1, "aa": true});
        assert_eq!(canonical_json(&value).unwrap(), r#"{"a":0.1,"aa":true,"b":[2,{"a":"é\n","z":null}]}"#);
    }
}
