//! Compiles the C ABI against libtorch, and passes on the linker arguments that a program needs.
//!
//! It looks for libtorch itself, so that it and torch-sys compile at the same time. Only with the feature
//! `download-libtorch` does it ask torch-sys.

use std::{env, error::Error, fs, path::Path, path::PathBuf};

use find_libtorch::{Libtorch, variable};

/// The files of `csrc`, without the ending.
const SOURCES: &str = "error_kind amp store shared_memory/arena shared_memory/operation \
    shared_memory/exchange shared_memory/rounds shared_memory/collectives shared_memory/reductions \
    shared_memory/copies gloo process_group collectives comm_hook reducer autograd backward_hooks \
    storage device pretended_cuda memory profiler stream random arithmetic foreach tensor";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rerun-if-changed=build.rs");

    if env::var_os("CARGO_FEATURE_DOC_ONLY").is_some() {
        return Ok(());
    }
    let libtorch = Libtorch::find()?;
    let (cuda, nvidia) = (env::var_os("CARGO_FEATURE_CUDA").is_some(), nvidia(&libtorch));
    let headers = [nvidia.join("cu13/include"), nvidia.join("nccl/include")];
    let needed = [headers[0].join("cuda_runtime_api.h"), headers[1].join("nccl.h")];
    if cuda && !needed.iter().all(|header| header.exists()) {
        println!(
            "cargo::error=the feature `cuda` needs the headers of CUDA and NCCL in {}: run `cargo xtask setup --full`",
            nvidia.display()
        );
        return Ok(());
    }
    compile(&libtorch, cuda.then_some(&headers))?;
    link(&libtorch.lib, cuda);
    Ok(())
}

/// The folder beside torch where wheels put the headers of CUDA and NCCL. LIBTORCH may be a link to torch.
fn nvidia(libtorch: &Libtorch) -> PathBuf {
    let include = libtorch.include.canonicalize().unwrap_or_else(|_| libtorch.include.clone());
    let site_packages = include.ancestors().nth(2).unwrap_or(&include);
    site_packages.join("nvidia")
}

/// Compiles all sources as one file, because most of the time goes into libtorch's headers, which
/// are then read only once.
fn compile(libtorch: &Libtorch, cuda_headers: Option<&[PathBuf; 2]>) -> Result<(), Box<dyn Error>> {
    let abi = variable("LIBTORCH_CXX11_ABI").unwrap_or_else(|| "1".into());
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        // Most warnings come from libtorch's headers, which we cannot fix.
        .warnings(false)
        // Sums of integers wrap around, as in gloo.
        .flag("-fwrapv")
        // A product is rounded before it is added, on every processor.
        .flag("-ffp-contract=off")
        // As libtorch itself is compiled: some of its types have more fields without it.
        .define("NDEBUG", None)
        .define("USE_DISTRIBUTED", None)
        .define("USE_C10D_GLOO", None)
        .define("_GLIBCXX_USE_CXX11_ABI", abi.to_str())
        .include("csrc")
        .include("csrc/gloo_declarations")
        .include(&libtorch.include)
        .include(libtorch.include.join("torch/csrc/api/include"));
    let mut sources: Vec<_> = SOURCES.split(' ').collect();
    if let Some(headers) = cuda_headers {
        build.define("USE_C10D_NCCL", None).includes(headers);
        sources.push("nccl");
    }
    let all: String = sources.iter().map(|source| format!("#include \"{source}.cpp\"\n")).collect();
    let file = Path::new(&env::var("OUT_DIR")?).join("c10d_sys.cpp");
    fs::write(&file, all)?;
    build.file(file).compile("c10d_sys");
    Ok(())
}

fn link(lib: &Path, cuda: bool) {
    println!("cargo::rustc-link-search=native={}", lib.display());
    let mut link_args = vec![format!("-Wl,-rpath,{}", lib.display())];
    if cuda {
        // Nothing refers to the CUDA half by name, since it registers itself when it is loaded, so
        // the linker would leave it out.
        let whole = ["-Wl,--no-as-needed", "-ltorch_cuda", "-ltorch", "-Wl,--as-needed"];
        link_args.extend(whole.map(String::from));
        println!("cargo::rustc-link-lib=torch_cuda");
    }
    println!("cargo::rustc-link-lib=torch_cpu");
    println!("cargo::rustc-link-lib=c10");
    // Separated by a character that paths do not have in practice.
    println!("cargo::metadata=link_args={}", link_args.join("\x1f"));
    // This crate's own tests are programs too.
    link_args.iter().for_each(|arg| println!("cargo::rustc-link-arg={arg}"));
}
