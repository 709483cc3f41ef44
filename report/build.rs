//! Tells the tests where libtorch lies, so that they start without LD_LIBRARY_PATH.

fn main() {
    find_libtorch::link_program();
}
