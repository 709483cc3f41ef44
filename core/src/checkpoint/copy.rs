//! A whole training, from one rank to others.

use super::layout::HEADER;
use super::sharded::{Saved, Sharding};
use super::training::Training;
use crate::{Error, Result, check, distributed::ProcessGroup};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::path::Path;
use tch::{Device, Kind, Tensor, no_grad};
use tch_parallel_base::{error::with_causes, named_tensors::Dtype, parameters::named_variables};

/// Small tensors are sent together, in buffers of this size.
const BUFFER_BYTES: usize = 250 << 20;

/// What the others must know before the tensors come.
#[derive(Default, Serialize, Deserialize)]
struct Announcement {
    header: String,
    /// In the order in which they are sent.
    tensors: Vec<(String, Dtype, Vec<i64>)>,
}

impl Training<'_> {
    /// Sets all parts to those of rank `source`, except the random generators, and returns its `progress`.
    /// A collective, in which ranks that do not `receive` keep what they have.
    pub(crate) fn copy_from<P: Clone + Serialize + DeserializeOwned>(
        &mut self,
        source: usize,
        receives: bool,
        progress: &P,
        group: &ProcessGroup,
    ) -> Result<P> {
        let device = group.exchange_device();
        let (mut announced, mut tensors) = (Ok(Announcement::default()), Vec::new());
        if group.rank() == source {
            match self.whole(progress, device) {
                Ok(whole) => (announced, tensors) = (Ok(whole.0), whole.1),
                Err(error) => announced = Err(with_causes(&error)),
            }
        }
        group.broadcast_object(&mut announced, source)?;
        let what = format!("the training of rank {source}");
        let Announcement { header, tensors: described } = announced
            .map_err(|found: String| Error::argument(&what, found, "one that can be copied"))?;
        if group.rank() != source {
            let empty = |(_, dtype, size): &(String, Dtype, Vec<i64>)| {
                Ok(Tensor::f_empty(size, (Kind::try_from(*dtype)?, device))?)
            };
            tensors = described.iter().map(empty).collect::<Result<_>>()?;
        }
        no_grad(|| {
            group.broadcast_coalesced("copy of a training", &tensors, BUFFER_BYTES, source)
        })?;
        if !receives {
            return Ok(progress.clone());
        }
        let tensors = described.into_iter().map(|(name, ..)| name).zip(tensors).collect();
        Ok(self.apply(Path::new(&what), tensors, &header, group)?.progress)
    }

    /// Refuses what no other rank could take from this one.
    pub(crate) fn check_whole<P: Serialize + DeserializeOwned>(&self, progress: &P) -> Result<()> {
        self.whole(progress, self.vs.device()).map(drop)
    }

    /// Everything but the random generators, on this device.
    fn whole<P: Serialize + DeserializeOwned>(
        &self,
        progress: &P,
        device: Device,
    ) -> Result<(Announcement, Vec<Tensor>)> {
        let sharding = Sharding::of(&named_variables(self.vs));
        let mut contents = self.contents(&sharding, progress, Vec::new(), 0)?;
        let (mut announcement, mut tensors) = (Announcement::default(), Vec::new());
        for (name, Saved { tensor, shard }) in contents.tensors {
            let expected = "whole on every rank: a rank that is lost takes its shard with it";
            check(shard.is_none(), &name, "sharded", expected)?;
            announcement.tensors.push((name, Dtype::try_from(tensor.kind())?, tensor.size()));
            let tensor = tensor.f_detach()?.f_resolve_conj()?.f_resolve_neg()?;
            tensors.push(tensor.f_to(device)?.f_contiguous()?);
        }
        announcement.header = contents.metadata.remove(HEADER).unwrap_or_default();
        Ok((announcement, tensors))
    }
}
