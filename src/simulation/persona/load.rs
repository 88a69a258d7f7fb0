//! From a file or a text to a [`PersonaConfig`]; all problems are reported together.

use std::path::Path;

use super::format;
use super::lower;
use super::spec::PersonaConfig;
use crate::foundation::base::{Digest, limits};
use crate::foundation::config::{ConfigErrors, FromNode as _, Node, NodeValue, Problem, Problems};
use crate::foundation::store::read_limited;

/// Reads the persona config at `path`.
///
/// # Errors
/// When the file cannot be read, is larger than [`limits::CONFIG_BYTES_MAX`], is not UTF-8, or holds problems.
pub fn load(path: &Path) -> Result<PersonaConfig, ConfigErrors> {
    load_with_text(path).map(|(config, _)| config)
}

/// As [`load`], and returns the text as well.
///
/// # Errors
/// As [`load`].
pub fn load_with_text(path: &Path) -> Result<(PersonaConfig, String), ConfigErrors> {
    let text = read_text(path)?;
    Ok((parse(&path.display().to_string(), &text)?, text))
}

/// Reads the text of the config at `path`; refuses files above the size limit.
pub(super) fn read_text(path: &Path) -> Result<String, ConfigErrors> {
    let refuse = |message: String, help: &str| {
        ConfigErrors::new(&path.display().to_string(), "", vec![Problem::new(0..0, message).help(help)])
    };
    let cannot = |error: std::io::Error| {
        refuse(
            format!("the file cannot be read: {error}"),
            "check the path; `loom examples` lists configs to start from",
        )
    };
    let bytes = match read_limited(path, limits::CONFIG_BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            let message = format!("the file is larger than {} bytes (CONFIG_BYTES_MAX)", limits::CONFIG_BYTES_MAX);
            return Err(refuse(message, "is this the right file? A persona config is a few kilobytes of YAML"));
        }
        read => read.map_err(cannot)?,
    };
    String::from_utf8(bytes).map_err(|error| {
        let message = format!("byte {} is not UTF-8 text", error.utf8_error().valid_up_to());
        refuse(message, "save the file as UTF-8")
    })
}

/// Reads a persona config from its text; `source_name` is the name used in messages. A byte order mark and CRLF are accepted.
///
/// # Errors
/// All problems that were found, each with its position in the text and a suggested fix.
pub fn parse(source_name: &str, yaml: &str) -> Result<PersonaConfig, ConfigErrors> {
    let text = yaml.strip_prefix('\u{feff}').unwrap_or(yaml);
    if text.len() as u64 > limits::CONFIG_BYTES_MAX {
        let message = format!("the text is larger than {} bytes (CONFIG_BYTES_MAX)", limits::CONFIG_BYTES_MAX);
        return Err(ConfigErrors::new(source_name, "", vec![Problem::new(0..0, message).help("shorten it")]));
    }
    let root = Node::parse(source_name, text)?;
    if root.value == NodeValue::Null {
        let problem = Problem::new(0..0, "the config is empty").help("`loom new NAME` writes one to start from");
        return Err(ConfigErrors::new(source_name, text, vec![problem]));
    }
    let mut problems = Problems::new(text);
    let file = format::File::read(&root, &mut problems);
    let config = file.and_then(|file| lower::config(&file, source_name, Digest::of(yaml), &mut problems));
    problems.finish(source_name, config)
}

/// The JSON Schema of the format, for editors.
pub fn json_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(format::File);
    schema.insert("title".into(), "Loom persona config".into());
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mania_patient_config_loads() {
        let config = parse("mania_patient.yaml", include_str!("../../../configs/personas/mania_patient.yaml"));
        let config = config.unwrap_or_else(|errors| {
            panic!("{errors}: {:#?}", errors.problems().collect::<Vec<_>>());
        });
        assert_eq!(config.persona.name, "Marcus Chen");
        assert_eq!(config.trajectory.dimensions.len(), 3);
        assert_eq!(config.trajectory.phases.len(), 5);
    }
}
