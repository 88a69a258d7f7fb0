//! Products with every type of weight, and rows of tables.

use super::*;

fn bf16_bits(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

/// Few rows, computed by the kernels, and many, computed by the library in pieces of the scratch size.
#[test]
fn products_read_every_type_of_weight() {
    for (seed, [rows, inputs, outputs]) in [
        (15, [1, 32, 5]),
        (16, [1, 1536, 7]),
        (17, [8, 256, 3]),
        (18, [3, 2560, 2]),
        (19, [11, 512, 6]),
        (20, [9, 8, 130]),
        (21, [70, 64, 300]),
        (22, [65, 4096, 3]),
        // More than the emulation's scratch.
        (23, [9, 8200, 2]),
    ] {
        check(seed, [rows, inputs, outputs]);
    }
}

fn check(seed: u64, [rows, inputs, outputs]: [usize; 3]) {
    let (gpu, mut draw) = (gpu(), Draw(seed));
    let x_stride = inputs + 4;
    let x = draw.floats(rows * x_stride, 1.0);
    let bias = draw.floats(outputs, 1.0);
    let weight = draw.floats(outputs * inputs, 1.0);
    let narrow: Vec<u16> = weight.iter().map(|&w| bf16_bits(w)).collect();
    let widened: Vec<f32> = narrow.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect();
    // Multiples of 1/64 below 2 are whole in f16: sign, exponent 15 + e, mantissa.
    let halves: Vec<f32> = weight.iter().map(|w| (w * 64.0).round() / 64.0).collect();
    let half_bits: Vec<u16> = halves.iter().map(|&w| f16_bits(w)).collect();
    let kinds = [
        (MatrixWeights::F32(up(&gpu, &weight)), &weight),
        (MatrixWeights::Bf16(gpu.upload(&narrow).unwrap()), &widened),
        (MatrixWeights::F16(gpu.upload(&half_bits).unwrap()), &halves),
    ];
    for (kind, values) in kinds {
        let matrix = Matrix::new(kind, outputs, inputs);
        check_product(&gpu, (&x, x_stride), rows, (&matrix, values), Some(&bias));
        check_product(&gpu, (&x, x_stride), rows, (&matrix, values), None);
        // The same matrix as an embedding table.
        check_table(&gpu, &matrix, values);
    }
}

/// `values` are the matrix's.
fn check_product(
    gpu: &Gpu,
    (x, x_stride): (&[f32], usize),
    rows: usize,
    (matrix, values): (&Matrix, &[f32]),
    bias: Option<&[f32]>,
) {
    let (outputs, inputs) = (matrix.outputs(), matrix.inputs());
    let packed: Vec<f32> = x.chunks(x_stride).take(rows).flat_map(|row| &row[..inputs]).copied().collect();
    let mut expected = vec![POISON; rows * outputs];
    matmul(&packed, rows, &Panels::pack(values, outputs, inputs), &mut expected);
    let stride = outputs + 2;
    let (x, y) = (up(gpu, x), poisoned(gpu, rows * stride));
    let bias_ = bias.map(|bias| up(gpu, bias));
    gpu.matmul((x.view(), x_stride), rows, matrix, bias_.as_ref().map(Buffer::view), (y.view(), stride)).unwrap();
    let y = down(&y);
    for r in 0..rows {
        let with_bias: Vec<f32> =
            (0..outputs).map(|o| expected[r * outputs + o] + bias.map_or(0.0, |bias| bias[o])).collect();
        close("product", &y[r * stride..][..outputs], &with_bias, 1e-5, 4e-6 * (inputs as f32).sqrt());
        assert!(y[r * stride + outputs..][..2].iter().all(|y| y.is_nan()), "nothing beyond the outputs");
    }
}

fn check_table(gpu: &Gpu, matrix: &Matrix, values: &[f32]) {
    let (outputs, inputs) = (matrix.outputs(), matrix.inputs());
    let ids: Vec<u32> = (0..7).map(|r| ((r * 7 + 1) % outputs) as u32).collect();
    let rows = poisoned(gpu, 8 * inputs);
    let mut list = RowList::with_capacity(gpu, 8, outputs).unwrap();
    list.set(&ids, 8).unwrap();
    gpu.embed(&list, matrix, rows.view()).unwrap();
    let wanted: Vec<f32> = ids.iter().flat_map(|&id| &values[id as usize * inputs..][..inputs]).copied().collect();
    assert_eq!(down(&rows), [wanted, vec![0.0; inputs]].concat());
}

#[test]
fn odd_widths_work_in_f32() {
    for (seed, [rows, inputs, outputs, more]) in
        [(25, [1, 7, 3, 0]), (26, [8, 33, 5, 1]), (27, [12, 50, 4, 3]), (28, [5, 36, 9, 1])]
    {
        let (gpu, mut draw) = (gpu(), Draw(seed));
        let x = draw.floats(rows * (inputs + more), 1.0);
        let (bias, weight) = (draw.floats(outputs, 1.0), draw.floats(outputs * inputs, 1.0));
        let matrix = Matrix::new(MatrixWeights::F32(up(&gpu, &weight)), outputs, inputs);
        check_product(&gpu, (&x, inputs + more), rows, (&matrix, &weight), Some(&bias));
    }
}

/// Splitting activations must not lose f32 precision: compared with f64, the error is that of f32 sums.
#[test]
fn many_rows_keep_the_digits_of_f32() {
    let (gpu, mut draw) = (gpu(), Draw(29));
    let [rows, inputs, outputs] = [16, 1024, 4];
    // From tiny to huge, all in one row.
    let spread = |x: f32| x * (10.0f32).powi((x.to_bits() % 9) as i32 - 4);
    let x: Vec<f32> = draw.floats(rows * inputs, 1.0).into_iter().map(spread).collect();
    let bits: Vec<u16> = draw.floats(outputs * inputs, 1.0).iter().map(|&w| bf16_bits(w)).collect();
    let y = poisoned(&gpu, rows * outputs);
    let matrix = Matrix::new(MatrixWeights::Bf16(gpu.upload(&bits).unwrap()), outputs, inputs);
    gpu.matmul((up(&gpu, &x).view(), inputs), rows, &matrix, None, (y.view(), outputs)).unwrap();
    for (at, y) in down(&y).iter().enumerate() {
        let (x, w) = (&x[at / outputs * inputs..][..inputs], &bits[at % outputs * inputs..][..inputs]);
        let terms = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(f32::from_bits(u32::from(*w) << 16)));
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
        assert!((f64::from(*y) - sum).abs() < 1e-5 * size, "{y} for {sum}, with terms of {size} in all");
    }
}

