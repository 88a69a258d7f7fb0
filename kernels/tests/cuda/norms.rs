//! Norms, gates and copies of rows.

use super::*;

#[test]
fn norms_add_the_residual_first() {
    let (gpu, mut draw) = (gpu(), Draw(1));
    for (rows, width) in [(1, 1), (3, 31), (2, 256), (5, 777), (1, 2560)] {
        let (x, added, weight) =
            (draw.floats(rows * width, 3.0), draw.floats(rows * width, 1.0), draw.floats(width, 2.0));
        let sum: Vec<f32> = x.iter().zip(&added).map(|(x, y)| x + y).collect();
        let mut expected = vec![POISON; rows * width];
        let (x, y) = (up(&gpu, &x), poisoned(&gpu, rows * width));
        let (added, held) = (up(&gpu, &added), up(&gpu, &weight));
        gpu.rms_norm(x.view(), Some(added.view()), held.view(), 1e-5, y.view(), [rows, width]).unwrap();
        rms_norm(&sum, &weight, 1e-5, &mut expected);
        assert_eq!(down(&x), sum, "the residual stream");
        close("norm", &down(&y), &expected, 3e-6, 1e-7);
        // Without a residual, x does not change.
        gpu.rms_norm(x.view(), None, held.view(), 1e-5, y.view(), [rows, width]).unwrap();
        assert_eq!(down(&x), sum);
        close("norm", &down(&y), &expected, 3e-6, 1e-7);
        gpu.add_to(x.view(), added.view(), rows * width).unwrap();
        let twice: Vec<f32> = sum.iter().zip(down(&added)).map(|(x, y)| x + y).collect();
        assert_eq!(down(&x), twice);
    }
}

#[test]
fn rows_are_gathered_and_scattered() {
    let (gpu, mut draw) = (gpu(), Draw(22));
    let width = 300;
    let from = draw.floats(5 * width, 1.0);
    let (held, to) = (up(&gpu, &from), poisoned(&gpu, 6 * width));
    let list = |rows: &[u32], below| RowList::new(&gpu, rows, below).unwrap();
    let (from_rows, to_rows) = (list(&[4, 0, NO_ROW, 1, 4], 5), list(&[5, 1, 3, NO_ROW, 2], 6));
    gpu.copy_rows((held.view(), Some(&from_rows)), (to.view(), Some(&to_rows)), [5, width]).unwrap();
    gpu.copy_rows((held.view(), Some(&list(&[3], 4))), (to.view(), None), [1, width]).unwrap();
    let to = down(&to);
    for (row, source) in [(0, Some(3)), (1, Some(0)), (2, Some(4)), (3, None), (4, None), (5, Some(4))] {
        let got = &to[row * width..][..width];
        match source {
            Some(source) => assert_eq!(got, &from[source * width..][..width]),
            None => assert!(got.iter().all(|x| x.is_nan()), "row {row} was not requested"),
        }
    }
}

#[test]
fn gated_norms_are_per_group() {
    let (gpu, mut draw) = (gpu(), Draw(21));
    for (rows, width, groups) in [(1, 8, 1), (3, 96, 2), (2, 1_536, 1), (4, 24, 8)] {
        let z_stride = width + 5;
        let (mut y, z, weight) =
            (draw.floats(rows * width, 2.0), draw.floats(rows * z_stride, 4.0), draw.floats(width, 1.0));
        let (held, out) = ([up(&gpu, &y), up(&gpu, &z), up(&gpu, &weight)], poisoned(&gpu, rows * width));
        let [y_, z_, weight_] = held.each_ref().map(Buffer::view);
        gpu.gated_rms_norm(y_, (z_, z_stride), weight_, 1e-5, out.view(), [rows, width, groups]).unwrap();
        silu_gate(Rows::new(&z, z_stride), width, &mut y);
        let part = width / groups;
        let mut expected = vec![POISON; rows * width];
        for ((y, expected), weight) in y.chunks(part).zip(expected.chunks_mut(part)).zip(weight.chunks(part).cycle()) {
            rms_norm(y, weight, 1e-5, expected);
        }
        close("gated norm", &down(&out), &expected, 5e-6, 1e-6);
        let (gate, mut plain) = (draw.floats(rows * width, 5.0), draw.floats(rows * width, 2.0));
        let ups = up(&gpu, &plain);
        gpu.silu_gate(up(&gpu, &gate).view(), ups.view(), rows * width).unwrap();
        silu_gate(Rows::new(&gate, width), width, &mut plain);
        close("gate", &down(&ups), &plain, 3e-6, 1e-7);
    }
}

#[test]
fn norm_parts_normalises_each_part_separately() {
    for (seed, rows, [first, begin, others], more) in
        [(51, 3, [2, 8, 16], 0), (52, 1, [300, 304, 5], 3), (53, 2, [8, 8, 1], 1)]
    {
        let (gpu, mut draw) = (gpu(), Draw(seed));
        let stride = begin + 2 * others + more;
        let x = draw.floats(rows * stride, 2.0);
        let device = up(&gpu, &x);
        gpu.norm_parts((device.view(), stride), rows, [first, begin, others], 1e-3).unwrap();
        for (row, ours) in x.chunks(stride).zip(down(&device).chunks(stride)) {
            let mut expected = row.to_vec();
            for (from, width) in [(0, first), (begin, others), (begin + others, others)] {
                rms_norm(&row[from..][..width], &vec![1.0; width], 1e-3, &mut expected[from..][..width]);
            }
            close("norm parts", ours, &expected, 4e-6, 1e-6);
        }
    }
}
