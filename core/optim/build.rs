//! This crate's own tests are programs that need libtorch.

fn main() {
    find_libtorch::link("DEP_C10D_LINK_ARGS");
}
