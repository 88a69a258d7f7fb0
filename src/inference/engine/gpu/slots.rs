//! Index allocator for GPU memory: slots for states, pages for keys and values. An index returns to the pool when it is
//! dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loom_kernels::cuda::GpuError;

/// A pool of indices.
pub(super) struct Pool {
    what: &'static str,
    count: usize,
    free: Arc<Mutex<Vec<i32>>>,
}

/// An index in use. GPU work is executed in order, so the next owner writes after the previous one has read.
pub(in super::super) struct PoolIndex {
    index: i32,
    free: Arc<Mutex<Vec<i32>>>,
}

impl Pool {
    /// Indices `first..count`, lowest first; `what` names them in messages.
    pub(super) fn new(what: &'static str, first: usize, count: usize) -> Self {
        let number = |index: usize| i32::try_from(index).unwrap_or(i32::MAX);
        Self { what, count, free: Arc::new(Mutex::new((number(first)..number(count)).rev().collect())) }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn take(&self) -> Result<Arc<PoolIndex>, GpuError> {
        let index = lock(&self.free).pop().ok_or_else(|| {
            GpuError::new(format!(
                "all {} {} that fit into GPU memory are in use; run fewer sequences at once",
                self.count, self.what
            ))
        })?;
        Ok(Arc::new(PoolIndex { index, free: Arc::clone(&self.free) }))
    }
}

impl PoolIndex {
    pub(super) fn index(&self) -> i32 {
        self.index
    }
}

impl Drop for PoolIndex {
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
    fn an_index_returns_to_the_pool_with_its_last_owner() {
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
