//! User templates with Python-style placeholders: `{name}`, `{belief_intensity:.2f}`, `{{` for a brace.
//!
//! The known names are [`PLACEHOLDERS`] and the persona's dimensions; anything else is an error when the template is
//! parsed, not when it is used.

use std::fmt::Write as _;

use crate::foundation::config::nearest;

/// The names that every template may use, besides the persona's dimensions: the persona's full name, the turn's phase
/// (`current` where there are no phases), the next revelation's text, and the turn counted from 0.
pub const PLACEHOLDERS: &[&str] = &["name", "current_phase", "next_unused_revelation", "turn"];

/// The value of `{next_unused_revelation}` when every available topic has been used.
pub(super) const NOTHING_NEW: &str = "something about you that has not come up yet";

/// The most decimals a format may ask for: the count is a single digit.
const DECIMALS_MAX: usize = 9;

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value { name: String, format: Format },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Plain,
    /// `.Nf`
    Fixed(usize),
    /// `.N%`
    Percent(usize),
}

/// What is wrong with a template, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlaceholderError {
    /// Byte offset of the brace in the template.
    pub at: usize,
    message: String,
}

/// The values of the placeholders at one turn.
pub(super) struct Values<'a> {
    pub name: &'a str,
    pub phase: Option<&'a str>,
    pub next_revelation: Option<&'a str>,
    pub turn: usize,
    pub intensities: &'a [(String, f64)],
}

impl Template {
    /// Parses `text`; `dimensions` are the names of the persona's dimensions.
    ///
    /// # Errors
    /// A lone brace, an unknown name or a format that does not fit, with its position.
    pub fn parse(text: &str, dimensions: &[&str]) -> Result<Self, PlaceholderError> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(brace);
            let at = text.len() - after.len();
            literal.push_str(before);
            rest = if let Some(tail) = after.strip_prefix("{{") {
                literal.push('{');
                tail
            } else if let Some(tail) = after.strip_prefix("}}") {
                literal.push('}');
                tail
            } else if let Some((field, tail)) = after.strip_prefix('{').and_then(|field| field.split_once('}')) {
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(parse_field(field, dimensions).map_err(|message| PlaceholderError { at, message })?);
                tail
            } else {
                let message =
                    "a lone brace: close the placeholder, or write `{{` or `}}` for a brace itself".to_owned();
                return Err(PlaceholderError { at, message });
            };
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self { pieces })
    }

    /// The text with every placeholder replaced by its value.
    pub(super) fn render(&self, values: &Values<'_>) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value { name, format } => match name.as_str() {
                    "name" => out.push_str(values.name),
                    "current_phase" => out.push_str(values.phase.unwrap_or("current")),
                    "next_unused_revelation" => out.push_str(values.next_revelation.unwrap_or(NOTHING_NEW)),
                    "turn" => push(&mut out, format_args!("{}", values.turn)),
                    dimension => {
                        if let Some((_, value)) = values.intensities.iter().find(|(name, _)| name == dimension) {
                            push_number(&mut out, *value, *format);
                        }
                    }
                },
            }
        }
        out
    }
}

/// `name` or `name:format`, between the braces.
fn parse_field(field: &str, dimensions: &[&str]) -> Result<Piece, String> {
    let (name, spec) = field.split_once(':').unwrap_or((field, ""));
    let known = || PLACEHOLDERS.iter().chain(dimensions).copied();
    if !known().any(|candidate| candidate == name) {
        let advice = if let Some(nearest) = nearest(name, known()) {
            format!("did you mean `{{{nearest}}}`?")
        } else {
            let all: Vec<_> = known().map(|name| format!("`{{{name}}}`")).collect();
            format!("known are {}", all.join(", "))
        };
        return Err(format!("unknown placeholder `{{{name}}}`: {advice}"));
    }
    let format = parse_format(spec)
        .ok_or_else(|| format!("unknown format `{spec}` of `{{{name}}}`: use `.2f`, `.0%` or none"))?;
    if format != Format::Plain && PLACEHOLDERS.contains(&name) {
        return Err(format!("`{{{name}}}` takes no format: only dimensions do"));
    }
    Ok(Piece::Value { name: name.to_owned(), format })
}

