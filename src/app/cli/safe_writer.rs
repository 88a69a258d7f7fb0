//! The last step before the terminal: whatever is printed, no character of it controls the terminal.

use std::io::{self, Write};

use crate::foundation::text::is_unsafe;

/// Writes text on, with unsafe characters as `\u001b`: in JSON the same text, elsewhere visible and harmless. With
/// colours, the escape codes that set them pass.
pub(super) struct SafeWriter<W> {
    inner: W,
    color: bool,
    /// The beginning of a character, of a line's end or of an escape code whose rest is not written yet.
    held: Vec<u8>,
}

/// Longest escape code of a colour, bytes.
const COLOR_CODE_BYTES_MAX: usize = 32;

impl<W: Write> SafeWriter<W> {
    pub(super) const fn new(inner: W, color: bool) -> Self {
        Self { inner, color, held: Vec::new() }
    }

    /// Writes the complete characters of what is held; with `all`, also the incomplete one at the end.
    fn pass_on(&mut self, all: bool) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.held);
        let complete = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() && !all => error.valid_up_to(),
            _ => bytes.len(),
        };
        let (now, later) = bytes.split_at_checked(complete).unwrap_or((&bytes, &[]));
        let text = String::from_utf8_lossy(now);
        let (shown, rest) = self.safe(&text, all);
        self.held = [rest.as_bytes(), later].concat();
        self.inner.write_all(shown.as_bytes())
    }

    /// The safe text, and the end of it that cannot be decided yet.
    fn safe<'a>(&self, text: &'a str, all: bool) -> (String, &'a str) {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(is_unsafe) {
            let (before, from) = rest.split_at(at);
            shown.push_str(before);
            if self.color && from.starts_with('\u{1b}') {
                match color_code(from) {
                    ColorCode::Whole(length) => {
                        let (code, after) = from.split_at(length);
                        shown.push_str(code);
                        rest = after;
                        continue;
                    }
                    ColorCode::Unfinished if !all => return (shown, from),
                    _ => {}
                }
            }
            if from == "\r" && !all {
                return (shown, from);
            }
            let mut chars = from.chars();
            match chars.next() {
                Some('\r') if chars.as_str().starts_with('\n') => shown.push('\r'),
                Some(c) => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
                None => {}
            }
            rest = chars.as_str();
        }
        shown.push_str(rest);
        (shown, "")
    }
}

enum ColorCode {
    Whole(usize),
    Unfinished,
    None,
}

/// The escape code that sets colours at the beginning of `text`: `ESC [`, numbers, `m`. Concealed text (8) is not a colour.
fn color_code(text: &str) -> ColorCode {
    let Some(body) = text.strip_prefix('\u{1b}') else { return ColorCode::None };
    let Some(body) = body.strip_prefix('[') else {
        return if body.is_empty() { ColorCode::Unfinished } else { ColorCode::None };
    };
    let end = body.find(|c: char| !c.is_ascii_digit() && c != ';');
    match end {
        None if body.len() < COLOR_CODE_BYTES_MAX => ColorCode::Unfinished,
        Some(end) if body.get(end..).is_some_and(|rest| rest.starts_with('m')) => {
            let numbers = body.get(..end).unwrap_or_default();
            let first = numbers.split(';').next().unwrap_or_default();
            let concealed =
                !matches!(first, "38" | "48") && numbers.split(';').any(|number| number.trim_start_matches('0') == "8");
            if concealed { ColorCode::None } else { ColorCode::Whole(end + 3) }
        }
        _ => ColorCode::None,
    }
}

impl<W: Write> Write for SafeWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        self.pass_on(false)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on(true)?;
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(color: bool, pieces: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut writer = SafeWriter::new(&mut out, color);
        for piece in pieces {
            writer.write_all(piece).unwrap();
        }
        writer.pass_on(true).unwrap();
        drop(writer);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_character_controls_the_terminal() {
        for color in [false, true] {
            for text in
                ["\u{1b}]0;x\u{7}", "\u{1b}[2J", "\u{1b}[8mx", "\u{9b}2J", "\u{202e}x", "a\rb", "\u{1b}[", "\u{1b}"]
            {
                let whole = written(color, &[text.as_bytes()]);
                assert!(!whole.contains(is_unsafe) && whole.contains("\\u"), "{text:?}: {whole:?}");
                // In pieces, as a stream may write it.
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
                assert_eq!(written(color, &pieces), whole);
            }
        }
    }

    #[test]
    fn healthy_text_and_colours_pass() {
        let text = "Grüße, 世界\r\n\tx\n".as_bytes();
        assert_eq!(written(false, &[text]).as_bytes(), text);
        assert_eq!(written(false, &text.chunks(1).collect::<Vec<_>>()).as_bytes(), text);
        let colored = "\u{1b}[1;31mred\u{1b}[38;5;8mx\u{1b}[0m";
        assert_eq!(written(true, &colored.as_bytes().chunks(1).collect::<Vec<_>>()), colored);
        assert!(!written(false, &[colored.as_bytes()]).contains('\u{1b}'));
        // JSON stays the same value.
        let json = serde_json::json!({"a": "\u{202e}\u{9b}x"});
        let read: serde_json::Value = serde_json::from_str(&written(false, &[json.to_string().as_bytes()])).unwrap();
        assert_eq!(read, json);
        assert_eq!(written(false, &[&[b'a', 0xff, b'b']]), "a\u{fffd}b");
    }
}
