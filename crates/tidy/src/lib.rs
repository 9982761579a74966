//! Checks of the source tree that the compiler cannot make: which crate depends on which, that documents name what exists, that names
//! are not used twice. They are the tests of this crate, which depends on no other, so that they run in seconds.
