//! Tells the tests where libtorch lies, so that they start without LD_LIBRARY_PATH.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for arg in std::env::var("DEP_TCH_PARALLEL_LINK_ARGS").unwrap_or_default().split_whitespace() {
        println!("cargo::rustc-link-arg={arg}");
    }
}
