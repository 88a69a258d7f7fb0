//! Memory of the machine as reported by the operating system. `None` outside Linux.

use std::fs;

/// Bytes that can be used now without swapping: free memory, limited by what the control group allows.
pub fn available_memory() -> Option<u64> {
    let free = meminfo("MemAvailable:")?;
    Some(group_left().map_or(free, |left| left.min(free)))
}

/// Total memory of the machine, bytes.
pub fn total_memory() -> Option<u64> {
    meminfo("MemTotal:")
}

/// A value of `/proc/meminfo`, given there in KiB.
fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// Unused part of the memory limit of the process's control group (version 2). Page cache counts as unused.
fn group_left() -> Option<u64> {
    let number = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number("memory.max")?, number("memory.current")?);
    let stat = fs::read_to_string("/sys/fs/cgroup/memory.stat").unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cache)))
}
