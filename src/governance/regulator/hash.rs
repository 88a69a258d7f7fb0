//! The hash of words: FNV-1a over the first characters.

/// How many leading characters of a word are hashed.
pub(super) const PREFIX_CHARS: u32 = 6;

/// One byte of FNV-1a (Fowler, Noll and Vo), 32 bits.
pub(super) const fn hash_byte(state: u32, byte: u8) -> u32 {
    (state ^ byte as u32).wrapping_mul(0x0100_0193)
}

/// The hash of a lower-case ASCII word, equal to the one that [`Scan`](super::scanner::Scan) computes.
pub(super) const fn hash_of(word: &str) -> u32 {
    let bytes = word.as_bytes();
    let hashed = match bytes {
        [start @ .., before, b's'] if bytes.len() >= 4 && bytes.len() <= PREFIX_CHARS as usize => {
            if matches!(before, b's' | b'u' | b'i') { bytes.len() } else { start.len() + 1 }
        }
        _ => bytes.len(),
    };
    let (mut state, mut rest, mut at) = (HASH_START, bytes, 0);
    while let Some((byte, after)) = rest.split_first() {
        if at < hashed && at < PREFIX_CHARS as usize {
            state = hash_byte(state, *byte);
        }
        (rest, at) = (after, at + 1);
    }
    state
}

/// The hash's initial state.
pub(super) const HASH_START: u32 = 0x811C_9DC5;
