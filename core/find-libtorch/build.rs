//! Stops a build without libtorch before anything else is compiled: this crate depends on no other,
//! and everything that links libtorch depends on it.

#[allow(dead_code, reason = "what it finds is for the others")]
#[path = "src/lib.rs"]
mod find_libtorch;

use find_libtorch::Libtorch;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_on = |feature| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    if is_on("DOC_ONLY") || is_on("DOWNLOAD_LIBTORCH") {
        return;
    }
    if let Err(error) = Libtorch::find() {
        println!("cargo::error={error}");
    }
}
