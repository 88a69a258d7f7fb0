//! Entry point for the targets in `fuzz/`: what a server sends may give errors, never panics. Not public API.

use super::ProviderApi;
use super::anthropic::Anthropic;
use super::openai::OpenAi;
use super::partial_reply::PartialReply;

/// Reads lines as the chunks of a streamed reply.
pub fn chunks(text: &str) {
    let apis: [&dyn ProviderApi; 3] = [&OpenAi::Own, &OpenAi::Compatible, &Anthropic];
    for api in apis {
        let mut partial = PartialReply::with_top(Some(2));
        for line in text.lines() {
            if let Err(error) = api.event(line, &mut partial) {
                drop(format!("{error:?}"));
            }
        }
    }
}
