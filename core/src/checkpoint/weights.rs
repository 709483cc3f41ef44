//! The variables of a model in a file.

use super::contents::{self, Contents, write_together};
use super::layout::{HEADER, MODEL, take};
use super::sharded::Sharding;
use crate::{Result, check_file, distributed::ProcessGroup};
use std::{collections::BTreeSet, path::Path};
use tch::{nn::VarStore, no_grad};
use tch_parallel_base::named_tensors::{Metadata, NamedTensors};
use tch_parallel_base::parameters::named_variables;

/// The prefix of every name that `DataParallel` and `DistributedDataParallel` add in Python.
const WRAPPER_PREFIX: &str = "module.";

/// Writes all variables of `vs` under their names, without any prefix. A collective. PyTorch's counterpart is
/// `torch.save(model.module.state_dict(), path)` on rank 0, and a `path` that ends in `.pt`, `.pth` or `.pth.tar` makes
/// it that: Python loads it with `model.load_state_dict(torch.load(path))`.
///
/// Rank 0 writes. Every rank returns when the file exists, so any of them may read it next. The file is written to a
/// temporary path and renamed, so `path` always holds a complete file, old or new.
///
/// A model that [`FullyShard`](crate::distributed::FullyShard) has sharded is gathered tensor by tensor, so the file
/// holds the whole model, but no rank ever has it in memory. If `path` ends in `.index.json`, each rank writes its own
/// rows instead, to a file beside that index; the ranks that read it need all of these files.
///
/// ```
/// use tch::nn::{self, VarStore};
/// use tch_parallel::checkpoint;
/// use tch_parallel::distributed::ProcessGroup;
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("model.safetensors");
/// let group = ProcessGroup::from_env()?;
/// let build = || {
///     let vs = VarStore::new(group.device());
///     let layer = nn::linear(vs.root() / "fc", 4, 3, Default::default());
///     (vs, layer)
/// };
/// let (vs, trained) = build();
/// checkpoint::save(&path, &vs, &group)?;
///
/// let (mut vs, loaded) = build(); // other weights so far
/// checkpoint::load(&path, &mut vs)?;
/// assert_eq!(loaded.ws, trained.ws);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// On every rank, with the reason, if a rank could not write; [`Error::Argument`](crate::Error::Argument) if
/// [`FullyShard`](crate::distributed::FullyShard) has sharded the model over another group.
#[doc(alias = "state_dict")]
pub fn save(path: impl AsRef<Path>, vs: &VarStore, group: &ProcessGroup) -> Result<()> {
    let variables = named_variables(vs);
    let sharding = Sharding::of(&variables);
    sharding.check(group)?;
    if !sharding.is_empty() {
        group.refuse_python("checkpoint::save", 0..group.world_size())?;
    }
    let variables = variables.into_iter();
    let saved = variables.map(|(name, it)| sharding.saved(&name, it).map(|saved| (name, saved)));
    let tensors = saved.collect::<Result<_>>();
    let contents = tensors.map(|tensors| Contents { tensors, metadata: Metadata::new() });
    write_together("checkpoint::save", path.as_ref(), contents, !sharding.is_empty(), group)
}

/// Sets the variables of `vs` from a file, which must contain exactly these, by name and shape. From a whole
/// [`Training`](super::Training) it takes only the weights, and from a dict that `torch.save` has written, such as
/// `{"epoch": 3, "state_dict": …}`, the one dict of tensors in it. See [`save`] for an example.
///
/// Equals `model.load_state_dict(torch.load(path, map_location=…), strict=True)`: each variable keeps its device and
/// kind, whatever they were when it was saved. Each rank reads its own rows of a sharded model, however many ranks
/// there were when it was saved. To load only the variables that match, use tch's `VarStore::load_partial`.
///
/// Names may have the prefix `module.`, which PyTorch's wrappers add and its bare models do not accept.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if the file cannot be read; [`Error::Format`](crate::Error::Format), naming the file
/// and the variables, if they do not match. `vs` is then unchanged.
#[doc(alias("load_state_dict", "map_location"))]
pub fn load(path: impl AsRef<Path>, vs: &mut VarStore) -> Result<()> {
    let path = path.as_ref();
    let (mut tensors, metadata) = contents::read(path, &Sharding::of(&named_variables(vs)))?;
    if metadata.contains_key(HEADER) {
        tensors = take(&mut tensors, MODEL);
    }
    let variables = vs.variables();
    let have_prefix = |it: &NamedTensors| it.keys().all(|name| name.starts_with(WRAPPER_PREFIX));
    // The model's own names may start with it.
    if have_prefix(&tensors) && !have_prefix(&variables) {
        tensors = take(&mut tensors, WRAPPER_PREFIX);
    }
    check(path, &variables, &tensors)?;
    assign(variables, &tensors)
}

