//! Products with every type of weight, and rows of tables.

use super::*;

fn bf16_bits(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

#[test]
fn products_read_every_type_of_weight() {
    let (gpu, mut draw) = (gpu(), Draw(15));
    for (rows, inputs, outputs) in [(1, 32, 5), (1, 1536, 7), (8, 256, 3), (11, 512, 6), (3, 2560, 2)] {
        let x_stride = inputs + 4;
        let x = draw.floats(rows * x_stride, 1.0);
        let packed: Vec<f32> = x.chunks(x_stride).flat_map(|row| &row[..inputs]).copied().collect();
        let bias = draw.floats(outputs, 1.0);
        let weight = draw.floats(outputs * inputs, 1.0);
        let narrow: Vec<u16> = weight.iter().map(|&w| bf16_bits(w)).collect();
        let widened: Vec<f32> = narrow.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect();
        // Multiples of 1/64 below 2 are whole in f16: sign, exponent 15 + e, mantissa.
        let halves: Vec<f32> = weight.iter().map(|w| (w * 64.0).round() / 64.0).collect();
        let half_bits: Vec<u16> = halves.iter().map(|&w| f16_bits(w)).collect();
        let kinds = [
            (Kind::F32(up(&gpu, &weight)), &weight),
            (Kind::Bf16(gpu.upload(&narrow).unwrap()), &widened),
            (Kind::F16(gpu.upload(&half_bits).unwrap()), &halves),
        ];
        let (x, bias_) = (up(&gpu, &x), up(&gpu, &bias));
        for (kind, values) in kinds {
            let mut expected = vec![POISON; rows * outputs];
            matmul(&packed, rows, &Panels::pack(values, outputs, inputs), &mut expected);
            let stride = outputs + 2;
            let y = poisoned(&gpu, rows * stride);
            let matrix = Matrix::new(kind, outputs, inputs);
            gpu.matmul((x.view(), x_stride), rows, &matrix, Some(bias_.view()), (y.view(), stride)).unwrap();
            let y = down(&y);
            for r in 0..rows {
                let with_bias: Vec<f32> = (0..outputs).map(|o| expected[r * outputs + o] + bias[o]).collect();
                close("product", &y[r * stride..][..outputs], &with_bias, 1e-5, 2e-6 * (inputs as f32).sqrt());
                assert!(y[r * stride + outputs..][..2].iter().all(|y| y.is_nan()), "nothing beyond the outputs");
            }
            // The same matrix as an embedding table.
            let ids: Vec<u32> = (0..rows).map(|r| ((r * 7 + 1) % outputs) as u32).collect();
            let rows_ = poisoned(&gpu, (rows + 1) * inputs);
            let mut list = List::room(&gpu, rows + 1, outputs).unwrap();
            list.set(&ids, rows + 1).unwrap();
            gpu.embed(&list, &matrix, rows_.view()).unwrap();
            let wanted: Vec<f32> =
                ids.iter().flat_map(|&id| &values[id as usize * inputs..][..inputs]).copied().collect();
            assert_eq!(down(&rows_), [wanted, vec![0.0; inputs]].concat());
        }
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
fn q8_0_products_scale_each_block() {
    let (gpu, mut draw) = (gpu(), Draw(16));
    for (rows, inputs, outputs) in [(1, 32, 3), (1, 768, 5), (9, 544, 4)] {
        let x = draw.floats(rows * inputs, 1.0);
        let quants: Vec<i8> = (0..outputs * inputs).map(|_| (draw.word() % 255) as i8).collect();
        let scales: Vec<f32> = (0..outputs * inputs / 32).map(|_| ((draw.word() % 63 + 1) as f32) / 1024.0).collect();
        let weight: Vec<f32> = quants.iter().enumerate().map(|(at, &q)| f32::from(q) * scales[at / 32]).collect();
        let bits: Vec<u16> = scales.iter().map(|&scale| f16_bits(scale)).collect();
        let mut expected = vec![POISON; rows * outputs];
        matmul(&x, rows, &Panels::pack(&weight, outputs, inputs), &mut expected);
        let kind = Kind::Q8 { quants: gpu.upload(&quants).unwrap(), scales: gpu.upload(&bits).unwrap() };
        let (x, y) = (up(&gpu, &x), poisoned(&gpu, rows * outputs));
        let matrix = Matrix::new(kind, outputs, inputs);
        gpu.matmul((x.view(), inputs), rows, &matrix, None, (y.view(), outputs)).unwrap();
        close("q8_0", &down(&y), &expected, 1e-5, 1e-4);
    }
}
