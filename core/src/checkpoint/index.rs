//! A checkpoint in parts: each rank writes a file with its rows of the model, and rank 0 an index of
//! the files. No rank waits for another's tensors, and all disks are written at the same time.

use super::destination::replace;
use super::file::{parse_safetensors, write_file};
use super::sharded::{Saved, Sharding, WRITER};
use crate::distributed::ProcessGroup;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::Path;
use tch::Tensor;
use tch_parallel_base::named_tensors::{Metadata, NamedTensors};

/// The suffix of an index's name.
const END: &str = ".index.json";

/// The contents of an index.
#[derive(Debug, Serialize, Deserialize)]
struct Index {
    /// How many times the checkpoint had been written before.
    version: u64,
    /// The parts, in the order of the ranks. They are in the same directory as the index.
    files: Vec<String>,
    /// The whole shapes of the tensors whose rows are divided among the parts. All other tensors
    /// are in the first part.
    shapes: BTreeMap<String, Vec<usize>>,
    metadata: Metadata,
}

/// Whether a checkpoint of this name is written in parts.
pub(super) fn is_index(path: &Path) -> bool {
    path.to_string_lossy().ends_with(END)
}

/// Writes this rank's part, and on rank 0 the index once all parts are complete. Then the parts of
/// the previous version are removed. A collective; the caller reports its error to the other ranks.
pub(super) fn write(
    operation: &'static str,
    path: &Path,
    tensors: Vec<(String, Saved)>,
    metadata: Metadata,
    group: &ProcessGroup,
) -> Result<()> {
    let parts = tensors.iter().find_map(|(_, saved)| saved.shards());
    let parts = parts.map_or(1, ProcessGroup::world_size);
    let before = || serde_json::from_slice::<Index>(&fs::read(path).ok()?).ok();
    let mut version = before().map_or(0, |index| index.version + 1);
    group.broadcast_object(&mut version, WRITER)?;
    let name =
        |rank: usize| format!("{}{:05}-of-{parts:05}.safetensors", stem(path, version), rank + 1);

    let mut shapes = BTreeMap::new();
    let mut own = Vec::new();
    for (tensor_name, saved) in tensors {
        match saved {
            Saved::Shard { rows, shard } => {
                let size = shard.size.iter().map(|&length| length as usize).collect();
                shapes.insert(tensor_name.clone(), size);
                own.push((tensor_name, rows));
            }
            Saved::Whole(tensor) if group.rank() == WRITER => own.push((tensor_name, tensor)),
            Saved::Whole(_) => {}
        }
    }
    let part = path.with_file_name(name(group.rank()));
    let written = match group.rank() < parts {
        true => write_file(&part, &own, &Metadata::new()),
        false => Ok(()),
    };
    let objection = written.as_ref().err().map(ToString::to_string);
    // The index must not name a part that is missing.
    if let Err(error) = group.agree(operation, objection.as_deref()) {
        // This rank's part may be the one that could not be written.
        let _ = fs::remove_file(part);
        return written.and(Err(error));
    }
    if group.rank() != WRITER {
        return Ok(());
    }
    let index = Index { version, files: (0..parts).map(name).collect(), shapes, metadata };
    let text = serde_json::to_string(&index).map_err(|error| {
        Error::argument("the checkpoint", error.to_string(), "what JSON supports")
    })?;
    replace(path, |temporary| fs::write(temporary, text).map_err(Error::io("write", path)))?;
    remove_others(path, &index.files).map_err(Error::io("remove the old parts of", path))
}

/// The prefix of the names of a version's parts.
fn stem(path: &Path, version: impl std::fmt::Display) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{}-{version}-", name.trim_end_matches(END))
}

/// Removes the parts of other versions.
fn remove_others(path: &Path, files: &[String]) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let begin = format!("{}-", name.trim_end_matches(END));
    let is_part = |name: &str| {
        let numbers =
            name.strip_prefix(&begin)?.strip_suffix(".safetensors")?.replacen("-of-", "-", 1);
        let mut numbers = numbers.split('-').map(|it| it.parse::<u64>());
        Some(
            numbers.by_ref().take(3).filter(Result::is_ok).count() == 3 && numbers.next().is_none(),
        )
    };
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_part(&name) == Some(true) && !files.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Reads the parts that this index names; of sharded tensors, only this rank's rows.
pub(super) fn read(
    path: &Path,
    text: &[u8],
    sharding: &Sharding,
) -> Result<(NamedTensors, Metadata)> {
    let refuse = |found| Error::format(path, found, "an index that `save` has written");
    let index: Index = serde_json::from_slice(text).map_err(|error| refuse(error.to_string()))?;
    let ranks = index.files.len();
    let mut parts: HashMap<String, Vec<Tensor>> = HashMap::new();
    for (rank, name) in index.files.iter().enumerate() {
        if Path::new(name).file_name().is_none_or(|it| it != name.as_str()) {
            return Err(refuse(format!("the part {name:?}, which does not lie beside it")));
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
        for (name, tensor) in parse_safetensors(&part, &mut file, rows)?.0 {
            parts.entry(name).or_default().push(tensor);
        }
    }
    let joined = parts.into_iter().map(|(name, mut parts)| {
        let tensor = match parts.len() {
            1 => parts.swap_remove(0),
            _ => Tensor::f_cat(&parts, 0)?,
        };
        Ok((name, tensor))
    });
    Ok((joined.collect::<Result<_>>()?, index.metadata))
}
