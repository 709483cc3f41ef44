//! A checkpoint in parts: each rank writes a file with its rows of the model, and rank 0 an index of
//! them. No rank waits for another's tensors, and disks are written at the same time.

use super::sharded::{Saved, Sharding, WRITER};
use crate::{Error, Result, distributed::ProcessGroup};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::{io, path::Path};
use tch::Tensor;
use tch_parallel_base::destination::{final_name, remove_beside, replace, target};
use tch_parallel_base::named_tensors::{Metadata, NamedTensors};
use tch_parallel_base::{error::with_causes, tensor_file};

const END: &str = ".index.json";

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    /// The number of earlier saves.
    version: u64,
    /// The parts, in the order of the ranks. They lie beside the index.
    files: Vec<String>,
    /// The whole shapes of the tensors of which each part has some rows. Others are in the first part.
    shapes: BTreeMap<String, Vec<usize>>,
    metadata: Metadata,
}

pub(super) fn is_index(path: &Path) -> bool {
    path.to_string_lossy().ends_with(END)
}

/// Writes this rank's part, and on rank 0 the index once all parts are complete. Then the parts of the
/// previous version are removed. A collective, whose error the caller tells the other ranks.
pub(super) fn write(
    operation: &'static str,
    path: &Path,
    tensors: Vec<(String, Saved)>,
    metadata: Metadata,
    group: &ProcessGroup,
) -> Result<()> {
    let path = &target(path)?;
    let parts = tensors.iter().find_map(|(_, saved)| saved.shards());
    let parts = parts.map_or(1, ProcessGroup::world_size);
    let next = if group.rank() == WRITER { next_version(path) } else { Ok(0) };
    let mut version = next.as_ref().ok().copied();
    group.broadcast_object(&mut version, WRITER)?;
    let Some(version) = version else { return next.map(drop) };
    let name =
        |rank: usize| format!("{}-{version}-{:05}-of-{parts:05}.safetensors", stem(path), rank + 1);

    let mut shapes = BTreeMap::new();
    let mut own = Vec::new();
    for (tensor_name, Saved { tensor, shard }) in tensors {
        if let Some(shard) = &shard {
            let size = shard.size.iter().map(|&length| length as usize).collect();
            shapes.insert(tensor_name.clone(), size);
        }
        if shard.is_some() || group.rank() == WRITER {
            own.push((tensor_name, tensor));
        }
    }
    let part = path.with_file_name(name(group.rank()));
    let written = if group.rank() < parts { write_part(path, &part, &own) } else { Ok(()) };
    let objection = written.as_ref().err().map(|error| with_causes(error));
    // The index names no missing part. Others may agree when this one gives up, so its part stays until the next save.
    let agreed = group.agree(operation, objection.as_deref());
    written.and(agreed)?;
    if group.rank() != WRITER {
        return Ok(());
    }
    let index = Index { version, files: (0..parts).map(name).collect(), shapes, metadata };
    let text = serde_json::to_string(&index)
        .map_err(|error| Error::argument("the checkpoint", error, "what JSON supports"))?;
    replace(path, |temporary| fs::write(temporary, text).map_err(Error::io("write", path)))?;
    let stem = stem(path);
    // All ranks have written their parts, so any other part is old, even a temporary one of a killed save of more ranks.
    let is_other =
        |name: &str| is_part(final_name(name), &stem) && !index.files.iter().any(|it| it == name);
    remove_beside(path, is_other).map_err(Error::io("remove the old parts of", path))
}

fn next_version(path: &Path) -> Result<u64> {
    match fs::read(path) {
        Ok(text) => Ok(parse(path, &text)?.version + 1),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Writes a part with the permissions of the index, if there is one: a new version is as private as the one before.
fn write_part(path: &Path, part: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    if let Ok(index) = fs::metadata(path) {
        File::create(part)
            .and_then(|_| fs::set_permissions(part, index.permissions()))
            .map_err(Error::io("create", part))?;
    }
    tensor_file::write(part, tensors, &Metadata::new())
}

/// The name of the checkpoint, with which those of its parts begin.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(END).unwrap_or(&name).to_owned()
}

/// Whether a file has the name of a part: STEM-VERSION-RANK-of-RANKS.safetensors.
fn is_part(name: &str, stem: &str) -> bool {
    let numbers = || {
        let rest = name.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(".safetensors")?;
        let (version, part) = rest.split_once('-')?;
        let (rank, ranks) = part.split_once("-of-")?;
        Some([version, rank, ranks])
    };
    numbers().is_some_and(|numbers| numbers.iter().all(|it| it.parse::<u64>().is_ok()))
}

fn parse(path: &Path, text: &[u8]) -> Result<Index> {
    serde_json::from_slice(text).map_err(|error| refuse(path, error.to_string()))
}

fn refuse(path: &Path, found: String) -> Error {
    Error::format(path, found, "an index that `save` has written")
}

/// Reads the parts of the index with this text. Of tensors that are sharded, only this rank's rows.
pub(super) fn read(
    path: &Path,
    text: &[u8],
    sharding: &Sharding,
) -> Result<(NamedTensors, Metadata)> {
    let path = &target(path)?;
    let index = parse(path, text)?;
    let ranks = index.files.len();
    let mut parts: HashMap<String, Vec<Tensor>> = HashMap::new();
    for (rank, name) in index.files.iter().enumerate() {
        if Path::new(name).file_name().is_none_or(|it| it != name.as_str()) {
            return Err(refuse(path, format!("the part {name:?}, which does not lie beside it")));
        }
        let part = path.with_file_name(name);
        let mut file = File::open(&part).map_err(Error::io("read", &part))?;
        let rows = |name: &str, size: &[usize]| {
            let Some(whole) = index.shapes.get(name) else {
                return sharding.rows(path, name, size);
            };
            let (Some(&all), Some(&here)) = (whole.first(), size.first()) else { return Ok(None) };
            let wanted = sharding.rows(path, name, whole)?.unwrap_or(0..all);
            let begin = (rank * all.div_ceil(ranks)).min(all);
            let inside = |row: usize| row.clamp(begin, begin + here) - begin;
            Ok(Some(inside(wanted.start)..inside(wanted.end)))
        };
        for (name, tensor) in tensor_file::read(&part, &mut file, rows)?.0 {
            parts.entry(name).or_default().push(tensor);
        }
    }
    let joined = parts.into_iter().map(|(name, mut parts)| match parts.len() {
        1 => Ok((name, parts.swap_remove(0))),
        _ => Ok((name, Tensor::f_cat(&parts, 0)?)),
    });
    Ok((joined.collect::<Result<_>>()?, index.metadata))
}
