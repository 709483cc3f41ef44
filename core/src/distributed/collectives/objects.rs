//! Exchanges of values that are not tensors.

use crate::{Error, Result, distributed::group::ProcessGroup};
use serde::{Serialize, de::DeserializeOwned};
use std::any::type_name;
use tch::Tensor;

/// Stands for the length of a value that cannot be exchanged, so that no rank waits for it.
const REFUSED: i64 = -1;

impl ProcessGroup {
    /// All ranks' values, in rank order, on every rank; of any size, but all of one type. `dist.all_gather_object`.
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
    /// Those of [every collective](ProcessGroup#errors). Also for values of different types, where it can be detected.
    ///
    /// [`Error::Argument`] for a value that cannot be read back, on all ranks: values are sent without field names, so
    /// types that serde must inspect first (`serde_json::Value`, `untagged`, `flatten`) have to be exchanged as text.
    pub fn all_gather_object<T: Serialize + DeserializeOwned>(&self, object: &T) -> Result<Vec<T>> {
        self.gather_objects("all_gather_object", object, |own| self.on_host().all_gather(own))
    }

    /// The values of all ranks, in the order of ranks, on rank `dst`; `None` on the others. `dist.gather_object`.
    pub fn gather_object<T: Serialize + DeserializeOwned>(
        &self,
        object: &T,
        dst: usize,
    ) -> Result<Option<Vec<T>>> {
        self.check_rank("dst", dst)?;
        let gather = |own: &Tensor| Ok(self.on_host().gather(own, dst)?.unwrap_or_default());
        let all = self.gather_objects("gather_object", object, gather)?;
        Ok((self.rank() == dst).then_some(all))
    }

    /// Replaces `object` with that of rank `src`. `dist.broadcast_object_list`.
    #[doc(alias = "broadcast_object_list")]
    pub fn broadcast_object<T: Serialize + DeserializeOwned>(
        &self,
        object: &mut T,
        src: usize,
    ) -> Result<()> {
        const OPERATION: &str = "broadcast_object";
        self.refuse_python(OPERATION, 0..self.world_size())?;
        self.check_rank("src", src)?;
        let own = if src == self.rank() { encode(object) } else { Ok(Vec::new()) };
        let mut length = self.length(own.as_ref().map(Vec::len));
        self.on_host().broadcast(&mut length, src)?;
        let (own, length) = (own?, accepted(&length, src)?);
        let mut bytes = self.padded(own, &[length]);
        self.on_host().broadcast(&mut bytes, src)?;
        if src != self.rank() {
            *object = self.decode(OPERATION, &Vec::<u8>::try_from(bytes)?[..length])?;
        }
        Ok(())
    }

    /// Rank r's value of the list that rank `src` has; it is `None` on the others. `dist.scatter_object_list`.
    ///
    /// ```
    /// use tch_parallel::distributed::ProcessGroup;
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let shards: Vec<String> = (0..group.world_size()).map(|r| format!("shard-{r}")).collect();
    /// let own = group.scatter_object((group.rank() == 0).then_some(&shards[..]), 0)?;
    /// assert_eq!(own, format!("shard-{}", group.rank()));
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[doc(alias = "scatter_object_list")]
    pub fn scatter_object<T: Serialize + DeserializeOwned>(
        &self,
        objects: Option<&[T]>,
        src: usize,
    ) -> Result<T> {
        const OPERATION: &str = "scatter_object";
        self.refuse_python(OPERATION, 0..self.world_size())?;
        self.check_rank("src", src)?;
        // The others wait for the length: a refused list is like a value that cannot be read back.
        let encoded: Result<Vec<_>> = self
            .check_source("objects", objects.map(<[_]>::len), src)
            .and_then(|()| objects.unwrap_or_default().iter().map(encode).collect());
        let longest = |all: &Vec<Vec<u8>>| all.iter().map(Vec::len).max().unwrap_or_default();
        let mut length = self.length(encoded.as_ref().map(longest));
        self.on_host().broadcast(&mut length, src)?;
        let is_here = src == self.rank();
        // A list elsewhere is refused when nobody waits any more.
        let (encoded, refused) = match is_here {
            true => (encoded?, Ok(())),
            false => (Vec::new(), encoded.map(drop)),
        };
        // An empty tensor cannot be sent.
        let longest = accepted(&length, src)?.max(1);

        let lengths: Vec<_> = encoded.iter().map(|bytes| self.length(Ok(bytes.len()))).collect();
        self.on_host().scatter(&mut length, is_here.then_some(&lengths[..]), src)?;
        let padded = |bytes: Vec<u8>| self.padded(bytes, &[longest]);
        let encoded: Vec<_> = encoded.into_iter().map(padded).collect();
        let mut own = self.padded(Vec::new(), &[longest]);
        self.on_host().scatter(&mut own, is_here.then_some(&encoded[..]), src)?;
        refused?;
        self.decode(OPERATION, &Vec::<u8>::try_from(own)?[..accepted(&length, src)?])
    }

