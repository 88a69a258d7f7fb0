//! Libraries that panic on damaged input: the panic becomes an error, and is not reported as a bug of this program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns, or the message of its panic. For calls of libraries on untrusted input; what the call leaves
/// behind must not be used afterwards unless it tolerates that.
///
/// # Errors
/// The panic's message.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(before);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown").to_owned()
    })
}

/// Whether this thread is inside [`caught`]: a panic hook then has nothing to report.
pub fn is_caught() -> bool {
    CAUGHT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(caught(|| 3), Ok(3));
        assert_eq!(caught(|| -> () { panic!("number {}", 4) }), Err("number 4".to_owned()));
        assert_eq!(caught(|| -> () { panic!("plain") }), Err("plain".to_owned()));
        assert!(caught(is_caught).unwrap() && !is_caught());
    }
}
