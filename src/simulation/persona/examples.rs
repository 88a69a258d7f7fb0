//! The configs that come with the program, so that an installed `loom` has them anywhere.

/// A config that comes with the program.
#[derive(Debug, Clone, Copy)]
pub struct Example {
    /// Its short name.
    pub name: &'static str,
    /// Its path below the folder of configs.
    pub path: &'static str,
    /// Its text.
    pub yaml: &'static str,
}

impl Example {
    /// What it is, in one line: its first comment.
    pub fn summary(&self) -> &'static str {
        self.yaml.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
    }
}

macro_rules! examples {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(Example {
            name: $name,
            path: concat!($folder, "/", $name, ".yaml"),
            yaml: include_str!(concat!("../../../configs/", $folder, "/", $name, ".yaml")),
        }),*]
    };
}

/// The persona configs.
pub const fn examples() -> &'static [Example] {
    examples!("personas": "mania_patient", "depressed_patient", "student", "open_ended")
}

/// The adversaries' strategies.
pub const fn adversaries() -> &'static [Example] {
    examples!("adversaries": "contradiction", "helpfulness")
}

/// A commented persona config to start from.
pub const STARTER: &str = include_str!("../../../configs/starter.yaml");
