//! Tells this program where libtorch lies, so that it starts without LD_LIBRARY_PATH.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    find_libtorch::link_like("DEP_TCH_PARALLEL_LINK_ARGS");
}
