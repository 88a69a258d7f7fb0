//! How much memory there is, as the operating system tells it. Unknown outside Linux.

use std::fs;

/// Bytes that could be used now without swapping: what the machine has free, and no more than its control group may have.
pub fn available_memory() -> Option<u64> {
    let free = meminfo("MemAvailable:")?;
    Some(group_left().map_or(free, |left| left.min(free)))
}

/// All of the machine's memory, bytes.
pub fn total_memory() -> Option<u64> {
    meminfo("MemTotal:")
}

/// A line of `/proc/meminfo`, which counts in KiB.
fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// What the process's control group (version 2) has left of its limit, its page cache counted as left.
fn group_left() -> Option<u64> {
    let number = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number("memory.max")?, number("memory.current")?);
    let stat = fs::read_to_string("/sys/fs/cgroup/memory.stat").unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cache)))
}
