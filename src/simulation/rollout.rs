//! Running a conversation: runner, monitors, transcript, resume.

pub mod monitors;
