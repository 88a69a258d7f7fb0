//! The parts of a tool's result that change by themselves: times, dates, durations, ids, and numbers that count attempts.

/// Words before a number that make it an id or a count of attempts.
const COUNTERS: [&str; 40] = [
    "count",
    "counter",
    "visitors",
    "hits",
    "heartbeat",
    "tick",
    "sequence",
    "serial",
    "revision",
    "resourceversion",
    "generation",
    "ts",
    "timestamp",
    "age",
    "attempt",
    "attempts",
    "try",
    "tries",
    "retry",
    "retries",
    "request",
    "req",
    "requestid",
    "id",
    "uid",
    "uuid",
    "trace",
    "span",
    "run",
    "iteration",
    "call",
    "calls",
    "poll",
    "polls",
    "seq",
    "nonce",
    "pid",
    "elapsed",
    "uptime",
    "took",
];
/// Units after a number that make it a duration.
const UNITS: [&str; 16] = [
    "ms",
    "s",
    "sec",
    "secs",
    "second",
    "seconds",
    "us",
    "µs",
    "ns",
    "min",
    "mins",
    "minute",
    "minutes",
    "hour",
    "hours",
    "milliseconds",
];
/// Words beside a duration that shrinks as work goes on.
const REMAINING: [&str; 3] = ["remaining", "left", "eta"];
/// What a search counts.
const COUNTED: [&str; 16] = [
    "results",
    "matches",
    "hits",
    "items",
    "messages",
    "rows",
    "documents",
    "files",
    "records",
    "entries",
    "mails",
    "emails",
    "papers",
    "issues",
    "pages",
    "found",
];
/// What a search says that finds nothing.
const EMPTY: [&str; 16] = [
    "",
    "[]",
    "{}",
    "null",
    "none",
    "\"\"",
    "0",
    "no matches",
    "no match",
    "no results",
    "no hits",
    "0 results",
    "0 matches",
    "0 hits",
    "nothing found",
    "not found",
];

/// Whether a result says that nothing was found.
pub(super) fn is_empty_result(result: &str) -> bool {
    let text = result.trim().trim_end_matches(['.', '!']).to_lowercase();
    let starts = ["no matches ", "no results ", "no files ", "no documents ", "nothing found "];
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    let mut before = first;
    let counts_nothing = words.any(|word| {
        let nothing = before == "0" && COUNTED.contains(&word) || before == "found" && matches!(word, "0" | "nothing");
        before = word;
        nothing
    });
    let none_matches = first == "no" && (text.contains(" match") || text.contains(" found"));
    EMPTY.contains(&text.as_str())
        || text.len() <= 80 && (counts_nothing || none_matches || starts.iter().any(|start| text.starts_with(start)))
}

/// The text with its volatile parts replaced by `#`.
pub(super) fn stable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut last_word = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if !c.is_alphanumeric() {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            // A label reaches its number over `: `, `=`, `#`, quotes and brackets.
            if !matches!(c, ' ' | ':' | '=' | '#' | '"' | '\'' | '(' | '[' | '_' | '-' | '.') {
                last_word.clear();
            }
            continue;
        }
        let end = token_end(rest);
        let (token, after) = rest.split_at(end);
        if !token.contains(|c: char| c.is_ascii_digit()) {
            // `request_id` is one label.
            last_word = if out.ends_with('_') { last_word + token } else { token.to_owned() };
            last_word.make_ascii_lowercase();
            out.push_str(token);
        } else if is_volatile(token, &last_word, &out, after) {
            out.push('#');
        } else {
            out.push_str(token);
            last_word.clear();
        }
        rest = after;
    }
    out
}

/// The end of a run of letters, digits and what joins the parts of a time, a date, a number or an id.
fn token_end(text: &str) -> usize {
    let numeric = text.starts_with(|c: char| c.is_ascii_hexdigit());
    let mut digits = false;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let after = text.get(at + c.len_utf8()..).and_then(|text| text.chars().next());
        let joins = numeric
            && digits
            && matches!(c, ':' | '-' | '.' | '+')
            && (before.is_ascii_hexdigit() || before == 'T')
            && after.is_some_and(|c| c.is_ascii_hexdigit());
        if !c.is_alphanumeric() && !joins {
            return at;
        }
        digits |= c.is_ascii_digit();
        before = c;
    }
    text.len()
}

fn is_volatile(token: &str, label: &str, before: &str, after: &str) -> bool {
    let digits = token.chars().filter(char::is_ascii_digit).count();
    let number = token.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = token.get(number.len()..).unwrap_or_default();
    let is_clock = token.contains(':') && digits >= 4;
    let is_date = token.matches('-').count() == 2 && digits >= 6;
    let is_epoch = digits >= 10 && token.chars().all(|c| c.is_ascii_digit() || c == '.');
    let hex = token.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let is_id = hex && token.len() >= 8 && token.contains(|c: char| c.is_ascii_alphabetic()) || token.len() >= 20;
    let next: String = after.trim_start_matches(' ').chars().take_while(|c| c.is_alphabetic()).collect();
    // "40 s left" tells of progress.
    let shrinks = REMAINING.contains(&label) || after.split_whitespace().take(3).any(|word| REMAINING.contains(&word));
    let is_duration = !shrinks && (UNITS.contains(&unit) || unit.is_empty() && UNITS.contains(&next.as_str()));
    let is_numbered = before.ends_with('#');
    let is_counted = COUNTERS.contains(&label) || label.ends_with("id") && label.len() > 2 && digits == token.len();
    is_clock || is_date || is_epoch || is_id || is_duration || is_numbered || is_counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_by_itself_is_masked_and_nothing_else() {
        for (text, expected) in [
            ("at 12:04:55 it failed", "at # it failed"),
            ("[2026-03-01T10:00:01.123Z] x", "[#] x"),
            ("2026-03-01 error", "# error"),
            ("took 0.34s", "took #"),
            ("in 120 ms", "in # ms"),
            ("attempt 4 of 9", "attempt # of 9"),
            ("request_id=\"a81bc81b-dead-4e5d\"", "request_id=\"#\""),
            ("pid: 4711", "pid: #"),
            ("counter: 17", "counter: #"),
            ("40 s left", "40 s left"),
            ("eta 12 min", "eta 12 min"),
            ("40 % done, 3 of 9", "40 % done, 3 of 9"),
            ("column 7, 1,200 rows", "column 7, 1,200 rows"),
            ("HTTP 503", "HTTP 503"),
            ("at 1767225600", "at #"),
            ("build #1423 failed", "build ## failed"),
        ] {
            assert_eq!(stable(text), expected);
        }
    }

    #[test]
    fn an_empty_result_is_told_from_an_error() {
        for empty in [
            "",
            "[]",
            " No matches. ",
            "no results for `x`",
            "0 results",
            "null",
            "Found 0 messages.",
            "No documents matched your search.",
            "search: found nothing",
        ] {
            assert!(is_empty_result(empty), "{empty:?}");
        }
        for full in
            ["file not found: a.txt", "error", "1 result", "no permission", "No module named `x`", "exit 1, 20 files"]
        {
            assert!(!is_empty_result(full), "{full:?}");
        }
    }
}