    /// Sends a value to rank `dst`, which must call [`recv_object`](Self::recv_object). `dist.send_object_list`.
    ///
    /// ```
    /// # use tch_parallel::distributed::ProcessGroup;
    /// # fn pass_on(group: &ProcessGroup) -> tch_parallel::Result<()> {
    /// match group.rank() {
    ///     0 => group.send_object(&("epoch".to_owned(), 3), 1)?,
    ///     1 => assert_eq!(group.recv_object::<(String, i32)>(0)?, ("epoch".to_owned(), 3)),
    ///     _ => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`send`](ProcessGroup::send) and of [`all_gather_object`](Self::all_gather_object).
    #[doc(alias = "send_object_list")]
    pub fn send_object<T: Serialize + DeserializeOwned>(
        &self,
        object: &T,
        dst: usize,
    ) -> Result<()> {
        self.refuse_python("send_object", [dst])?;
        let own = encode(object);
        self.on_host().send(&self.length(own.as_ref().map(Vec::len)), dst)?;
        self.on_host().send(&self.padded(own?, &[]), dst)
    }

    /// Receives a value from rank `src`. `dist.recv_object_list`.
    #[doc(alias = "recv_object_list")]
    pub fn recv_object<T: DeserializeOwned>(&self, src: usize) -> Result<T> {
        const OPERATION: &str = "recv_object";
        self.refuse_python(OPERATION, [src])?;
        let mut length = self.length(Ok(0));
        self.on_host().recv(&mut length, src)?;
        let length = accepted(&length, src)?;
        let mut bytes = self.padded(Vec::new(), &[length]);
        self.on_host().recv(&mut bytes, src)?;
        self.decode(OPERATION, &Vec::<u8>::try_from(bytes)?[..length])
    }

    /// The values of all ranks, whose bytes `gather` exchanges; empty on ranks where that returns nothing.
    fn gather_objects<T: Serialize + DeserializeOwned>(
        &self,
        operation: &'static str,
        object: &T,
        gather: impl FnOnce(&Tensor) -> Result<Vec<Tensor>>,
    ) -> Result<Vec<T>> {
        self.refuse_python(operation, 0..self.world_size())?;
        let own = encode(object);
        let lengths = self.on_host().all_gather(&self.length(own.as_ref().map(Vec::len)))?;
        let own = own?;
        let lengths = lengths.iter().enumerate().map(|(rank, length)| accepted(length, rank));
        let lengths: Vec<_> = lengths.collect::<Result<_>>()?;
        let all = gather(&self.padded(own, &lengths))?;
        let object = |(bytes, length): (Tensor, usize)| {
            self.decode(operation, &Vec::<u8>::try_from(bytes)?[..length])
        };
        all.into_iter().zip(lengths).map(object).collect()
    }

    /// Bytes as a tensor, as long as the longest of all ranks', because all tensors must have one shape, and not empty,
    /// because an empty one cannot be sent.
    fn padded(&self, mut bytes: Vec<u8>, lengths: &[usize]) -> Tensor {
        let longest = lengths.iter().copied().max().unwrap_or_default();
        bytes.resize(longest.max(bytes.len()).max(1), 0);
        Tensor::from_slice(&bytes).to(self.exchange_device())
    }

    fn length(&self, length: std::result::Result<usize, &Error>) -> Tensor {
        let length = length.map_or(REFUSED, |length| length as i64);
        Tensor::from(length).to(self.exchange_device())
    }

    fn decode<T: DeserializeOwned>(&self, operation: &'static str, bytes: &[u8]) -> Result<T> {
        match postcard::take_from_bytes(bytes) {
            Ok((object, [])) => Ok(object),
            Ok(_) => Err(self.failed_here(operation, "another rank's value is of another type")),
            Err(error) => Err(self.failed_here(operation, &format!("cannot deserialize: {error}"))),
        }
    }
}

/// A value as bytes, if it can be read back from them.
fn encode<T: Serialize + DeserializeOwned>(object: &T) -> Result<Vec<u8>> {
    let refused = |why: String| {
        let name = type_name::<T>();
        let found = format!("of type {name}, which cannot be read back from bytes ({why})");
        let expected = "of a type that serde reads without looking at the data first: exchange it as text, \
                        for instance `serde_json::to_string(&object)?`";
        Error::argument("the object", found, expected)
    };
    let bytes = postcard::to_stdvec(object).map_err(|error| refused(error.to_string()))?;
    match postcard::take_from_bytes::<T>(&bytes) {
        Ok((_, [])) => Ok(bytes),
        Ok(_) => Err(refused("some of them are left over".into())),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// A length that the rank at the other end has not refused to give.
fn accepted(length: &Tensor, rank: usize) -> Result<usize> {
    usize::try_from(length.f_int64_value(&[])?).map_err(|_| {
        let what = format!("the object of rank {rank}");
        let expected = "one that can: that rank's error says why it cannot";
        Error::argument(what, "one that cannot be exchanged", expected)
    })
}
