//! Tells this program where libtorch lies, so that it starts without LD_LIBRARY_PATH.

fn main() {
    find_libtorch::link_program();
}
