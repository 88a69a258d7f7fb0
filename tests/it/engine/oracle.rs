//! A Mamba-1 with gains on Δ as plain f64 loops, compared with the engine.

use loom_agent::foundation::chat::{DeltaGains, LayerGains, Prompt, Sampling};
use safetensors::SafeTensors;

use super::{fixture, request, score, tiny};

/// The dims of the fixture `odd`.
const D_MODEL: usize = 20;
const D_INNER: usize = 40;
const D_STATE: usize = 5;
const D_CONV: usize = 3;
const DT_RANK: usize = 7;
const LAYERS: usize = 2;
const VOCABULARY: usize = 40;
const EPSILON: f64 = 1e-4;

struct Oracle(Vec<u8>);

impl Oracle {
    fn weight(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        data.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
    }

    /// Log-softmax rows for every token of `ids`.
    fn logprobs(&self, ids: &[u32], gains: &DeltaGains) -> Vec<Vec<f64>> {
        let table = self.weight("backbone.embeddings.weight");
        let mut x: Vec<Vec<f64>> = ids.iter().map(|&id| table[id as usize * D_MODEL..][..D_MODEL].to_vec()).collect();
        for layer in 0..LAYERS {
            let gains = gains.layer(layer).unwrap();
            let decay = f64::from(gains.delta) * f64::from(gains.decay);
            let write = f64::from(gains.delta) * f64::from(gains.write);
            for (row, out) in self.mixer(layer, &x, decay, write).into_iter().enumerate() {
                (0..D_MODEL).for_each(|i| x[row][i] += out[i]);
            }
        }
        let (norm, head) = (self.weight("backbone.norm_f.weight"), self.weight("lm_head.weight"));
        x.iter()
            .map(|x| {
                let logits = linear(&head, None, &rms_norm(x, &norm), VOCABULARY);
                let log_z = logits.iter().map(|l| l.exp()).sum::<f64>().ln();
                logits.iter().map(|l| l - log_z).collect()
            })
            .collect()
    }

    #[expect(clippy::many_single_char_names, reason = "the paper's names")]
    fn mixer(&self, layer: usize, x: &[Vec<f64>], decay: f64, write: f64) -> Vec<Vec<f64>> {
        let w = |name: &str| self.weight(&format!("backbone.layers.{layer}.{name}"));
        let (norm, in_proj, in_bias) = (w("norm.weight"), w("mixer.in_proj.weight"), w("mixer.in_proj.bias"));
        let (conv, x_proj) = (w("mixer.conv1d.weight"), w("mixer.x_proj.weight"));
        let (dt_proj, dt_bias) = (w("mixer.dt_proj.weight"), w("mixer.dt_proj.bias"));
        let (a_log, d) = (w("mixer.A_log"), w("mixer.D"));
        let (out_proj, out_bias) = (w("mixer.out_proj.weight"), w("mixer.out_proj.bias"));
        let uz: Vec<_> = x.iter().map(|x| linear(&in_proj, Some(&in_bias), &rms_norm(x, &norm), 2 * D_INNER)).collect();
        let mut h = vec![[0.0; D_STATE]; D_INNER];
        let mut outputs = Vec::new();
        for t in 0..x.len() {
            let mut u = vec![0.0; D_INNER];
            for c in 0..D_INNER {
                for tap in 0..D_CONV {
                    let Some(at) = (t + tap + 1).checked_sub(D_CONV) else { continue };
                    u[c] += conv[c * D_CONV + tap] * uz[at][c];
                }
                u[c] = silu(u[c]);
            }
            let dbc = linear(&x_proj, None, &u, DT_RANK + 2 * D_STATE);
            let delta = linear(&dt_proj, Some(&dt_bias), &dbc[..DT_RANK], D_INNER);
            let mut y = vec![0.0; D_INNER];
            for c in 0..D_INNER {
                let delta = delta[c].exp().ln_1p();
                for n in 0..D_STATE {
                    let a = -a_log[c * D_STATE + n].exp();
                    h[c][n] = (decay * delta * a).exp() * h[c][n] + write * delta * dbc[DT_RANK + n] * u[c];
                    y[c] += h[c][n] * dbc[DT_RANK + D_STATE + n];
                }
                y[c] = (y[c] + d[c] * u[c]) * silu(uz[t][D_INNER + c]);
            }
            outputs.push(linear(&out_proj, Some(&out_bias), &y, D_MODEL));
        }
        outputs
    }
}

fn linear(weight: &[f64], bias: Option<&[f64]>, x: &[f64], outputs: usize) -> Vec<f64> {
    let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
    (0..outputs).map(|o| dot(&weight[o * x.len()..][..x.len()]) + bias.map_or(0.0, |bias| bias[o])).collect()
}

fn rms_norm(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(weight).map(|(x, w)| x / (mean + EPSILON).sqrt() * w).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn check(gains: &DeltaGains) {
    let ids: Vec<u32> = (0..40).map(|i| i * 17 % 40).collect();
    let oracle = Oracle(std::fs::read(fixture("odd").join("model.safetensors")).unwrap());
    let expected = oracle.logprobs(&ids, gains);
    let mut request = request(Prompt::Ids(ids[..1].to_vec()), Sampling::greedy());
    request.gains = Some(gains.clone());
    let scored = score(&tiny("odd"), request, &ids[1..], VOCABULARY);
    let mut worst = 0f64;
    for (token, row) in scored.tokens.iter().zip(&expected) {
        for &(id, logprob) in &token.top {
            worst = worst.max((f64::from(logprob) - row[id as usize]).abs());
        }
    }
    println!("{gains:?}: largest difference {worst:e}");
    assert!(worst < 1e-5, "{gains:?}: {worst}");
}

#[test]
fn the_engine_agrees_with_an_f64_implementation_under_any_gains() {
    check(&DeltaGains::Uniform(LayerGains::ONE));
    check(&DeltaGains::Uniform(LayerGains { delta: 0.5, ..LayerGains::ONE }));
    check(&DeltaGains::Uniform(LayerGains { decay: 2.0, write: 0.25, ..LayerGains::ONE }));
    check(&DeltaGains::PerLayer(vec![
        LayerGains { delta: 1.5, decay: 0.5, write: 1.0 },
        LayerGains { delta: 0.0, decay: 1.0, write: 1.0 },
    ]));
}
