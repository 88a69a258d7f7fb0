//! One setting: a gain, its value, its layers and its tokens.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::foundation::chat::{DeltaGains, LayerGains};

/// The largest allowed gain; beyond it a state overflows within a few tokens.
const GAIN_MAX: f32 = 100.0;

/// One of the three gains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Gain {
    /// On both effects of Δ.
    #[serde(rename = "g_delta")]
    Delta,
    /// On the decay of the state.
    #[serde(rename = "g_decay")]
    Decay,
    /// On the write to the state.
    #[serde(rename = "g_write")]
    Write,
}

impl Gain {
    /// Its name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delta => "g_delta",
            Self::Decay => "g_decay",
            Self::Write => "g_write",
        }
    }

    /// A layer's gains with this one set to `value`.
    pub fn of(self, value: f32) -> LayerGains {
        let mut gains = LayerGains::ONE;
        match self {
            Self::Delta => gains.delta = value,
            Self::Decay => gains.decay = value,
            Self::Write => gains.write = value,
        }
        gains
    }
}

impl FromStr for Gain {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let found = [Self::Delta, Self::Decay, Self::Write].into_iter().find(|gain| gain.name() == text);
        found.ok_or_else(|| SettingError::Gain(text.to_owned()))
    }
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No such gain.
    #[error("there is no gain `{0}`: use `g_delta`, `g_decay` and `g_write`")]
    Gain(String),
    /// No such value.
    #[error("`{0}` is not a valid gain: use numbers from 0 to {GAIN_MAX}")]
    Value(String),
    /// No such layers.
    #[error(
        "`{text}` does not name layers of a model with layers 0 to {last}: write `all`, `early`, `late`, or numbers such as `0,2`"
    )]
    LayerSelection {
        /// What was written.
        text: String,
        /// The last layer.
        last: usize,
    },
    /// No such window.
    #[error(
        "`{0}` is not a window of tokens: write `all` or FROM:TO, such as `0:64` or `64:`; it begins at 0, or at 2 or later, and \
         is not empty"
    )]
    TokenWindow(String),
}

/// A set of layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum LayerSelection {
    /// Every layer.
    All,
    /// The first half, rounded down.
    Early,
    /// The rest.
    Late,
    /// These.
    These(Vec<usize>),
}

impl LayerSelection {
    /// Whether it contains layer `index` of `count`.
    pub fn has(&self, index: usize, count: usize) -> bool {
        match self {
            Self::All => true,
            Self::Early => index < count / 2,
            Self::Late => index >= count / 2,
            Self::These(layers) => layers.contains(&index),
        }
    }

    /// # Errors
    /// If a named layer does not exist in a model of `count` layers.
    pub fn check(&self, count: usize) -> Result<(), SettingError> {
        match self {
            Self::These(layers) if layers.iter().any(|layer| *layer >= count) => {
                Err(SettingError::LayerSelection { text: self.to_string(), last: count.saturating_sub(1) })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for LayerSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Early => f.write_str("early"),
            Self::Late => f.write_str("late"),
            Self::These(layers) => f.write_str(&layers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

impl FromStr for LayerSelection {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        Ok(match text.trim() {
            "all" => Self::All,
            "early" => Self::Early,
            "late" => Self::Late,
            numbers => {
                let layers: Result<Vec<usize>, _> = numbers.split(',').map(|number| number.trim().parse()).collect();
                Self::These(layers.map_err(|_| SettingError::LayerSelection { text: text.to_owned(), last: 0 })?)
            }
        })
    }
}

/// A range of a passage's tokens, by index: tokens inside are read under the gains, so predictions change from the token
/// after the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TokenWindow {
    /// First token.
    pub from: usize,
    /// One past the last token; `None` is the end of the passage, continuation included.
    pub to: Option<usize>,
}

impl TokenWindow {
    /// Every token.
    pub const ALL: Self = Self { from: 0, to: None };
}

impl fmt::Display for TokenWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.to) {
            (0, None) => f.write_str("all"),
            (from, None) => write!(f, "{from}:"),
            (from, Some(to)) => write!(f, "{from}:{to}"),
        }
    }
}

