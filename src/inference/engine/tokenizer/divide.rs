//! Where a long text may be divided so that its pieces have the same ids as the whole.
//!
//! A place is taken if the characters beside it are of different kinds, and the text around it has the same ids in one
//! piece as in two. Splitting, normalising and merging look at a few characters to either side, so what is further away
//! changes nothing there. A tokenizer that puts something before every text agrees at no place; then a text is one piece.

/// Bytes on either side of a place that are compared.
const AROUND_BYTES: usize = 256;
/// After a place that was not taken, the search goes on this part of the piece's length later.
const STEP_DIVISOR: usize = 64;

/// The first place from `least` to `most` at which `text` may be divided. `divides` compares the text around it with its
/// two parts.
pub(super) fn first_end(
    text: &str,
    least: usize,
    most: usize,
    divides: impl Fn(&str, usize) -> Result<bool, String>,
) -> Result<Option<usize>, String> {
    let mut at = least;
    while at < text.len().min(most) {
        if !may_divide(text, at) {
            at += 1;
            continue;
        }
        let from = text.floor_char_boundary(at.saturating_sub(AROUND_BYTES));
        let to = text.ceil_char_boundary(at + AROUND_BYTES);
        if divides(text.get(from..to).unwrap_or_default(), at - from)? {
            return Ok(Some(at));
        }
        at += at / STEP_DIVISOR + 1;
    }
    Ok(None)
}

#[derive(PartialEq)]
enum Kind {
    Space,
    Letter,
    Digit,
    Other,
}

fn kind(character: char) -> Kind {
    match character {
        c if c.is_whitespace() => Kind::Space,
        c if c.is_alphabetic() => Kind::Letter,
        c if c.is_numeric() => Kind::Digit,
        _ => Kind::Other,
    }
}

/// Whether a character that is not white space is before `at`, and after it one of another kind or a single white
/// space and a letter or digit.
fn may_divide(text: &str, at: usize) -> bool {
    let Some((before, after)) = text.split_at_checked(at) else { return false };
    let mut next = after.chars().map(kind);
    match (before.chars().next_back().map(kind), next.next(), next.next()) {
        (None | Some(Kind::Space), ..) | (_, None, _) => false,
        (_, Some(Kind::Space), second) => matches!(second, Some(Kind::Letter | Kind::Digit)),
        (left, right, _) => left != right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_divided_between_words_and_kinds_of_characters() {
        let places = |text: &str| (0..=text.len()).filter(|&at| may_divide(text, at)).collect::<Vec<_>>();
        assert_eq!(places("ab cd"), [2]);
        assert_eq!(places("ab  cd"), [0; 0]);
        assert_eq!(places("ab12, \ny"), [2, 4]);
        assert_eq!(places("é。下"), [2, 5]);
        assert_eq!(first_end("ab cd ef", 3, 9, |_, _| Ok(true)), Ok(Some(5)));
        assert_eq!(first_end("ab cd ef", 3, 9, |_, _| Ok(false)), Ok(None));
        assert_eq!(first_end("ab cd ef", 6, 9, |_, _| Ok(true)), Ok(None));
    }
}
