//! Rotary positions and attention over pages.

use super::*;

/// Sequences of `lens` rows after `befores` positions each, over pages in a shuffled order, two layers of the cache apart.
fn check_attention(dims: [usize; 3], sequences: &[(usize, usize)], seed: u64) {
    let (gpu, mut draw) = (gpu(), Draw(seed));
    let [heads, kv_heads, dim] = dims;
    let rows: usize = sequences.iter().map(|(_, len)| len).sum();
    let needed: usize = sequences.iter().map(|(before, len)| (before + len).div_ceil(PAGE)).sum();
    let pages = needed + 1;
    let mut order: Vec<i32> = (0..needed as i32).map(|page| page + 1).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, draw.word() as usize % (i + 1));
    }
    let q = draw.floats(rows * heads * dim, 2.0);
    let [k, v] = [(); 2].map(|()| draw.floats(rows * kv_heads * dim, 2.0));
    let positions = sequences.iter().map(|(before, len)| before + len).max().unwrap();
    let angles: Vec<f32> = (0..positions * dim / 2).map(|_| (6.3 * draw.unit()) as f32).collect();
    let turns: Vec<f32> = angles
        .chunks(dim / 2)
        .flat_map(|row| row.iter().map(|x| x.cos()).chain(row.iter().map(|x| x.sin())).collect::<Vec<_>>())
        .collect();
    let turned = |x: &[f32], heads: usize| -> Vec<f32> {
        let mut x = x.to_vec();
        let stands = sequences.iter().flat_map(|&(before, len)| before..before + len);
        for (row, position) in x.chunks_mut(heads * dim).zip(stands) {
            let turns = &turns[position * dim..][..dim];
            for head in row.chunks_mut(dim) {
                for i in 0..dim / 2 {
                    let (a, b, c, s) = (head[i], head[i + dim / 2], turns[i], turns[i + dim / 2]);
                    (head[i], head[i + dim / 2]) = (a * c - b * s, b * c + a * s);
                }
            }
        }
        x
    };
    let size = pages * kv_heads * PAGE * dim;
    // What no sequence has written is poison; the past is put there key by key.
    let (mut keys, mut values) = (vec![POISON; size], vec![POISON; size]);
    let (mut places, mut expected, mut table, mut row) = (Vec::new(), Vec::new(), 0, 0);
    let (q_turned, k_turned) = (turned(&q, heads), turned(&k, kv_heads));
    for &(before, len) in sequences {
        let count = (before + len).div_ceil(PAGE);
        let mut own = vec![KvPage::new(kv_heads, dim); count];
        assert_eq!(PAGE, PAGE_LEN);
        for position in 0..before {
            let (key, value) = (draw.floats(kv_heads * dim, 2.0), draw.floats(kv_heads * dim, 2.0));
            own[position / PAGE].write(position % PAGE, &key, &value);
            let page = order[table + position / PAGE] as usize;
            for head in 0..kv_heads {
                for i in 0..dim {
                    let at = (page * kv_heads + head) * dim * PAGE;
                    keys[at + i * PAGE + position % PAGE] = key[head * dim + i];
                    values[at + position % PAGE * dim + i] = value[head * dim + i];
                }
            }
        }
        for i in 0..len {
            let part = (row + i) * kv_heads * dim..(row + i + 1) * kv_heads * dim;
            own[(before + i) / PAGE].write((before + i) % PAGE, &k_turned[part.clone()], &v[part]);
            places.push(RowPosition { position: (before + i) as i32, table: table as i32 });
        }
        let pages: Vec<&KvPage> = own.iter().collect();
        let attention = Attention {
            pages: &pages,
            heads,
            scale: 1.0 / (dim as f32).sqrt(),
            cap: None,
            mask: AttentionMask::Causal { before },
        };
        let mut y = vec![POISON; len * heads * dim];
        attend(&attention, &q_turned[row * heads * dim..][..len * heads * dim], &mut y);
        expected.extend(y);
        (table, row) = (table + count, row + len);
    }
    let plan = AttentionPass::new(&gpu, &places, &order, pages, dims).unwrap();
    let held = [&q, &k, &v, &turns, &keys, &values].map(|values| up(&gpu, values));
    let [q_, k_, v_, turns_, keys_, values_] = held.each_ref().map(Buffer::view);
    let (scratch, y) = (poisoned(&gpu, plan.scratch()), poisoned(&gpu, rows * heads * dim));
    gpu.rotary_write(&plan, q_, [k_, v_], turns_, [keys_, values_]).unwrap();
    gpu.attend(&plan, q_, [keys_, values_], 1.0 / (dim as f32).sqrt(), scratch.view(), y.view()).unwrap();
    close("queries", &down(&held[0]), &q_turned, 1e-6, 1e-6);
    close("attention", &down(&y), &expected, 2e-5, 1e-5);
    // The first page belongs to nobody.
    for cache in &held[4..] {
        assert!(down(cache)[..kv_heads * PAGE * dim].iter().all(|x| x.is_nan()), "a page of others was written");
    }
}

#[test]
fn attention_reads_the_pages_of_its_own_sequence() {
    check_attention([1, 1, 2], &[(0, 1)], 51);
    check_attention([4, 2, 8], &[(0, 3), (63, 1), (64, 1)], 52);
    check_attention([3, 1, 64], &[(130, 1)], 53);
    check_attention([2, 2, 130], &[(40, 30)], 54);
    check_attention([2, 1, 256], &[(5, 2)], 55);
    // Long enough for several splits, the last of them short.
    check_attention([2, 1, 16], &[(1_000, 1), (127, 2), (128, 1)], 56);
}
