//! Compiles the C ABI against the libtorch that torch-sys has found, and hands on what a program
//! needs at its link.

use std::env;
use std::path::{Path, PathBuf};

const SOURCES: [&str; 10] = [
    "amp.cpp",
    "initialize.cpp",
    "store.cpp",
    "process_group.cpp",
    "comm_hook.cpp",
    "reducer.cpp",
    "autograd.cpp",
    "memory.cpp",
    "random.cpp",
    "tensor.cpp",
];

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LIBTORCH_CXX11_ABI");

    // torch-sys says where libtorch lies; see `links = "tch"` in its manifest.
    let Some(lib) = env::var_os("DEP_TCH_LIBTORCH_LIB").map(PathBuf::from) else {
        println!(
            "cargo::error=torch-sys did not say where libtorch lies; run `cargo xtask setup` or set LIBTORCH"
        );
        return;
    };
    let torch = lib.parent().unwrap_or(&lib).to_path_buf();
    let cuda = env::var_os("CARGO_FEATURE_CUDA").is_some();

    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        // libtorch's headers are not ours to mend.
        .warnings(false)
        .define("USE_DISTRIBUTED", None)
        .define("USE_C10D_GLOO", None)
        .define(
            "_GLIBCXX_USE_CXX11_ABI",
            env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".into()).as_str(),
        )
        .include("csrc")
        .include("csrc/gloo_declarations")
        .include(torch.join("include"))
        .include(torch.join("include/torch/csrc/api/include"))
        .files(SOURCES.map(|source| Path::new("csrc").join(source)));
    if cuda {
        // The CUDA and NCCL headers lie beside torch, in the wheels that the full set-up installs;
        // LIBTORCH may be a link to there.
        let real = torch.canonicalize().unwrap_or(torch);
        let nvidia = real.parent().unwrap_or(&real).join("nvidia");
        let headers = [nvidia.join("cu13/include"), nvidia.join("nccl/include")];
        if !headers[0].join("cuda_runtime_api.h").exists() || !headers[1].join("nccl.h").exists() {
            println!(
                "cargo::error=the feature `cuda` needs the headers of CUDA and NCCL in {}; `cargo xtask setup --full` installs them",
                nvidia.display()
            );
            return;
        }
        build.define("USE_C10D_NCCL", None).includes(headers).file("csrc/nccl.cpp");
    }
    build.compile("c10d_sys");

    println!("cargo::rustc-link-search=native={}", lib.display());
    let mut link_args = format!("-Wl,-rpath,{}", lib.display());
    if cuda {
        // Nothing refers to the CUDA half by name: it registers itself when it is loaded.
        link_args.push_str(" -Wl,--no-as-needed -ltorch_cuda -ltorch -Wl,--as-needed");
        println!("cargo::rustc-link-lib=torch_cuda");
    }
    println!("cargo::rustc-link-lib=torch_cpu");
    println!("cargo::rustc-link-lib=c10");
    println!("cargo::metadata=link_args={link_args}");
    // This crate's own tests are programs as well.
    for arg in link_args.split_whitespace() {
        println!("cargo::rustc-link-arg={arg}");
    }
}
