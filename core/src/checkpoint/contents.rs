//! A checkpoint, whether it is one file or an index of several.

use super::index::{self, is_index};
use super::sharded::{Saved, Sharding, while_gathering};
use crate::{Error, Result, distributed::ProcessGroup};
use std::io::{Cursor, Read, Seek};
use std::{fs::File, path::Path};
use tch_parallel_base::named_tensors::{Metadata, NamedTensors};
use tch_parallel_base::{error::with_causes, tensor_file};

#[derive(Default)]
pub(super) struct Contents {
    pub(super) tensors: Vec<(String, Saved)>,
    pub(super) metadata: Metadata,
}

/// Has rank 0 write a file that replaces `path` once it is complete, or all ranks the parts of an index. A collective,
/// which succeeds on all ranks or fails on all. If the model is sharded, all have the contents, otherwise only rank 0.
pub(super) fn write_together(
    operation: &'static str,
    path: &Path,
    contents: Result<Contents>,
    is_sharded: bool,
    group: &ProcessGroup,
) -> Result<()> {
    let text = |error: Option<&Error>| error.map(|error| with_causes(error));
    if is_sharded || is_index(path) {
        // Nobody waits for the tensors of a rank that has none.
        group.agree(operation, text(contents.as_ref().err()).as_deref())?;
    }
    let written = contents.and_then(|Contents { tensors, metadata }| match is_index(path) {
        true => index::write(operation, path, tensors, metadata, group),
        false => while_gathering(&tensors, group, |tensors| {
            tensor_file::write(path, &tensors, &metadata)
        }),
    });
    let agreed = group.agree(operation, text(written.as_ref().err()).as_deref());
    written.and(agreed)
}

/// Reads a checkpoint of [`write_together`] or Python, in any format. Of sharded tensors, only this rank's rows.
pub(super) fn read(path: &Path, sharding: &Sharding) -> Result<(NamedTensors, Metadata)> {
    let failed = || Error::io("read", path);
    let mut file = File::open(path).map_err(failed())?;
    if file.metadata().map_err(failed())?.is_file() {
        return parse(path, &mut file, sharding);
    }
    // A pipe can only be read from its beginning to its end.
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed())?;
    parse(path, &mut Cursor::new(bytes), sharding)
}

fn parse(
    path: &Path,
    file: &mut (impl Read + Seek),
    sharding: &Sharding,
) -> Result<(NamedTensors, Metadata)> {
    let failed = || Error::io("read", path);
    let mut begin = Vec::new();
    file.by_ref().take(9).read_to_end(&mut begin).map_err(failed())?;
    // An index is an object of JSON. In safetensors, one follows the eight bytes of its length.
    if begin.first() == Some(&b'{') && begin.get(8) != Some(&b'{') {
        file.read_to_end(&mut begin).map_err(failed())?;
        return index::read(path, &begin, sharding);
    }
    file.rewind().map_err(failed())?;
    tensor_file::read(path, file, |name, size| sharding.rows(path, name, size))
}
