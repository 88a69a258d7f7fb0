//! Keeps the pool's threads awake through a step. A step is a chain of many parallel parts, each shorter than it takes to
//! wake a thread that has gone to sleep since the last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rayon::Yield;

/// How often a thread looks for work in vain before it may sleep after all: some hundreds of microseconds.
const IDLE_MAX: u32 = 4096;
/// After so many looks in vain, somebody else may have the processor.
const PATIENCE: u32 = 32;

/// Does `work` on the current thread of the current pool while the others of that pool wait for its parts awake.
pub(super) fn awake<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let (done, owner) = (AtomicBool::new(false), rayon::current_thread_index());
    rayon::scope(|scope| {
        for _ in 1..rayon::current_num_threads() {
            scope.spawn(|_| wait(&done, owner));
        }
        // Also when `work` panics: the scope ends when all have gone.
        let _over = Over(&done);
        work()
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Takes part in whatever comes up until `done`, or until nothing has come up for long. The owner comes here when nobody
/// else has, and goes back at once: it is the one that is waited for.
fn wait(done: &AtomicBool, owner: Option<usize>) {
    if rayon::current_thread_index() == owner {
        return;
    }
    let mut idle = 0;
    while idle < IDLE_MAX && !done.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle.is_multiple_of(PATIENCE) {
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
            let sums = pool.install(|| awake(|| (0..50).map(|_| sum()).collect::<Vec<_>>()));
            assert_eq!(sums, [499_500; 50]);
            let panics = || pool.install(|| awake(|| -> u64 { panic!("on purpose") }));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
            assert_eq!(pool.install(|| awake(sum)), 499_500);
        }
    }
}
