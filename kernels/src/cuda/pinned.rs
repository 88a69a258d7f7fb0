//! Page-locked host memory for asynchronous copies: one part for uploads, one for downloads.

/// Bytes of uploads between two synchronisations; larger uploads (weights) are copied directly.
pub(super) const UP_BYTES: usize = 4 << 20;
/// Bytes per download; larger downloads are copied directly.
#[cfg(not(feature = "cuda-emulation"))]
pub(super) const DOWN_BYTES: usize = 1 << 20;

/// Allocates upload space within `UP_BYTES`, consecutively until the device was synchronised.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    used: usize,
}

impl Uploads {
    /// The offset for an upload of `len` bytes; `None` if the space is used up until the next synchronisation.
    pub(super) fn place(&mut self, len: usize) -> Option<usize> {
        let at = self.used.next_multiple_of(16);
        let end = at.checked_add(len).filter(|end| *end <= UP_BYTES)?;
        self.used = end;
        Some(at)
    }

    /// Frees all space after a synchronisation.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_do_not_overlap_until_cleared() {
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
