//! Places of a GPU's memory that are handed out and come back by themselves: slots for states, pages for keys and values.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loom_kernels::cuda::GpuError;

/// Numbered places.
pub(super) struct Pool {
    what: &'static str,
    count: usize,
    free: Arc<Mutex<Vec<i32>>>,
}

/// One of them, in use until it is dropped. Work on the device is done in order, so whoever has it next writes after the
/// last one has read.
pub(super) struct Place {
    index: i32,
    free: Arc<Mutex<Vec<i32>>>,
}

impl Pool {
    /// Places `first..count`, the lowest first; `what` they are, for people.
    pub(super) fn new(what: &'static str, first: usize, count: usize) -> Self {
        let number = |place: usize| i32::try_from(place).unwrap_or(i32::MAX);
        Self { what, count, free: Arc::new(Mutex::new((number(first)..number(count)).rev().collect())) }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn take(&self) -> Result<Arc<Place>, GpuError> {
        let index = lock(&self.free).pop().ok_or_else(|| {
            GpuError::new(format!(
                "all {} {} that fit into its memory are in use; run less at once",
                self.count, self.what
            ))
        })?;
        Ok(Arc::new(Place { index, free: Arc::clone(&self.free) }))
    }
}

impl Place {
    pub(super) fn index(&self) -> i32 {
        self.index
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.free).push(self.index);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_when_the_last_that_holds_it_is_gone() {
        let pool = Pool::new("states", 1, 3);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!((first.index(), second.index()), (1, 2));
        assert!(pool.take().err().unwrap().to_string().starts_with("all 3 states"));
        let shared = Arc::clone(&first);
        drop(first);
        assert!(pool.take().is_err());
        drop(shared);
        assert_eq!(pool.take().unwrap().index(), 1);
    }
}
