//! The plan of a sweep: a YAML file, or flags.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::DeltaStudyError;
use super::passage::RECALL;
use super::setting::{Gain, GainSetting, LayerSelection, TokenWindow, check_value, parse_values};
use crate::foundation::base::limits::{CONFIG_BYTES_MAX, SWEEP_CELLS_MAX};
use crate::foundation::store::read_text;

/// The plan of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepPlan {
    /// The model.
    pub model: String,
    /// Text files, transcripts (`.json`), or `recall`.
    pub texts: Vec<String>,
    /// Gains with their values, such as `g_delta=0.5,2`; one gain at a time differs from 1.
    pub gains: Vec<String>,
    /// Sets of layers.
    pub layers: Vec<LayerSelection>,
    /// Windows of tokens.
    pub windows: Vec<TokenWindow>,
    /// Longest passage, tokens.
    pub length: usize,
    /// Most passages taken from one text.
    pub passages: usize,
    /// Tokens generated greedily after each passage, to measure repetition; 0 for none.
    pub continuation: usize,
    /// Alternatives per token for the divergence; all if absent and the vocabulary is small.
    pub top: Option<usize>,
}

impl Default for SweepPlan {
    fn default() -> Self {
        let values = "0.5,0.7,0.85,1.15,1.4,2";
        Self {
            model: "bundled".to_owned(),
            texts: vec![RECALL.to_owned()],
            gains: ["g_delta", "g_decay", "g_write"].map(|gain| format!("{gain}={values}")).to_vec(),
            layers: vec![LayerSelection::All],
            windows: vec![TokenWindow::ALL],
            length: 224,
            passages: 8,
            continuation: 32,
            top: None,
        }
    }
}

impl SweepPlan {
    /// Reads a plan's YAML; missing keys have their defaults.
    ///
    /// # Errors
    /// [`DeltaStudyError::SweepPlan`].
    pub fn load(path: &Path) -> Result<Self, DeltaStudyError> {
        let wrong = |why: String| DeltaStudyError::SweepPlan { path: path.to_owned(), why };
        let text = read_text(path, CONFIG_BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
        serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))
    }

    /// Every setting, for a model of `count` layers.
    ///
    /// # Errors
    /// If one is invalid, or there are too many.
    pub fn settings(&self, count: usize) -> Result<Vec<GainSetting>, DeltaStudyError> {
        let gains: Vec<(Gain, Vec<f32>)> =
            self.gains.iter().map(|text| parse_values(text)).collect::<Result<_, _>>()?;
        let mut settings = Vec::new();
        for window in &self.windows {
            for layers in &self.layers {
                layers.check(count)?;
                for (gain, values) in &gains {
                    for value in values {
                        let (layers, window) = (layers.clone(), *window);
                        settings.push(GainSetting { gain: *gain, value: check_value(*value)?, layers, window });
                    }
                }
            }
        }
        if settings.is_empty() || settings.len() > SWEEP_CELLS_MAX {
            let why =
                format!("there are {} settings; name at least one, and at most {SWEEP_CELLS_MAX}", settings.len());
            return Err(DeltaStudyError::Text { name: "the sweep".to_owned(), why });
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_of_a_plan_have_defaults() {
        let yaml = "texts: [book.txt]\ngains: [\"g_write=0,2\"]\nlayers: [late, \"0,1\"]\nwindows: [all, \"0:64\"]\n";
        let plan: SweepPlan = serde_saphyr::from_str(yaml).unwrap();
        assert_eq!(plan.settings(6).unwrap().len(), 8);
        assert_eq!((plan.model.as_str(), plan.length), ("bundled", 224));
        assert!(plan.settings(1).is_err(), "there is no layer 1");
        assert!(serde_saphyr::from_str::<SweepPlan>("text: [x]\n").is_err());
        assert_eq!(SweepPlan::default().settings(6).unwrap().len(), 18);
    }
}
