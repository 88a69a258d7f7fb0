//! Attention over pages of keys and values (Vaswani et al. 2017, arXiv:1706.03762), several query heads to a key head
//! (Ainslie et al. 2023, arXiv:2305.13245).
//!
//! For each query row and head, with j over the positions visible to the row:
//!
//! ```text
//! sⱼ = (Σ_d q_d·kⱼ_d) · scale                 (one chain of fused multiply-adds over d in rising order)
//! sⱼ = cap · tanh(sⱼ / cap)                    (only with a soft cap)
//! eⱼ = exp(sⱼ − max s)
//! y_d = (Σⱼ eⱼ·vⱼ_d) / Σⱼ eⱼ                   (numerator: one chain over j in rising order)
//! ```
//!
//! The sum Σⱼ eⱼ: lane i of sixteen adds j = i, i + 16, … in rising order, then the lanes are summed in the fixed tree. So
//! the bits of a row depend only on its query and the visible positions, not on other rows or on how they were split.

use std::ops::Range;

use rayon::prelude::*;

use crate::activation::capped;
use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::exp;

/// Number of positions in a [`KvPage`].
pub const PAGE_LEN: usize = 64;

/// Tiles of sixteen positions in a page.
const TILES: usize = PAGE_LEN / LANES;

/// Keys and values of [`PAGE_LEN`] positions in one layer, laid out for [`attend`]: keys with sixteen positions across
/// the lanes, values with sixteen numbers of a head.
#[derive(Debug, Clone)]
pub struct KvPage {
    heads: usize,
    dim: usize,
    /// `[heads][tile][dim][16 positions]`
    keys: Vec<f32>,
    /// `[heads][position][dim, padded to whole lanes]`
    values: Vec<f32>,
}

impl KvPage {
    /// An empty page for `heads` key heads of `dim` numbers each. Allocates.
    ///
    /// # Panics
    /// If either is 0.
    pub fn new(heads: usize, dim: usize) -> Self {
        assert!(heads > 0 && dim > 0, "KvPage::new: {heads} heads of {dim}");
        let keys = vec![0.0; heads * PAGE_LEN * dim];
        let values = vec![0.0; heads * PAGE_LEN * dim.next_multiple_of(LANES)];
        Self { heads, dim, keys, values }
    }

    /// Bytes of a page for `heads` key heads of `dim` numbers each.
    pub const fn bytes(heads: usize, dim: usize) -> usize {
        size_of::<f32>() * heads * PAGE_LEN * (dim + dim.next_multiple_of(LANES))
    }

    /// Writes the key and the value of position `at` of the page, both `[heads, dim]`.
    ///
    /// # Panics
    /// If `at` is not in the page or the dims disagree.
    pub fn write(&mut self, at: usize, key: &[f32], value: &[f32]) {
        let (heads, dim, width) = (self.heads, self.dim, self.width());
        assert!(at < PAGE_LEN, "KvPage::write: position {at} of {PAGE_LEN}");
        assert!(key.len() == heads * dim && value.len() == heads * dim, "KvPage::write: expected {heads} × {dim}");
        for (head, (key, value)) in key.chunks_exact(dim).zip(value.chunks_exact(dim)).enumerate() {
            let tile = &mut self.keys[(head * TILES + at / LANES) * dim * LANES..][..dim * LANES];
            for (slot, &k) in tile.iter_mut().skip(at % LANES).step_by(LANES).zip(key) {
                *slot = k;
            }
            self.values[(head * PAGE_LEN + at) * width..][..dim].copy_from_slice(value);
        }
    }

    fn width(&self) -> usize {
        self.dim.next_multiple_of(LANES)
    }

    /// `[tile][dim][16 positions]`
    #[inline(always)]
    fn keys(&self, head: usize) -> &[f32] {
        &self.keys[head * PAGE_LEN * self.dim..][..PAGE_LEN * self.dim]
    }

    /// `[position][width]`
    #[inline(always)]
    fn values(&self, head: usize) -> &[f32] {
        let len = PAGE_LEN * self.width();
        &self.values[head * len..][..len]
    }
}