impl FromStr for TokenWindow {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let wrong = || SettingError::TokenWindow(text.to_owned());
        if text.trim() == "all" {
            return Ok(Self::ALL);
        }
        let (from, to) = text.trim().split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
        let window = Self {
            from: if from.is_empty() { 0 } else { number(from)? },
            to: if to.is_empty() { None } else { Some(number(to)?) },
        };
        // The first token is read together with the second.
        let sane = window.from != 1 && window.to.is_none_or(|to| to > window.from && to > 1);
        if sane { Ok(window) } else { Err(wrong()) }
    }
}

/// Serialised as text, in the format of the flags.
macro_rules! written_as_text {
    ($($kind:ty)*) => {$(
        impl From<$kind> for String {
            fn from(value: $kind) -> Self {
                value.to_string()
            }
        }

        impl TryFrom<String> for $kind {
            type Error = SettingError;

            fn try_from(text: String) -> Result<Self, SettingError> {
                text.parse()
            }
        }
    )*};
}

written_as_text!(LayerSelection TokenWindow);

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GainSetting {
    /// The gain; the others are 1.
    pub gain: Gain,
    /// Its value.
    pub value: f32,
    /// Its layers; elsewhere it is 1.
    pub layers: LayerSelection,
    /// Its tokens; elsewhere it is 1.
    pub window: TokenWindow,
}

impl GainSetting {
    /// The gains for a model of `count` layers.
    pub fn gains(&self, count: usize) -> DeltaGains {
        let gains = self.gain.of(self.value);
        if self.layers == LayerSelection::All {
            return DeltaGains::Uniform(gains);
        }
        let of = |layer| if self.layers.has(layer, count) { gains } else { LayerGains::ONE };
        DeltaGains::PerLayer((0..count).map(of).collect())
    }
}

impl fmt::Display for GainSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} layers {} tokens {}", self.gain.name(), self.value, self.layers, self.window)
    }
}

/// A gain and its values, as a flag has them: `g_delta=0.5,0.8,2`.
///
/// # Errors
/// If the gain or a value is invalid.
pub(super) fn parse_values(text: &str) -> Result<(Gain, Vec<f32>), SettingError> {
    let (gain, values) = text.split_once('=').ok_or_else(|| SettingError::Gain(text.to_owned()))?;
    let values: Result<_, _> = values
        .split(',')
        .map(|value| value.trim().parse().map_err(|_| SettingError::Value(value.to_owned())).and_then(check_value))
        .collect();
    Ok((gain.trim().parse()?, values?))
}

/// # Errors
/// If the value is out of range.
pub(super) fn check_value(value: f32) -> Result<f32, SettingError> {
    if (0.0..=GAIN_MAX).contains(&value) { Ok(value) } else { Err(SettingError::Value(value.to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_layers_round_trip_as_text() {
        for text in ["all", "0:64", "64:", "2:9"] {
            assert_eq!(text.parse::<TokenWindow>().unwrap().to_string(), text);
        }
        assert_eq!(":64".parse::<TokenWindow>().unwrap().to_string(), "0:64");
        for text in ["1:", "0:1", "5:5", "9:3", "x", "3"] {
            assert!(text.parse::<TokenWindow>().is_err(), "{text}");
        }
        for text in ["all", "early", "late", "0,2"] {
            assert_eq!(text.parse::<LayerSelection>().unwrap().to_string(), text);
        }
        assert!("0,x".parse::<LayerSelection>().is_err());
        assert!("0,6".parse::<LayerSelection>().unwrap().check(6).is_err());
    }

    #[test]
    fn a_setting_leaves_the_other_gains_and_layers_alone() {
        let setting =
            GainSetting { gain: Gain::Write, value: 0.5, layers: LayerSelection::Late, window: TokenWindow::ALL };
        let half = LayerGains { write: 0.5, ..LayerGains::ONE };
        assert_eq!(setting.gains(3), DeltaGains::PerLayer(vec![LayerGains::ONE, half, half]));
        assert_eq!(parse_values("g_decay=0,2").unwrap(), (Gain::Decay, vec![0.0, 2.0]));
        for text in ["g=1", "g_decay", "g_decay=-1", "g_decay=nan", "g_decay=101"] {
            assert!(parse_values(text).is_err(), "{text}");
        }
    }
}
