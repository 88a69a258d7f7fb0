//! Parses server-sent events (WHATWG HTML, section 9.2.6). Pure.

use crate::foundation::base::limits::STREAM_EVENT_BYTES_MAX;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Event {
    /// The `event:` field; empty if there is none.
    pub(super) name: String,
    /// The `data:` lines, joined by line breaks.
    pub(super) data: String,
}

/// A parser. Chunks may end anywhere, even inside a character.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    /// The last byte was a carriage return: a following line feed belongs to it.
    after_return: bool,
    started: bool,
    event: Event,
    has_data: bool,
}

impl Events {
    /// Reads `bytes` and returns the events that they complete.
    ///
    /// # Errors
    /// The error in the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, String> {
        let mut events = Vec::new();
        for &byte in bytes {
            let second_half = std::mem::replace(&mut self.after_return, byte == b'\r') && byte == b'\n';
            match byte {
                b'\n' if second_half => {}
                b'\n' | b'\r' => events.extend(self.end_line()?),
                _ if self.line.len() + self.event.data.len() >= STREAM_EVENT_BYTES_MAX => {
                    return Err(format!("one event is larger than {STREAM_EVENT_BYTES_MAX} bytes"));
                }
                _ => self.line.push(byte),
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Result<Option<Event>, String> {
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(|_| "it is not UTF-8".to_owned())?;
        let line = if std::mem::replace(&mut self.started, true) { line } else { line.trim_start_matches('\u{feff}') };
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return Ok(std::mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            // Comments, `id`, `retry` and unknown fields are ignored.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Events::default();
        let read = chunks.iter().flat_map(|chunk| events.push(chunk).unwrap()).map(|event| (event.name, event.data));
        read.collect()
    }

    fn check(stream: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect();
        assert_eq!(read(&[stream.as_bytes()]), expected, "{stream:?}");
    }

    #[test]
    fn fields_line_ends_and_comments_follow_the_standard() {
        check("data: a\n\n", &[("", "a")]);
        check("\u{feff}data:a\r\n\r\ndata:  b\r\r", &[("", "a"), ("", " b")]);
        check(": ping\n\nevent: delta\ndata: {\ndata: }\nid: 7\n\n", &[("delta", "{\n}")]);
        check("event: lonely\n\ndata\n\n", &[("", "")]);
        check("data: unfinished\n", &[]);
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(cuts in prop::collection::vec(0usize..60, 0..8)) {
            let stream = "event: é\r\ndata: 🦀 crab\r\n\r\n: x\ndata: naïve\n\ndata: […]\r\r".as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
            prop_assert_eq!(read(&chunks), read(&[stream]));
        }
    }

    #[test]
    fn invalid_utf8_and_oversized_events_are_errors() {
        assert!(Events::default().push(b"data: \xff\n").is_err());
        let mut events = Events::default();
        let endless = vec![b'x'; STREAM_EVENT_BYTES_MAX];
        assert!(events.push(&endless).is_ok());
        assert!(events.push(b"x").unwrap_err().contains("larger than"));
    }
}
