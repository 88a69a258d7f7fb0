//! Governed memory: decisions in plain Markdown, changed only by proposals that are applied atomically.
