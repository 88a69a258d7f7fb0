//! The filter `tojson` of chat templates, as Python writes JSON.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde_json::ser::{PrettyFormatter, Serializer};

/// `json.dumps(value, ensure_ascii=False, indent=indent)`: the built-in filter escapes for HTML.
#[expect(clippy::needless_pass_by_value, reason = "the signature of filters")]
pub(super) fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let bad = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let Some(indent) = indent else {
        let mut text = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut text, Spaced);
        serde::Serialize::serialize(value, &mut serializer).map_err(bad)?;
        return Ok(String::from_utf8_lossy(&text).into_owned());
    };
    let indent = " ".repeat(indent.min(16));
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(indent.as_bytes()));
    serde::Serialize::serialize(value, &mut serializer).map_err(bad)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Python's default separators: a space after each comma and colon.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}
