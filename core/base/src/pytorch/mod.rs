//! The format of `torch.save`: a zip archive with a pickle, which describes the tensors, and the bytes of each storage.
//!
//! Read here because libtorch's unpickler takes an `OrderedDict`, which every `state_dict()` is, for None, and trusts
//! the sizes in a file.

mod archive;
mod object;
mod op;
mod pickler;
#[cfg(test)]
mod tests;
mod unpickler;

use crate::named_tensors::{Metadata, NamedTensors, Source, numbers};
use crate::{Error, Result, check_file, error::without_backtrace};
use archive::{Reader, Writer};
use object::{Object, Objects, Storage};
use pickler::Pickler;
use std::collections::{HashMap, hash_map::Entry};
use std::{fmt::Display, fs::File, path::Path};
use tch::{Kind, Tensor};
use unpickler::{Refusal, unpickle};

/// What pickles call the types of storages.
const STORAGES: [(&str, Kind); 12] = [
    ("FloatStorage", Kind::Float),
    ("DoubleStorage", Kind::Double),
    ("HalfStorage", Kind::Half),
    ("BFloat16Storage", Kind::BFloat16),
    ("ByteStorage", Kind::Uint8),
    ("CharStorage", Kind::Int8),
    ("ShortStorage", Kind::Int16),
    ("IntStorage", Kind::Int),
    ("LongStorage", Kind::Int64),
    ("BoolStorage", Kind::Bool),
    ("ComplexFloatStorage", Kind::ComplexFloat),
    ("ComplexDoubleStorage", Kind::ComplexDouble),
];

fn storage_kind(name: &str) -> Option<Kind> {
    STORAGES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// Writes what `torch.save(OrderedDict(…), path)` does, with the tensors on the CPU. Metadata become entries of text.
pub fn to_file<S: Source>(tensors: &[(String, S)], metadata: &Metadata, path: &Path) -> Result<()> {
    let mut pickler = Pickler::new();
    for (key, (name, tensor)) in tensors.iter().enumerate() {
        let kind = tensor.kind();
        let known = STORAGES.iter().find(|(_, known)| *known == kind);
        let (storage, _) = known.ok_or_else(|| {
            let known = STORAGES.map(|(_, kind)| kind);
            Error::argument(name, format!("of kind {kind:?}"), format!("of one of {known:?}"))
        })?;
        pickler.tensor(name, storage, &key.to_string(), &tensor.size());
    }
    metadata.iter().for_each(|(name, text)| pickler.text(name, text));
    let pickle = pickler.finish();

    let failed = || Error::io("write", path);
    let mut file = File::create(path).map_err(failed())?;
    let mut archive = Writer::new(&mut file);
    for (name, record) in [("data.pkl", &pickle[..]), ("byteorder", LITTLE), ("version", b"3\n")] {
        archive.write(name, record).map_err(failed())?;
    }
    for (key, (_, tensor)) in tensors.iter().enumerate() {
        // One after the other, so that memory holds no second copy of all.
        archive.write(&format!("data/{key}"), &numbers(tensor)?).map_err(failed())?;
    }
    archive.finish().map_err(failed())
}

/// The tensors and the texts in a state dict, which may be one entry among others, as in
/// `{"epoch": 3, "state_dict": …}`. The tensors are on the CPU, wherever they were.
pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<(NamedTensors, Metadata)> {
    let mut archive = Reader::new(bytes).map_err(damaged(path))?;
    let python = format!("torch.jit.load('{}', 'cpu').state_dict()", path.display());
    let is_script = archive.has("constants.pkl");
    check_file(!is_script, path, "a TorchScript module", conversion(&python))?;
    check_file(archive.has("data.pkl"), path, "a zip archive without data.pkl", STATE_DICT)?;
    if archive.has("byteorder") && archive.read("byteorder").map_err(damaged(path))? != LITTLE {
        return Err(Error::format(path, "big-endian numbers", "little-endian ones"));
    }
    let pickle = archive.read("data.pkl").map_err(damaged(path))?;
    let objects = unpickle(&pickle).map_err(|refusal| match refusal {
        Refusal::Damaged(what) => damaged(path)(what),
        Refusal::Foreign(what) => Error::format(path, format!("a pickle with {what}"), STATE_DICT),
    })?;

    let (mut tensors, mut metadata) = (NamedTensors::new(), Metadata::new());
    let mut storages = HashMap::new();
    for (name, object) in state_dict(path, &objects)? {
        match object {
            Object::Text(text) => {
                metadata.insert(name.into(), text.clone());
            }
            Object::Tensor { storage, offset, size, stride } => {
                let whole = match storages.entry(storage) {
                    Entry::Occupied(read) => read.into_mut(),
                    Entry::Vacant(new) => {
                        new.insert(read(&mut archive, storage).map_err(damaged(path))?)
                    }
                };
                // Refuses a view that the storage is too small for.
                let view = whole.f_as_strided(size, stride, *offset);
                let view = view.map_err(|error| damaged(path)(without_backtrace(&error)))?;
                tensors.insert(name.into(), view);
            }
            _ => return Err(Error::format(path, format!("{name:?} is no tensor"), STATE_DICT)),
        }
    }
    Ok((tensors, metadata))
}

/// The entries of the one dict of tensors in the pickle, or of the pickle itself.
fn state_dict<'a>(path: &Path, objects: &'a Objects) -> Result<Vec<(&'a str, &'a Object)>> {
    let refusal = || Error::format(path, "no dict with names", STATE_DICT);
    let root = objects.entries(&objects.all[objects.root]).ok_or_else(refusal)?;
    let is_tensor = |(_, object): &(&str, &Object)| matches!(object, Object::Tensor { .. });
    let inner = root.iter().filter_map(|&(name, object)| Some((name, objects.entries(object)?)));
    let mut inner: Vec<_> =
        inner.filter(|(_, dict)| !dict.is_empty() && dict.iter().all(is_tensor)).collect();
    if let [(first, _), _, ..] = inner[..] {
        let names: Vec<_> = inner.iter().map(|(name, _)| name).collect();
        let python = format!("torch.load('{}', 'cpu')['{first}']", path.display());
        return Err(Error::format(path, format!("the dicts {names:?}"), conversion(&python)));
    }
    Ok(inner.pop().map_or(root, |(_, dict)| dict))
}

/// All numbers of a storage.
fn read(archive: &mut Reader<'_>, storage: &Storage) -> Result<Tensor, String> {
    let Storage { key, kind, numel } = storage;
    let name = format!("data/{key}");
    let bytes = archive.read(&name)?;
    if numel.checked_mul(kind.elt_size_in_bytes()) != Some(bytes.len()) {
        return Err(format!("{name} has {} bytes for {numel} numbers of {kind:?}", bytes.len()));
    }
    // No more than a file has bytes.
    let tensor = Tensor::f_from_data_size(&bytes, &[*numel as i64], *kind);
    tensor.map_err(|error| without_backtrace(&error))
}

const LITTLE: &[u8] = b"little";

const STATE_DICT: &str = "tensors by name, as torch.save(model.state_dict(), …) writes them; \
                          nothing else in a file is called";

/// What is expected instead, and the line that makes it of `python`.
pub fn conversion(python: &str) -> String {
    format!("a state dict: python -c \"import torch; torch.save({python}, 'new.pt')\"")
}

fn damaged<E: Display>(path: &Path) -> impl FnOnce(E) -> Error {
    let expected = "a file that `save` or torch.save has written completely";
    move |error| Error::format(path, format!("not a complete PyTorch file ({error})"), expected)
}
