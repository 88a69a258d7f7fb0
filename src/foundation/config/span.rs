//! Positions in a source text.

/// Byte offsets into the source text.
pub type Span = std::ops::Range<usize>;
