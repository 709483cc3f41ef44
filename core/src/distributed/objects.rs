//! Exchanges of values that are not tensors.

use super::process_group::ProcessGroup;
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tch::{Kind, Tensor};

impl ProcessGroup {
    /// The values of all ranks, in the order of ranks, on every rank. They may differ in size but
    /// not in type. `dist.all_gather_object`.
    ///
    /// ```
    /// use tch_parallel::distributed::ProcessGroup;
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let hosts: Vec<String> = group.all_gather_object(&"node0".to_owned())?;
    /// assert_eq!(hosts.len(), group.world_size());
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [every collective](ProcessGroup#errors). Also for a value of a different type than
    /// this rank's, where that can be detected, and for one that cannot be serialized: values are
    /// sent without field names, so types that serde must inspect first (`serde_json::Value`,
    /// `untagged`, `flatten`) cannot be read back.
    pub fn all_gather_object<T: Serialize + DeserializeOwned>(&self, object: &T) -> Result<Vec<T>> {
        const OPERATION: &str = "all_gather_object";
        let own = self.encode(OPERATION, object)?;
        let lengths = self.all_gather(&self.length(own.len()))?;
        let lengths = lengths.iter().map(|length| to_usize(OPERATION, length));
        let lengths: Vec<usize> = lengths.collect::<Result<_>>()?;
        // All tensors must have the same shape, and empty ones cannot be sent.
        let longest = lengths.iter().copied().max().unwrap_or_default().max(1);
        let mut padded = own;
        padded.resize(longest, 0);
        let all = self.all_gather(&Tensor::from_slice(&padded).to(self.exchange_device()))?;
        let object = |(bytes, length): (Tensor, usize)| {
            let bytes = Vec::<u8>::try_from(bytes).map_err(Error::tensor(OPERATION))?;
            self.decode(OPERATION, &bytes[..length])
        };
        all.into_iter().zip(lengths).map(object).collect()
    }

    /// Replaces `object` with that of rank `src`. `dist.broadcast_object_list`.
    ///
    /// # Errors
    /// Those of [`all_gather_object`](Self::all_gather_object).
    #[doc(alias = "broadcast_object_list")]
    pub fn broadcast_object<T: Serialize + DeserializeOwned>(
        &self,
        object: &mut T,
        src: usize,
    ) -> Result<()> {
        const OPERATION: &str = "broadcast_object";
        self.check_rank("src", src)?;
        let own = match src == self.rank() {
            true => self.encode(OPERATION, object)?,
            false => Vec::new(),
        };
        let mut length = self.length(own.len());
        self.broadcast(&mut length, src)?;
        let mut bytes = own;
        bytes.resize(to_usize(OPERATION, &length)?, 0);
        let mut tensor = Tensor::from_slice(&bytes).to(self.exchange_device());
        // `()` has no bytes, and an empty tensor cannot be sent.
        if !bytes.is_empty() {
            self.broadcast(&mut tensor, src)?;
        }
        if src != self.rank() {
            let bytes = Vec::<u8>::try_from(tensor).map_err(Error::tensor(OPERATION))?;
            *object = self.decode(OPERATION, &bytes)?;
        }
        Ok(())
    }

    fn length(&self, length: usize) -> Tensor {
        Tensor::from(length as i64).to_kind(Kind::Int64).to(self.exchange_device())
    }

    fn encode(&self, operation: &'static str, object: &impl Serialize) -> Result<Vec<u8>> {
        postcard::to_stdvec(object)
            .map_err(|error| self.failed_here(operation, &format!("cannot serialize: {error}")))
    }

    fn decode<T: DeserializeOwned>(&self, operation: &'static str, bytes: &[u8]) -> Result<T> {
        let (object, rest) = postcard::take_from_bytes(bytes).map_err(|error| {
            self.failed_here(operation, &format!("cannot deserialize: {error}"))
        })?;
        if !rest.is_empty() {
            return Err(self.failed_here(operation, "another rank's value is of another type"));
        }
        Ok(object)
    }
}

fn to_usize(operation: &'static str, length: &Tensor) -> Result<usize> {
    Ok(length.f_int64_value(&[]).map_err(Error::tensor(operation))? as usize)
}