/// A number that f16 holds exactly.
fn f16_bits(x: f32) -> u16 {
    if x == 0.0 {
        return 0;
    }
    let bits = x.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    assert!((1..31).contains(&exponent) && bits & 0x1fff == 0, "{x} is no f16");
    ((bits >> 16 & 0x8000) | (exponent as u32) << 10 | (bits >> 13 & 0x3ff)) as u16
}

#[test]
fn q8_0_is_multiplied_as_it_is_packed() {
    for (seed, [rows, inputs, outputs]) in
        [(31, [1, 32, 3]), (32, [1, 768, 5]), (33, [9, 544, 20]), (34, [66, 544, 35])]
    {
        let (gpu, mut draw) = (gpu(), Draw(seed));
        let x = draw.floats(rows * inputs, 1.0);
        let panels = Panels::pack_as(Dtype::Q8_0, &draw.floats(outputs * inputs, 1.0), outputs, inputs);
        let mut values = vec![0.0; outputs * inputs];
        values.chunks_exact_mut(inputs).enumerate().for_each(|(output, row)| panels.unpack_row(output, row));
        let (quants, scales) = panels.q8_0().unwrap();
        let kind = MatrixWeights::Q8 { quants: gpu.upload(&quants).unwrap(), scales: gpu.upload(&scales).unwrap() };
        let matrix = Matrix::new(kind, outputs, inputs);
        check_product(&gpu, (&x, inputs), rows, (&matrix, &values), None);
        check_table(&gpu, &matrix, &values);
    }
    assert!(Panels::pack(&[1.0], 1, 1).q8_0().is_none());
}
