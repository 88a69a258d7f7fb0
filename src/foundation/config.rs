//! YAML with source positions, diagnostics that underline them, JSON Schemas.
