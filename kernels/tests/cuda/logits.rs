//! Reading rows of logits where they are.

use super::*;

fn ask(uniform: f64) -> RowQuery<'static> {
    RowQuery {
        temperature: 1.0,
        top_p: 1.0,
        min_p: 0.0,
        penalty: 1.0,
        top_k: 0,
        top: 0,
        uniform,
        penalised: &[],
        given: NO_ENTRY,
    }
}

/// Read alone, and as the second of two rows: the same.
fn read(logits: &[f32], ask: RowQuery<'_>) -> RowStats {
    let gpu = gpu();
    let twice = [logits, logits].concat();
    let (rows, weights) = (up(&gpu, &twice), poisoned(&gpu, twice.len()));
    let other = RowQuery { penalised: &[1, 2], ..ask };
    let read = |asks: &[RowQuery<'_>]| {
        let (out, mut readings) = (gpu.uninit::<RowStats>(asks.len()).unwrap(), vec![RowStats::NONE; asks.len()]);
        let count = asks.len();
        let asks: Vec<_> = asks.iter().copied().map(Some).collect();
        let asks = RowQueries::new(&gpu, &asks, logits.len()).unwrap();
        gpu.read_logits([rows.view(), weights.view()], (&asks, 0, count), out.view()).unwrap();
        out.read(&mut readings).unwrap();
        readings
    };
    let (both, alone) = (read(&[other, ask]), read(&[ask]));
    assert!(both[1].id == alone[0].id && both[1].logprob.to_bits() == alone[0].logprob.to_bits());
    alone[0]
}

#[test]
fn a_row_is_read_as_on_the_cpu() {
    let mut draw = Draw(17);
    for (vocabulary, scale) in [(1, 1.0), (40, 3.0), (513, 10.0), (4_000, 6.0)] {
        let mut logits = draw.floats(vocabulary, scale);
        if vocabulary > 500 {
            // A tie at the top, and a masked entry.
            (logits[17], logits[400], logits[3]) = (scale + 1.0, scale + 1.0, f32::NEG_INFINITY);
        }
        let (summary, top) = read_logits(&logits, TOP_MAX);
        let given = (vocabulary / 2) as u32;
        let reading = read(&logits, RowQuery { given, top: TOP_MAX as u32, ..ask(0.0) });
        assert_eq!(reading.id, given);
        close("logprob", &[reading.logprob], &[summary.logprob(logits[given as usize])], 2e-6, 2e-6);
        close("entropy", &[reading.entropy], &[summary.entropy], 2e-5, 2e-6);
        assert_eq!(Some(reading.rank), rank_of(&logits, given));
        let ids: Vec<u32> = reading.top[..top.len()].iter().map(|entry| entry.id).collect();
        assert_eq!(ids, top.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        for (entry, (_, logprob)) in reading.top.iter().zip(&top) {
            close("top", &[entry.logprob], &[*logprob], 2e-6, 2e-6);
        }
    }
    for bad in [vec![f32::NEG_INFINITY; 9], vec![1.0, f32::NAN, 2.0], vec![1.0, f32::INFINITY]] {
        let reading = read(&bad, ask(0.5));
        assert!(reading.id == NO_ENTRY && reading.logprob.is_nan() && reading.entropy.is_nan());
    }
}

#[test]
fn draws_are_the_cpu_s_draws() {
    let mut draw = Draw(18);
    let mut scratch = loom_kernels::SampleScratch::default();
    let mut same = 0;
    let mut all = 0;
    for round in 0..24 {
        let vocabulary = [7, 300, 1_111][round % 3];
        let logits = draw.floats(vocabulary, 6.0);
        let penalised: Vec<u32> = (0..round as u32 % 5).map(|i| i * 3).collect();
        let params = SampleParams {
            temperature: [1.0, 0.7, 0.0, 1.6][round % 4],
            top_k: [None, Some(5), Some(1), Some(40)][round / 4 % 4],
            top_p: [1.0, 0.9, 0.5][round / 2 % 3],
            min_p: [0.0, 0.05][round / 7 % 2],
        };
        let asked = RowQuery {
            temperature: params.temperature,
            top_p: params.top_p,
            min_p: params.min_p,
            penalty: 1.3,
            top_k: params.top_k.unwrap_or(0) as u32,
            penalised: &penalised,
            ..ask(0.0)
        };
        for uniform in [0.0, 0.999_999, draw.unit()] {
            let mut row = logits.clone();
            penalise(&mut row, &penalised, 1.3);
            let expected = sample(&row, &params, uniform, &mut scratch).unwrap();
            let reading = read(&logits, RowQuery { uniform, ..asked });
            all += 1;
            same += usize::from(reading.id == expected);
            // What it says of the drawn entry is of the logits as they came.
            let (summary, _) = read_logits(&logits, 0);
            close("logprob", &[reading.logprob], &[summary.logprob(logits[reading.id as usize])], 2e-6, 2e-6);
        }
    }
    // A draw on the boundary between two entries may differ, because exponentials differ in the last place.
    assert!(same + 1 >= all, "{same} of {all} draws agree");
}
