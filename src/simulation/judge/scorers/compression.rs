//! `compression_window_1000/1`

use flate2::{Compress, FlushCompress};

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::stats::mean;
use crate::foundation::text::fold;
use crate::simulation::judge::conversation::Conversation;

/// The window, bytes.
const WINDOW: usize = 1_000;
/// Extra output space for a window that deflate cannot compress.
const DEFLATE_ROOM: usize = 256;

/// The compression ratio by deflate, the mean over windows of fixed length: longer texts compress better, so the length
/// must not vary.
pub(super) struct Compression;

impl Scorer for Compression {
    fn info(&self) -> ScoreInfo {
        let meaning = "compression ratio of the text; English prose is near 2, repetition above";
        ScoreInfo::unbounded("compression_window_1000/1", meaning)
    }
}

impl TextScorer for Compression {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let text = conversation.persona().map(|line| fold(line.text)).collect::<Vec<_>>().join("\n");
        let windows = text.as_bytes().chunks_exact(WINDOW);
        mean(&windows.map(|window| WINDOW as f64 / deflated(window) as f64).collect::<Vec<_>>())
            .ok_or_else(|| format!("less than {WINDOW} bytes of text"))
    }
}

/// The length of `bytes` in zlib's format, level 6 of miniz: another compressor differs by a few bytes.
fn deflated(bytes: &[u8]) -> usize {
    let mut out = Vec::with_capacity(bytes.len() + DEFLATE_ROOM);
    let mut compress = Compress::new(flate2::Compression::new(6), true);
    // The output space suffices for the worst case, so one call is enough.
    match compress.compress_vec(bytes, &mut out, FlushCompress::Finish) {
        Ok(_) => out.len(),
        Err(_) => bytes.len(),
    }
}