/// Sets variables from saved ones that passed [`check`].
pub(super) fn assign(variables: NamedTensors, saved: &NamedTensors) -> Result<()> {
    let mut variables = variables.into_iter();
    no_grad(|| variables.try_for_each(|(name, mut it)| Ok(it.f_copy_(&saved[&name])?)))
}

/// Refuses saved variables unless they are exactly the model's, by name and shape.
pub(super) fn check(path: &Path, variables: &NamedTensors, saved: &NamedTensors) -> Result<()> {
    let [ours, theirs] = [variables, saved].map(|it| it.keys().collect::<BTreeSet<_>>());
    let missing: Vec<_> = ours.difference(&theirs).collect();
    let found = format_args!("no {missing:?}");
    check_file(missing.is_empty(), path, found, "every variable of the model")?;
    let unexpected: Vec<_> = theirs.difference(&ours).collect();
    let expected = "only variables that the model has";
    check_file(unexpected.is_empty(), path, format_args!("{unexpected:?}"), expected)?;
    for name in ours {
        let (size, expected) = (saved[name].size(), variables[name].size());
        let found = format_args!("{name} has the shape {size:?}");
        check_file(size == expected, path, found, format_args!("{expected:?}, as in the model"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::testing::{group, model, path_to};
    use std::fs;
    use tch::{Device, nn};

    #[test]
    fn what_is_saved_is_loaded_in_the_format_that_the_name_says_and_under_any_name() {
        for (name, begin, other) in [
            ("model.safetensors", None, "other.pt"),
            ("model.pt", Some(b"PK"), "other.safetensors"),
            ("model.pth", Some(b"PK"), "other.safetensors"),
            ("model_best.pth.tar", Some(b"PK"), "other.safetensors"),
        ] {
            let (directory, path) = path_to(name);
            let saved = model(3);
            save(&path, &saved, &group()).unwrap();
            assert_eq!(fs::read(&path).unwrap().first_chunk().filter(|b| *b == b"PK"), begin);
            let copy = path.with_file_name(other);
            fs::copy(&path, &copy).unwrap();
            for path in [path, copy] {
                let mut loaded = model(3);
                load(path, &mut loaded).unwrap();
                assert_eq!(loaded.variables(), saved.variables());
            }
            let files: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
            assert_eq!(files.len(), 2, "nothing but the checkpoint and its copy is left");
        }
    }

    #[test]
    fn a_file_of_another_format_is_told_from_a_damaged_one() {
        let (_directory, path) = path_to("old.pt");
        let hdf5 = b"\x89HDF\r\n\x1a\n\0\0\0";
        for (contents, found, expected) in [
            (&b""[..], "an empty file", "expected a file that `save`, torch.save or"),
            (hdf5, "neither safetensors nor PyTorch's", "expected a file that"),
        ] {
            fs::write(&path, contents).unwrap();
            let error = load(&path, &mut model(3)).unwrap_err().to_string();
            assert!(error.contains(found) && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_models_own_part_of_that_name_is_left_alone() {
        let (_directory, path) = path_to("model.safetensors");
        let mut vs = VarStore::new(Device::Cpu);
        let _ = nn::linear(&vs.root() / "module" / "fc", 3, 2, Default::default());
        save(&path, &vs, &group()).unwrap();
        load(&path, &mut vs).unwrap();
    }

    #[test]
    fn variables_that_are_missing_unknown_or_of_another_shape_are_named_and_change_nothing() {
        let (_directory, path) = path_to("model.safetensors");
        let larger = || {
            let vs = model(3);
            let _ = vs.root().zeros("extra", &[1]);
            vs
        };
        let other_shape = "fc.weight has the shape [2, 4]; expected [2, 3], as in the model";
        for (saved, mut vs, expected) in [
            (model(4), model(3), other_shape),
            (model(3), larger(), r#"no ["extra"]; expected every variable of the model"#),
            (larger(), model(3), r#"["extra"]; expected only variables that the model has"#),
        ] {
            save(&path, &saved, &group()).unwrap();
            let before = vs.variables()["fc.bias"].copy();
            let error = load(&path, &mut vs).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
            assert_eq!(vs.variables()["fc.bias"], before);
        }
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused_at_every_length() {
        for (name, format) in [("model.safetensors", "safetensors"), ("model.pt", "PyTorch")] {
            let (_directory, path) = path_to(name);
            save(&path, &model(3), &group()).unwrap();
            let whole = fs::read(&path).unwrap();
            for length in 1..whole.len() {
                fs::write(&path, &whole[..length]).unwrap();
                let error = load(&path, &mut model(3)).unwrap_err().to_string();
                let found = format!("not a complete {format} file");
                assert!(error.contains(&found), "{length}: {error}");
            }
        }
    }
}