/// The positions visible to each row of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionMask {
    /// Row r is at position `before + r` and sees all positions up to its own.
    Causal {
        /// Positions before the first row.
        before: usize,
    },
    /// Like `Causal`, but a row sees no more than the last `window` positions, including its own (Beltagy et al. 2020,
    /// arXiv:2004.05150).
    Sliding {
        /// Positions before the first row.
        before: usize,
        /// At least 1.
        window: usize,
    },
    /// Every row sees the first so many positions.
    All(usize),
}

/// Attention of one segment of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// The sequence's pages in order, including those of the segment itself.
    pub pages: &'a [&'a KvPage],
    /// Query heads: a multiple of the pages' heads; head h reads key head ⌊h · key heads / heads⌋.
    pub heads: usize,
    /// Multiplies the products of queries and keys: 1/√dim in most models.
    pub scale: f32,
    /// Soft cap of the scaled products (Gemma Team 2024, arXiv:2408.00118).
    pub cap: Option<f32>,
    /// The positions visible to each row; at least one.
    pub mask: AttentionMask,
}

/// Fewer multiply-adds than this run on the calling thread.
const PARALLEL_MIN: usize = 1 << 17;

/// y[r, h, ·] for queries q `[rows, heads, dim]`; y likewise. Parallel over rows and heads in rayon's current pool if
/// the work is large enough. Allocates one row of scores per thread.
///
/// # Panics
/// If the dims disagree or a row sees nothing, or more than the pages hold.
pub fn attend(attention: &Attention<'_>, q: &[f32], y: &mut [f32]) {
    attend_on(active_path(), attention, q, y);
}

pub(crate) fn attend_on(path: Path, attention: &Attention<'_>, q: &[f32], y: &mut [f32]) {
    let &Attention { pages, heads, scale, cap, mask } = attention;
    assert_eq!(q.len(), y.len(), "attend: q and y");
    if q.is_empty() {
        return;
    }
    let (kv_heads, dim) = (pages[0].heads, pages[0].dim);
    assert!(pages.iter().all(|page| (page.heads, page.dim) == (kv_heads, dim)), "attend: pages of different dims");
    assert!(heads > 0 && heads.is_multiple_of(kv_heads), "attend: {heads} heads over {kv_heads}");
    assert!(q.len().is_multiple_of(heads * dim), "attend: q is not rows of {heads} × {dim}");
    let seen = |row: usize| match mask {
        AttentionMask::Causal { before } => 0..before + row + 1,
        AttentionMask::Sliding { before, window } => (before + row + 1).saturating_sub(window)..before + row + 1,
        AttentionMask::All(len) => 0..len,
    };
    let rows = q.len() / (heads * dim);
    let end = seen(rows - 1).end;
    assert!(!seen(0).is_empty() && end <= pages.len() * PAGE_LEN, "attend: {end} positions in {} pages", pages.len());
    let most = seen(rows - 1).len();
    let one = |scores: &mut Vec<f32>, (index, y): (usize, &mut [f32])| {
        let (row, head) = (index / heads, index % heads / (heads / kv_heads));
        let q = &q[index * dim..][..dim];
        // Whole pages before the first visible position are skipped.
        let seen = seen(row);
        let first = seen.start / PAGE_LEN;
        let visible = seen.start - first * PAGE_LEN..seen.end - first * PAGE_LEN;
        dispatch(path, OneHead { pages: &pages[first..], head, q, visible, scale, cap, scores, y });
    };
    if 2 * q.len() * most < PARALLEL_MIN {
        let mut scores = Vec::new();
        y.chunks_exact_mut(dim).enumerate().for_each(|part| one(&mut scores, part));
    } else {
        y.par_chunks_exact_mut(dim).enumerate().for_each_init(Vec::new, one);
    }
}

/// One row and one query head.
struct OneHead<'a> {
    pages: &'a [&'a KvPage],
    head: usize,
    q: &'a [f32],
    /// Positions in `pages`.
    visible: Range<usize>,
    scale: f32,
    cap: Option<f32>,
    scores: &'a mut Vec<f32>,
    y: &'a mut [f32],
}

