//! Attention over pages of keys and values (Vaswani et al. 2017, arXiv:1706.03762), several query heads to a key head
//! (Ainslie et al. 2023, arXiv:2305.13245).
//!
//! For each query row and head, with j over the positions that the row sees:
//!
//! ```text
//! sⱼ = (Σ_d q_d·kⱼ_d) · scale                 (one chain of fused multiply-adds over d in rising order)
//! eⱼ = exp(sⱼ − max s)
//! y_d = (Σⱼ eⱼ·vⱼ_d) / Σⱼ eⱼ                   (above: one chain over j in rising order)
//! ```
//!
//! Σⱼ eⱼ below: lane i of sixteen adds j = i, i + 16, … in rising order, then the lanes are summed in the fixed tree. So
//! a row's bits depend on its query and on what it sees alone, not on the rows beside it nor on how they were read.

use rayon::prelude::*;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::exp;

/// Positions that a [`KvPage`] holds.
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

    /// Puts down the key and the value of place `at`, both `[heads, dim]`.
    ///
    /// # Panics
    /// If there is no such place or the dims disagree.
    pub fn write(&mut self, at: usize, key: &[f32], value: &[f32]) {
        let (heads, dim, width) = (self.heads, self.dim, self.width());
        assert!(at < PAGE_LEN, "KvPage::write: place {at} of {PAGE_LEN}");
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

/// Which positions a row of queries sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Row r stands at position `before + r` and sees itself and everything before.
    Causal {
        /// Positions before the first row.
        before: usize,
    },
    /// Every row sees the first so many positions.
    All(usize),
}

/// One sequence's segment.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// The sequence's pages in order, those of the segment's own positions included.
    pub pages: &'a [&'a KvPage],
    /// Query heads: a multiple of the pages' heads; head h reads key head ⌊h · key heads / heads⌋.
    pub heads: usize,
    /// Multiplies the products of queries and keys: 1/√dim.
    pub scale: f32,
    /// What each row sees; at least one position.
    pub sight: Sight,
}

/// Fewer multiply-adds than this run on the calling thread.
const PARALLEL_MIN: usize = 1 << 17;

/// y[r, h, ·] for queries q `[rows, heads, dim]`; y likewise. Parallel over rows and heads in rayon's current pool when
/// that pays. Allocates one row of scores a thread.
///
/// # Panics
/// If the dims disagree or a row sees nothing, or more than the pages hold.
pub fn attend(attention: &Attention<'_>, q: &[f32], y: &mut [f32]) {
    attend_on(active_path(), attention, q, y);
}

pub(crate) fn attend_on(path: Path, attention: &Attention<'_>, q: &[f32], y: &mut [f32]) {
    let &Attention { pages, heads, scale, sight } = attention;
    assert_eq!(q.len(), y.len(), "attend: q and y");
    if q.is_empty() {
        return;
    }
    let (kv_heads, dim) = (pages[0].heads, pages[0].dim);
    assert!(pages.iter().all(|page| (page.heads, page.dim) == (kv_heads, dim)), "attend: pages of different dims");
    assert!(heads > 0 && heads.is_multiple_of(kv_heads), "attend: {heads} heads over {kv_heads}");
    assert!(q.len().is_multiple_of(heads * dim), "attend: q is not rows of {heads} × {dim}");
    let seen = |row: usize| match sight {
        Sight::Causal { before } => before + row + 1,
        Sight::All(len) => len,
    };
    let rows = q.len() / (heads * dim);
    let most = seen(rows - 1);
    assert!(seen(0) > 0 && most <= pages.len() * PAGE_LEN, "attend: {most} positions in {} pages", pages.len());
    let one = |scores: &mut Vec<f32>, (index, y): (usize, &mut [f32])| {
        let (row, head) = (index / heads, index % heads / (heads / kv_heads));
        let q = &q[index * dim..][..dim];
        dispatch(path, OneHead { pages, head, q, len: seen(row), scale, scores, y });
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
    len: usize,
    scale: f32,
    scores: &'a mut Vec<f32>,
    y: &'a mut [f32],
}

impl Kernel for OneHead<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { pages, head, q, len, scale, scores, y } = self;
        let pages = &pages[..len.div_ceil(PAGE_LEN)];
        let (dim, width) = (q.len(), pages[0].width());
        scores.clear();
        scores.resize(pages.len() * PAGE_LEN, f32::NEG_INFINITY);
        for (page, scores) in pages.iter().zip(scores.chunks_exact_mut(PAGE_LEN)) {
            let keys = page.keys(head);
            dots::<V>(keys, q, scale, scores);
        }
        // What lies beyond the row's own position is not for it to see.
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
            weigh::<V, 4>(pages, head, &scores[..len], sum, from, &mut y[from..dim.min(from + 4 * LANES)]);
            from += 4 * LANES;
        }
        while from < width {
            weigh::<V, 1>(pages, head, &scores[..len], sum, from, &mut y[from..dim.min(from + LANES)]);
            from += LANES;
        }
    }
}

/// The scores of a page: its four tiles side by side, so that four sums are under way.
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

/// `P` · 16 numbers of y from `from` on: the values of every position weighed by `e`, over `sum`.
#[inline(always)]
fn weigh<V: Lanes, const P: usize>(pages: &[&KvPage], head: usize, e: &[f32], sum: f32, from: usize, y: &mut [f32]) {
    let width = pages[0].width();
    assert!(from + P * LANES <= width);
    let mut sums = [V::splat(0.0); P];
    for (page, e) in pages.iter().zip(e.chunks(PAGE_LEN)) {
        let values = page.values(head);
        assert!(values.len() == PAGE_LEN * width);
        for at in 0..e.len() {
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
