//! Files of `torch.save`: Rust reads what Python writes, and Python what Rust writes, to the last bit.

use crate::prelude::*;

/// What `tests/python/state_dict.py` writes: state dicts.
const SOUND: &str = "plain.pt dict.pt wrapped.pth main_py.pth.tar torch.float64.pt torch.float16.pt \
                     torch.bfloat16.pt parameters.pt strided.pt one_storage.pt cuda.pt";

/// Other files, what their errors say is in them, and whether these name a line that converts the file.
const OTHERS: [(&str, &str, bool); 4] = [
    ("legacy.pt", "a pickle, as PyTorch wrote before 1.6", true),
    ("script.pt", "a TorchScript module", true),
    ("evil.pt", "a pickle with posix.system", false),
    ("module.pt", "a pickle with __main__.Network", false),
];

#[test]
fn a_network_computes_the_same_from_every_state_dict_in_rust_and_in_python() -> Result<()> {
    let job = Job::done(python("state_dict", ["write"])?)?;
    let files = ["rust.pt"].into_iter().chain(SOUND.split(' '));
    let rust = job.run(example("state_dict", files.clone())?)?.expect_success()?;
    let load = python("state_dict", ["load"].into_iter().chain(files))?;
    let python = job.run(load)?.expect_success()?;
    ensure!(rust.stdout == python.stdout, "{rust}\n{python}");
    // The last two numbers: of what Rust has trained for one batch, and Python for three.
    let ends = |file: &str, batches| {
        let line = rust.stdout.lines().find(|line| line.starts_with(file));
        line.is_some_and(|line| line.ends_with(batches))
    };
    ensure!(ends("rust.pt", ", 1]") && ends("plain.pt", ", 3]"), "{rust}");
    Ok(())
}

#[test]
fn what_is_no_state_dict_is_named_not_run_and_converted_as_its_error_says() -> Result<()> {
    let job = Job::done(python("state_dict", ["write"])?)?;
    let interpreter = python("state_dict", [])?.get_program().to_owned();
    for (file, found, converts) in OTHERS {
        let ended = job.run(example("state_dict", ["rust.pt", file])?)?.expect_code(1)?;
        ended.expect_messages(&[&format!("{file}: {found}"), "expected"])?;
        if !converts {
            continue;
        }
        let line = between(&ended.stderr, "python -c \"", "\"")?;
        job.run(Command::new(&interpreter).args(["-c", line]))?.expect_success()?;
        let files = ["rust.pt", "plain.pt", "new.pt"];
        let ended = job.run(example("state_dict", files)?)?.expect_success()?;
        let outputs = ended.stdout.lines().filter_map(|line| line.split(": ").nth(1));
        ensure!(matches!(outputs.collect::<Vec<_>>()[..], [_, a, b] if a == b), "{file}: {ended}");
        fs::remove_file(job.path("new.pt"))?;
    }
    ensure!(!job.path("it-ran").exists(), "loading a file has run a program");
    Ok(())
}

/// Tutorial 3's last line: one file, without a prefix, that a program for one device loads.
#[test]
fn ddp_mnist_saves_and_loads_the_tutorials_model_pt() -> Result<()> {
    let job = Job::new()?;
    for file in ["model.pt", "model.safetensors"] {
        let program = ddp_mnist(["--epochs", "1", "--batch-size", "1000", "--save", file])?;
        job.run(launch(2, &program)?)?.expect_success()?;
    }
    let convert = |from, to| job.run(python("state_dict", ["mnist", from, to])?)?.expect_success();
    let saved = job.tensors("model.safetensors")?;
    convert("model.pt", "python.safetensors")?;
    ensure!(job.tensors("python.safetensors")? == saved, "Python reads others");

    convert("model.safetensors", "python.pt")?;
    let load = ["--epochs", "0", "--load", "python.pt", "--save", "rust.safetensors"];
    job.run(ddp_mnist(load)?)?.expect_success()?;
    ensure!(job.tensors("rust.safetensors")? == saved, "Rust reads others");
    Ok(())
}
