//! Checks of the source tree that the compiler cannot make, for example of dependencies between crates, of items that
//! documents name, and of names that are used twice. The checks are the tests of this crate. The crate depends on no
//! other crate, so that the tests run in seconds.
