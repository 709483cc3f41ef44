//! Stops a build for which there is no libtorch, before anything else is compiled for it: this crate
//! depends on no other, and all that links libtorch depends on it.

#[allow(dead_code, reason = "what it finds is for the others")]
#[path = "src/lib.rs"]
mod find_libtorch;

use find_libtorch::Libtorch;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(error) = Libtorch::find() {
        println!("cargo::error={error}");
    }
}
