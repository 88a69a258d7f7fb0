//! Keeps the threads of a rayon pool spinning during a step. A step consists of many short parallel sections, each
//! shorter than the time to wake a sleeping thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rayon::Yield;

/// Number of failed attempts to find work before a thread may sleep: some hundreds of microseconds.
const IDLE_SPINS_MAX: u32 = 4096;
/// Number of failed attempts after which the thread yields its time slice.
const SPINS_PER_YIELD: u32 = 32;

/// Runs `work` on the current thread of the current pool while the other threads of the pool spin for work.
pub(super) fn with_spinning_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let (done, owner) = (AtomicBool::new(false), rayon::current_thread_index());
    rayon::scope(|scope| {
        for _ in 1..rayon::current_num_threads() {
            scope.spawn(|_| wait(&done, owner));
        }
        // Also when `work` panics: the scope ends when all threads have left.
        let _done = DoneOnDrop(&done);
        work()
    })
}

struct DoneOnDrop<'a>(&'a AtomicBool);

impl Drop for DoneOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Executes pending work until `done`, or until there was none for long. The thread that runs `work` returns at once:
/// it must not wait for itself.
fn wait(done: &AtomicBool, owner: Option<usize>) {
    if rayon::current_thread_index() == owner {
        return;
    }
    let mut idle = 0;
    while idle < IDLE_SPINS_MAX && !done.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle.is_multiple_of(SPINS_PER_YIELD) {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn work_is_done_on_any_number_of_threads_and_a_panic_ends_it() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let sum = || (0..1000u64).into_par_iter().sum::<u64>();
            let sums = pool.install(|| with_spinning_pool(|| (0..50).map(|_| sum()).collect::<Vec<_>>()));
            assert_eq!(sums, [499_500; 50]);
            let panics = || pool.install(|| with_spinning_pool(|| -> u64 { panic!("on purpose") }));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
            assert_eq!(pool.install(|| with_spinning_pool(sum)), 499_500);
        }
    }
}