fn parse_format(spec: &str) -> Option<Format> {
    if spec.is_empty() {
        return Some(Format::Plain);
    }
    let body = spec.strip_prefix('.')?;
    let decimals = |digits: &str| digits.parse().ok().filter(|decimals| *decimals <= DECIMALS_MAX);
    if let Some(digits) = body.strip_suffix('f') {
        decimals(digits).map(Format::Fixed)
    } else {
        decimals(body.strip_suffix('%')?).map(Format::Percent)
    }
}

fn push_number(out: &mut String, value: f64, format: Format) {
    match format {
        // `{:?}` writes 1.0 where `{}` would write 1, as Python does.
        Format::Plain => push(out, format_args!("{value:?}")),
        Format::Fixed(decimals) => push(out, format_args!("{value:.decimals$}")),
        Format::Percent(decimals) => push(out, format_args!("{:.decimals$}%", value * 100.0)),
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIMENSIONS: [&str; 2] = ["belief_intensity", "distress"];

    fn render(template: &str, value: f64) -> String {
        let intensities = [("belief_intensity".to_owned(), value), ("distress".to_owned(), 0.5)];
        let values = Values {
            name: "Marcus Chen",
            phase: Some("rapport"),
            next_revelation: None,
            turn: 7,
            intensities: &intensities,
        };
        Template::parse(template, &DIMENSIONS).unwrap().render(&values)
    }

    #[test]
    fn placeholders_are_filled_in() {
        let check = |template: &str, expected: &str| assert_eq!(render(template, 0.25), expected, "{template}");
        check("[You are {name}.]", "[You are Marcus Chen.]");
        check("{belief_intensity:.2f}/{distress}", "0.25/0.5");
        check("turn {turn} of {current_phase}", "turn 7 of rapport");
        check("{next_unused_revelation}", NOTHING_NEW);
        check("{{{name}}} {{}}", "{Marcus Chen} {}");
        check("“{name}” — ü", "“Marcus Chen” — ü");
        check("", "");
    }

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        // From CPython 3: '{:.2f} {:.0f} {:.1%} {}'.format(v, v, v, v)
        let cases = [
            (0.125, "0.12 0 12.5% 0.125"),
            (0.375, "0.38 0 37.5% 0.375"),
            (0.005, "0.01 0 0.5% 0.005"),
            (0.015, "0.01 0 1.5% 0.015"),
            (0.345, "0.34 0 34.5% 0.345"),
            (2.675, "2.67 3 267.5% 2.675"),
            (1.0, "1.00 1 100.0% 1.0"),
        ];
        for (value, expected) in cases {
            let b = "belief_intensity";
            assert_eq!(render(&format!("{{{b}:.2f}} {{{b}:.0f}} {{{b}:.1%}} {{{b}}}"), value), expected);
        }
    }

    #[test]
    fn a_wrong_template_says_what_is_wrong_and_where() {
        let check = |template: &str, at: usize, message: &str| {
            let error = Template::parse(template, &DIMENSIONS).unwrap_err();
            assert_eq!((error.at, error.to_string().as_str()), (at, message), "{template}");
        };
        check("a {belif_intensity}", 2, "unknown placeholder `{belif_intensity}`: did you mean `{belief_intensity}`?");
        check(
            "{mood_of_the_day}",
            0,
            "unknown placeholder `{mood_of_the_day}`: known are `{name}`, `{current_phase}`, `{next_unused_revelation}`, \
             `{turn}`, `{belief_intensity}`, `{distress}`",
        );
        check("{distress:>8}", 0, "unknown format `>8` of `{distress}`: use `.2f`, `.0%` or none");
        check("{distress:.99f}", 0, "unknown format `.99f` of `{distress}`: use `.2f`, `.0%` or none");
        check("{name:.2f}", 0, "`{name}` takes no format: only dimensions do");
        check("ü {name", 3, "a lone brace: close the placeholder, or write `{{` or `}}` for a brace itself");
        check("}", 0, "a lone brace: close the placeholder, or write `{{` or `}}` for a brace itself");
    }

    proptest! {
        #[test]
        fn any_text_is_either_refused_or_rendered(text in "[a-z{}:.%é ]{0,40}") {
            if let Ok(template) = Template::parse(&text, &DIMENSIONS) {
                let values = Values { name: "", phase: None, next_revelation: None, turn: 0, intensities: &[] };
                template.render(&values);
            }
        }

        #[test]
        fn doubled_braces_give_the_text_back(text in "\\PC{0,40}") {
            let escaped = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(render(&escaped, 0.0), text);
        }
    }
}
