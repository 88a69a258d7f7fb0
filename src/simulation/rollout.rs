//! Running a conversation: runner, monitors, transcript, resume.
