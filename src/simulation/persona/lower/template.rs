//! Checks the placeholders of the config's templates. The assembler renders them.

use crate::foundation::config::{Located, Problem, Problems, nearest};
pub(super) use crate::simulation::persona::PLACEHOLDERS;

/// Adds a problem for each placeholder of `template` that is neither in `known` nor one of the dimensions; only dimensions
/// accept a number format. `{{` and `}}` are literal braces.
pub(in crate::simulation::persona) fn check_template(
    template: &Located<String>,
    known: &[&str],
    dimensions: &[&str],
    problems: &mut Problems,
) {
    let mut rest = template.value.as_str();
    while let Some(start) = rest.find(['{', '}']) {
        let (_, from) = rest.split_at(start);
        if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
            rest = after;
            continue;
        }
        let Some((inner, after)) = from.strip_prefix('{').and_then(|from| from.split_once('}')) else {
            let brace = if from.starts_with('{') { "{" } else { "}" };
            let problem = Problem::new(template.span.clone(), format!("a `{brace}` in this template is unmatched"));
            problems.add(problem.help(format!("close the placeholder, or write `{brace}{brace}` for a literal brace")));
            return;
        };
        placeholder(inner, template, known, dimensions, problems);
        rest = after;
    }
}

fn placeholder(inner: &str, template: &Located<String>, known: &[&str], dimensions: &[&str], problems: &mut Problems) {
    let (name, format) = inner.split_once(':').map_or((inner, None), |(name, format)| (name, Some(format)));
    let is_dimension = dimensions.contains(&name);
    let mut add = |message: String, help: String| {
        let span = problems.find(&template.span, &format!("{{{inner}}}"));
        problems.add(Problem::new(span, message).help(help));
    };
    if !is_dimension && !known.contains(&name) {
        let all = || known.iter().chain(dimensions).copied();
        let help = match nearest(name, all()) {
            Some(meant) => format!("did you mean `{{{meant}}}`?"),
            None => format!(
                "known placeholders: {}",
                all().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ")
            ),
        };
        add(format!("`{{{inner}}}` is not a known placeholder"), help);
    } else if let Some(format) = format {
        if !is_dimension {
            add(format!("`{name}` takes no number format"), format!("write `{{{name}}}`"));
        } else if !is_number_format(format) {
            add(
                format!("`:{format}` is not a known number format"),
                format!("write `{{{name}:.2f}}` or `{{{name}:.0%}}`"),
            );
        }
    }
}

/// `.Nf` or `.N%` with one digit N: the subset of Python's formats that is supported.
fn is_number_format(format: &str) -> bool {
    let mut rest = format.chars();
    rest.next() == Some('.')
        && rest.next().is_some_and(|digit| digit.is_ascii_digit())
        && matches!(rest.next(), Some('f' | '%'))
        && rest.next().is_none()
}