impl Kernel for OneHead<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { pages, head, q, visible: Range { start, end: len }, scale, cap, scores, y } = self;
        let pages = &pages[..len.div_ceil(PAGE_LEN)];
        let (dim, width) = (q.len(), pages[0].width());
        scores.clear();
        scores.resize(pages.len() * PAGE_LEN, f32::NEG_INFINITY);
        for (page, scores) in pages.iter().zip(scores.chunks_exact_mut(PAGE_LEN)) {
            let keys = page.keys(head);
            dots::<V>(keys, q, scale, scores);
        }
        if let Some(cap) = cap {
            for part in scores.chunks_mut(LANES) {
                capped(V::load_part(part, 0.0), cap).store_part(part);
            }
        }
        // Masks the positions before the window, and those after the row's own.
        for score in &mut scores[..start] {
            *score = f32::NEG_INFINITY;
        }
        for score in &mut scores[len..] {
            *score = f32::NEG_INFINITY;
        }
        let (parts, _) = scores.as_chunks_mut::<LANES>();
        let parts = &mut parts[..len.div_ceil(LANES)];
        let mut most = V::splat(f32::NEG_INFINITY);
        for part in parts.iter() {
            most = V::load(part).max(most);
        }
        let mut lanes = [0.0; LANES];
        most.store(&mut lanes);
        let mut most = lanes[0];
        for &lane in &lanes[1..] {
            most = if lane > most { lane } else { most };
        }
        let mut sum = V::splat(0.0);
        for part in parts.iter_mut() {
            let e = exp(V::load(part).sub(V::splat(most)));
            e.store(part);
            sum = sum.add(e);
        }
        let sum = sum.sum();
        let mut from = 0;
        while from + 4 * LANES <= width {
            weigh::<V, 4>(pages, head, (&scores[..len], start), sum, from, &mut y[from..dim.min(from + 4 * LANES)]);
            from += 4 * LANES;
        }
        while from < width {
            weigh::<V, 1>(pages, head, (&scores[..len], start), sum, from, &mut y[from..dim.min(from + LANES)]);
            from += LANES;
        }
    }
}

/// The scores of a page: four tiles at a time, for four independent sums.
#[inline(always)]
fn dots<V: Lanes>(keys: &[f32], q: &[f32], scale: f32, scores: &mut [f32]) {
    let dim = q.len();
    assert!(keys.len() == PAGE_LEN * dim && scores.len() == PAGE_LEN);
    let mut sums = [V::splat(0.0); TILES];
    for d in 0..dim {
        let x = V::splat(q[d]);
        for tile in 0..TILES {
            // SAFETY: (tile·dim + d)·16 + 16 ≤ 4·dim·16, the length of `keys`.
            let k = unsafe { V::load_ptr(keys.as_ptr().add((tile * dim + d) * LANES)) };
            sums[tile] = x.mul_add(k, sums[tile]);
        }
    }
    let (parts, _) = scores.as_chunks_mut::<LANES>();
    for tile in 0..TILES {
        sums[tile].mul(V::splat(scale)).store(&mut parts[tile]);
    }
}

/// `P` · 16 numbers of y starting at `from`: the sum over positions from `start` on of the values weighted by `e`,
/// divided by `sum`.
#[inline(always)]
fn weigh<V: Lanes, const P: usize>(
    pages: &[&KvPage],
    head: usize,
    (e, start): (&[f32], usize),
    sum: f32,
    from: usize,
    y: &mut [f32],
) {
    let width = pages[0].width();
    assert!(from + P * LANES <= width);
    let mut sums = [V::splat(0.0); P];
    for (index, (page, e)) in pages.iter().zip(e.chunks(PAGE_LEN)).enumerate() {
        let values = page.values(head);
        assert!(values.len() == PAGE_LEN * width);
        // The first visible position is in the first page.
        for at in if index == 0 { start } else { 0 }..e.len() {
            let e = V::splat(e[at]);
            for p in 0..P {
                // SAFETY: at < 64 and from + P·16 ≤ width, so this ends within 64·width, the length of `values`.
                let v = unsafe { V::load_ptr(values.as_ptr().add(at * width + from + p * LANES)) };
                sums[p] = e.mul_add(v, sums[p]);
            }
        }
    }
    for (p, y) in y.chunks_mut(LANES).enumerate() {
        sums[p].div(V::splat(sum)).store_part(y);
    }
}
