//! What a pickle of a state dict is made of.

use super::storage_kind;
use tch::Kind;

/// The objects of a pickle, which refer to each other by position: however deep they are nested, nothing recurs.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) all: Vec<Object>,
    /// What the pickle is of.
    pub(super) root: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Object {
    /// None, a bool, a float or a list: nothing that describes a tensor.
    Other,
    Int(i64),
    Text(String),
    Tuple(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    Function(Function),
    StorageType(Kind),
    Storage(Storage),
    /// A view of a storage.
    Tensor {
        storage: Storage,
        offset: i64,
        size: Vec<i64>,
        stride: Vec<i64>,
    },
}

/// What a pickle may call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Function {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
}

/// A record `data/{key}` of `numel` numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Storage {
    pub(super) key: String,
    pub(super) kind: Kind,
    pub(super) numel: usize,
}

impl Objects {
    /// The entries of a dict whose keys are all text.
    pub(super) fn entries<'a>(&'a self, dict: &'a Object) -> Option<Vec<(&'a str, &'a Object)>> {
        let Object::Dict(entries) = dict else { return None };
        let entry = |&(key, value): &(usize, usize)| match &self.all[key] {
            Object::Text(key) => Some((key.as_str(), &self.all[value])),
            _ => None,
        };
        entries.iter().map(entry).collect()
    }
}

/// The global of this name, if state dicts have it.
pub(super) fn global(module: &str, name: &str) -> Option<Object> {
    let function = match (module, name) {
        ("collections", "OrderedDict") => Function::OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2") => Function::RebuildTensor,
        ("torch._utils", "_rebuild_parameter") => Function::RebuildParameter,
        ("torch", name) => return storage_kind(name).map(Object::StorageType),
        _ => return None,
    };
    Some(Object::Function(function))
}
