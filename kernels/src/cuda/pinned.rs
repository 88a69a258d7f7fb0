//! Page-locked memory of the host, which the device copies from and to by itself: what goes up waits in one part of it
//! until it has gone, what comes down arrives in the other.

/// Bytes for what goes up between two waits; larger pieces (weights) go as they lie.
pub(super) const UP_BYTES: usize = 4 << 20;
/// Bytes for what comes down at once; larger pieces come as they are to lie.
#[cfg(not(feature = "cuda-emulation"))]
pub(super) const DOWN_BYTES: usize = 1 << 20;

/// Which part of `UP_BYTES` bytes is free. Uploads lie one behind the other until the device was waited for.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    used: usize,
}

impl Uploads {
    /// Where an upload of `len` bytes may lie; `None` until the device was waited for.
    pub(super) fn place(&mut self, len: usize) -> Option<usize> {
        let at = self.used.next_multiple_of(16);
        let end = at.checked_add(len).filter(|end| *end <= UP_BYTES)?;
        self.used = end;
        Some(at)
    }

    /// The device was waited for: all of them have gone.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_do_not_overlap_until_they_have_gone() {
        let mut uploads = Uploads::default();
        assert_eq!(uploads.place(100), Some(0));
        assert_eq!(uploads.place(4), Some(112));
        assert_eq!(uploads.place(UP_BYTES - 128), Some(128));
        assert_eq!(uploads.place(1), None);
        assert_eq!(uploads.place(0), Some(UP_BYTES));
        uploads.clear();
        assert_eq!(uploads.place(UP_BYTES), Some(0));
        assert_eq!(uploads.place(usize::MAX), None);
    }
}
