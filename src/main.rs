//! The program `loom`.

fn main() {}
