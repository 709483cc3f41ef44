//! Passes the location of libtorch, as `DEP_TCH_PARALLEL_LINK_ARGS`, to the build scripts of the
//! programs that depend on this crate, since only a program's own build script can set its rpath.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let link_args = std::env::var("DEP_C10D_LINK_ARGS").unwrap_or_default();
    println!("cargo::metadata=link_args={link_args}");
    // This crate's own tests and examples are programs too.
    find_libtorch::link("DEP_C10D_LINK_ARGS");
}
