//! What an example of the library saves, compared with what its counterpart in Python saves.

use crate::{Job, prelude::*, programs, python, safetensors::Tensor};

/// The argument that names the file to write.
pub const FILE: &str = "tensors.safetensors";

pub struct Both {
    pub tensors: BTreeMap<String, Tensor>,
    /// What Rust has printed, and what Python has.
    pub printed: [String; 2],
}

/// Runs an example and a script of `tests/python` with the same arguments, one of which is [`FILE`].
/// Fails unless they save the same tensors to the last bit.
pub fn expect_equal_tensors(example: &str, script: &str, arguments: &[&str]) -> Result<Both> {
    let run = |command| -> Result<_> {
        let job = Job::new()?;
        Ok((job.run(command)?.expect_success()?.stdout, job.tensors(FILE)?))
    };
    let arguments = arguments.iter().copied();
    let (rust_printed, rust) = run(programs::example(example, arguments.clone())?)?;
    let (python_printed, python) = run(python(script, arguments)?)?;
    let names = [&rust, &python].map(|file| file.keys().collect::<Vec<_>>());
    ensure!(names[0] == names[1], "Rust saved {:?}, and Python {:?}", names[0], names[1]);
    let differ: Vec<_> = rust.keys().filter(|&name| rust[name] != python[name]).collect();
    ensure!(!rust.is_empty() && differ.is_empty(), "these differ: {differ:#?}");
    Ok(Both { tensors: rust, printed: [rust_printed, python_printed] })
}
