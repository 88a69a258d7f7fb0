//! The KV cache of one sequence, in copy-on-write pages: a fork copies references, and the last page is copied when a
//! fork writes to it.

use std::sync::Arc;

use loom_kernels::{KvPage, PAGE_LEN};

/// Keys and values of all layers for every position read.
#[derive(Debug, Clone, Default)]
pub(super) struct Cache {
    pages: Vec<Arc<Page>>,
    /// Positions in use.
    len: usize,
    /// Positions that the current pass adds, at the end of `len`.
    new: usize,
}

/// The pages of all layers for the same positions.
#[derive(Debug, Clone)]
struct Page(Vec<KvPage>);

impl Cache {
    /// Positions in use.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of a cache of `positions`, in whole pages.
    pub(super) fn bytes(positions: usize, layers: usize, kv_heads: usize, head_dim: usize) -> usize {
        positions.div_ceil(PAGE_LEN) * layers * KvPage::bytes(kv_heads, head_dim)
    }

    /// Allocates space for `new` more positions, which [`write`](Self::write) fills layer by layer.
    pub(super) fn extend(&mut self, new: usize, layers: usize, kv_heads: usize, head_dim: usize) {
        (self.len, self.new) = (self.len + new, new);
        let page = || Arc::new(Page(vec![KvPage::new(kv_heads, head_dim); layers]));
        self.pages.resize_with(self.len.div_ceil(PAGE_LEN), page);
    }

    /// Stores keys and values of the new positions in layer `layer`.
    pub(super) fn write<'a>(&mut self, layer: usize, rows: impl Iterator<Item = (&'a [f32], &'a [f32])>) {
        for (at, (key, value)) in (self.len - self.new..).zip(rows) {
            let page = self.pages.get_mut(at / PAGE_LEN).map(Arc::make_mut);
            if let Some(page) = page.and_then(|page| page.0.get_mut(layer)) {
                page.write(at % PAGE_LEN, key, value);
            }
        }
    }

    /// The pages of layer `layer`, in order.
    pub(super) fn pages(&self, layer: usize) -> Vec<&KvPage> {
        self.pages.iter().filter_map(|page| page.0.get(layer)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grow(cache: &mut Cache, rows: &[f32]) {
        cache.extend(rows.len(), 2, 1, 2);
        for layer in 0..2 {
            let rows: Vec<_> = rows.iter().map(|&x| [x, -x]).collect();
            cache.write(layer, rows.iter().map(|row| (row.as_slice(), row.as_slice())));
        }
    }

    fn shared(a: &Cache, b: &Cache) -> Vec<bool> {
        a.pages.iter().zip(&b.pages).map(|(a, b)| Arc::ptr_eq(a, b)).collect()
    }

    #[test]
    fn a_fork_shares_full_pages_and_copies_the_last_one_on_write() {
        let mut cache = Cache::default();
        grow(&mut cache, &[1.0; PAGE_LEN + 3]);
        let mut fork = cache.clone();
        assert_eq!(shared(&cache, &fork), [true, true]);
        grow(&mut fork, &[2.0]);
        assert_eq!(shared(&cache, &fork), [true, false]);
        assert_eq!((cache.len(), fork.len()), (PAGE_LEN + 3, PAGE_LEN + 4));
        // On the second write the page is already its own.
        let mine = Arc::as_ptr(fork.pages.last().unwrap());
        grow(&mut fork, &[3.0]);
        assert_eq!(mine, Arc::as_ptr(fork.pages.last().unwrap()));
    }

    #[test]
    fn a_fork_at_the_end_of_a_page_copies_nothing() {
        let mut cache = Cache::default();
        grow(&mut cache, &[1.0; PAGE_LEN]);
        let mut fork = cache.clone();
        grow(&mut fork, &[2.0; 2]);
        assert_eq!(shared(&cache, &fork), [true]);
        assert_eq!(fork.pages.len(), 2);
    }
}
