//! The configs embedded in the program, so that an installed `loom` has them without its source tree.

/// A config embedded in the program.
#[derive(Debug, Clone, Copy)]
pub struct ExampleConfig {
    /// Its short name.
    pub name: &'static str,
    /// Its path below the folder of configs.
    pub path: &'static str,
    /// Its text.
    pub yaml: &'static str,
}

impl ExampleConfig {
    /// A one-line summary: the first comment of the file.
    pub fn summary(&self) -> &'static str {
        self.yaml.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
    }
}

macro_rules! examples {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(ExampleConfig {
            name: $name,
            path: concat!($folder, "/", $name, ".yaml"),
            yaml: include_str!(concat!("../../../configs/", $folder, "/", $name, ".yaml")),
        }),*]
    };
}

/// The persona configs.
pub const fn examples() -> &'static [ExampleConfig] {
    examples!("personas": "mania_patient", "depressed_patient", "student", "open_ended")
}

/// The adversaries' strategies.
pub const fn adversaries() -> &'static [ExampleConfig] {
    examples!("adversaries": "contradiction", "helpfulness")
}

/// A commented persona config to start from.
pub const STARTER: &str = include_str!("../../../configs/starter.yaml");
