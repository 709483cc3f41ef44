//! Ranks in several dimensions.

use super::process_group::ProcessGroup;
use crate::{Error, Result, check};

/// The ranks of a group as an array of several dimensions, with a group along each. Consecutive
/// ranks differ in the last dimension. `torch.distributed.device_mesh.DeviceMesh`
///
/// ```
/// use tch_parallel::distributed::{DeviceMesh, ProcessGroup};
///
/// let group = ProcessGroup::from_env()?;
/// let mesh = DeviceMesh::new(&group, &[("replicate", 1), ("shard", group.world_size())])?;
/// assert_eq!(mesh.get_group("shard")?.world_size(), group.world_size());
/// assert_eq!(mesh.get_coordinate(), [0, group.rank()]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DeviceMesh {
    pub(crate) world: ProcessGroup,
    names: Vec<String>,
    /// This rank's group along each dimension.
    pub(crate) groups: Vec<ProcessGroup>,
}

impl DeviceMesh {
    /// Arranges ranks in these dimensions. A collective. `init_device_mesh(device, sizes, mesh_dim_names=names)`
    ///
    /// # Errors
    /// [`Error::Argument`] if the product of the sizes is not the number of ranks, if a name comes twice, or if a rank
    /// runs Python.
    pub fn new(group: &ProcessGroup, dims: &[(&str, usize)]) -> Result<Self> {
        let (names, sizes): (Vec<_>, Vec<_>) = dims.iter().copied().unzip();
        let ranks = group.world_size();
        let is_whole = !dims.is_empty() && sizes.iter().product::<usize>() == ranks;
        let expected = format_args!("sizes whose product is {ranks}, the number of ranks");
        check(is_whole, "dims", format_args!("{dims:?}"), expected)?;
        if let Some(i) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
            let found = format!("a list with {:?} twice", names[i]);
            return Err(Error::argument("dims", found, "a list of different names"));
        }
        let along = |dimension| {
            // Ranks that differ by one in this dimension are this far apart.
            let step: usize = sizes[dimension + 1..].iter().product();
            let size = sizes[dimension];
            let is_first = |rank: &usize| (rank / step).is_multiple_of(size);
            let firsts = (0..group.world_size()).filter(is_first);
            let lines = firsts.map(|first| (0..size).map(|i| first + i * step).collect());
            let own = group.split_group(&lines.collect::<Vec<_>>())?;
            Ok(own.unwrap_or_else(|| unreachable!("every rank is on one of the lines")))
        };
        let groups = (0..dims.len()).map(along).collect::<Result<_>>()?;
        let names = names.into_iter().map(str::to_owned).collect();
        Ok(DeviceMesh { world: group.clone(), names, groups })
    }

    /// The ranks that differ from this one only in this dimension. `mesh.get_group(name)`
    ///
    /// # Errors
    /// [`Error::Argument`] if no dimension has this name.
    pub fn get_group(&self, name: &str) -> Result<&ProcessGroup> {
        let place = self.names.iter().position(|own| own == name);
        place.map(|place| &self.groups[place]).ok_or_else(|| {
            let expected = format!("one of {:?}", self.names);
            Error::argument("the dimension", format!("{name:?}"), expected)
        })
    }

    /// This rank's place in each dimension. `mesh.get_coordinate()`
    pub fn get_coordinate(&self) -> Vec<usize> {
        self.groups.iter().map(ProcessGroup::rank).collect()
    }

    /// The sizes of the dimensions. `mesh.shape`
    pub fn shape(&self) -> Vec<usize> {
        self.groups.iter().map(ProcessGroup::world_size).collect()
    }
}
