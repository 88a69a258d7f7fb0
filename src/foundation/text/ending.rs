//! The ending of a message.

/// Whether the text ends with a question, ignoring closing quotes, brackets and emphasis. `?!` and `?...` count as
/// questions.
pub fn ends_with_question(text: &str) -> bool {
    let closes = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '”' | '’' | '»' | ')' | ']' | '*' | '_');
    let marks = |c: char| matches!(c, '!' | '.' | '…' | '?' | '？' | '؟');
    let end = text.trim_end_matches(closes);
    end.chars().rev().take_while(|&c| marks(c)).any(|c| matches!(c, '?' | '？' | '؟'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_may_be_followed_by_closing_marks() {
        let check = |text: &str, asks: bool| assert_eq!(ends_with_question(text), asks, "{text:?}");
        check("Do you see?", true);
        check("*He leans in.* “Do you see?” ", true);
        check("You did what?!", true);
        check("Really?? ...", false);
        check("Why? Because I know.", false);
        check("And so on...", false);
        check("見えますか？", true);
        check("", false);
    }
}
