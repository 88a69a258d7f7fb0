//! What a sweep is to do: a YAML file, or flags.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::DeltaStudyError;
use super::passage::RECALL;
use super::setting::{Gain, Layers, Setting, Window, check_value, parse_values};
use crate::foundation::base::limits::{CONFIG_BYTES_MAX, SWEEP_CELLS_MAX};

/// What a sweep is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// The model.
    pub model: String,
    /// Text files, transcripts (`.json`), or `recall`.
    pub texts: Vec<String>,
    /// A gain and its values each, such as `g_delta=0.5,2`; one gain at a time differs from 1.
    pub gains: Vec<String>,
    /// Sets of layers.
    pub layers: Vec<Layers>,
    /// Windows of tokens.
    pub windows: Vec<Window>,
    /// Longest passage, tokens.
    pub length: usize,
    /// Most passages taken from one text.
    pub passages: usize,
    /// How many tokens are written greedily after each passage, to see whether it repeats itself; 0 writes none.
    pub continuation: usize,
    /// How many alternatives to a token the divergence is taken over; all if absent and the vocabulary is small.
    pub top: Option<usize>,
}

impl Default for Plan {
    fn default() -> Self {
        let values = "0.5,0.7,0.85,1.15,1.4,2";
        Self {
            model: "bundled".to_owned(),
            texts: vec![RECALL.to_owned()],
            gains: ["g_delta", "g_decay", "g_write"].map(|gain| format!("{gain}={values}")).to_vec(),
            layers: vec![Layers::All],
            windows: vec![Window::ALL],
            length: 224,
            passages: 8,
            continuation: 32,
            top: None,
        }
    }
}

impl Plan {
    /// Reads a plan's YAML; what it leaves out is as by default.
    ///
    /// # Errors
    /// [`DeltaStudyError::Plan`].
    pub fn load(path: &Path) -> Result<Self, DeltaStudyError> {
        let wrong = |why: String| DeltaStudyError::Plan { path: path.to_owned(), why };
        let length = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if length > CONFIG_BYTES_MAX {
            return Err(wrong(format!("it is larger than {CONFIG_BYTES_MAX} bytes (CONFIG_BYTES_MAX)")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))
    }

    /// Every setting, for a model of `count` layers.
    ///
    /// # Errors
    /// When one makes no sense, or there are too many.
    pub fn settings(&self, count: usize) -> Result<Vec<Setting>, DeltaStudyError> {
        let gains: Vec<(Gain, Vec<f32>)> =
            self.gains.iter().map(|text| parse_values(text)).collect::<Result<_, _>>()?;
        let mut settings = Vec::new();
        for window in &self.windows {
            for layers in &self.layers {
                layers.check(count)?;
                for (gain, values) in &gains {
                    for value in values {
                        let (layers, window) = (layers.clone(), *window);
                        settings.push(Setting { gain: *gain, value: check_value(*value)?, layers, window });
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
    fn a_plan_in_yaml_says_only_what_differs() {
        let yaml = "texts: [book.txt]\ngains: [\"g_write=0,2\"]\nlayers: [late, \"0,1\"]\nwindows: [all, \"0:64\"]\n";
        let plan: Plan = serde_saphyr::from_str(yaml).unwrap();
        assert_eq!(plan.settings(6).unwrap().len(), 8);
        assert_eq!((plan.model.as_str(), plan.length), ("bundled", 224));
        assert!(plan.settings(1).is_err(), "there is no layer 1");
        assert!(serde_saphyr::from_str::<Plan>("text: [x]\n").is_err());
        assert_eq!(Plan::default().settings(6).unwrap().len(), 18);
    }
}
