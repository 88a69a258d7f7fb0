//! Crash-safe files, a disk that can be made to fail, and the receipt log.
