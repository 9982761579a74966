//! Bugs that were once real, put back one at a time to see whether the tests notice.
//!
//! Without the feature `mutants` this is a constant and leaves no trace in the program.

/// Is the bug of this name switched on? Names are those of the catalogue in `sim`.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub fn is(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use switch::{is, reset, set};

#[cfg(feature = "mutants")]
mod switch {
    extern crate std;
    use alloc::string::String;
    use core::cell::RefCell;

    std::thread_local! {
        static ACTIVE: RefCell<String> = const { RefCell::new(String::new()) };
    }

    pub fn is(name: &str) -> bool {
        ACTIVE.with_borrow(|it| it == name)
    }

    /// Switches one bug on for this thread.
    pub fn set(name: &str) {
        ACTIVE.with_borrow_mut(|it| {
            it.clear();
            it.push_str(name);
        });
    }

    pub fn reset() {
        ACTIVE.with_borrow_mut(String::clear);
    }
}
