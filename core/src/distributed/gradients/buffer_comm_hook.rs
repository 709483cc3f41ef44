//! Another way of synchronizing buffers than broadcasting rank 0's.

use crate::Result;
use crate::distributed::{ProcessGroup, collectives::Pending};
use std::fmt;
use tch::Tensor;

type Hook = dyn FnMut(&ProcessGroup, Vec<(String, Tensor)>) -> Result<Vec<Pending<Tensor>>> + Send;

/// When buffers are synchronized. `_BufferCommHookLocation`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BufferCommHookLocation {
    /// Before the forward pass, which waits for the exchanges.
    PreForward,
    /// After the forward pass; [`backward`](super::DistributedDataParallel::backward) waits for them. A plain
    /// `loss.backward()` leaves that to the next forward pass.
    #[default]
    PostForward,
}

/// How the buffers of all ranks become one, in [`DdpOptions::buffer_comm_hook`]. `ddp._register_buffer_comm_hook`
///
/// ```
/// # use tch::{Kind, Tensor, nn::{self, ModuleT}};
/// # use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
/// use tch_parallel::distributed::{BufferCommHook, BufferCommHookLocation, ReduceOp};
///
/// # let group = ProcessGroup::from_env()?;
/// # let vs = nn::VarStore::new(group.device());
/// # let module = nn::batch_norm1d(vs.root(), 4, Default::default());
/// # let images = Tensor::ones([8, 4], (Kind::Float, group.device()));
/// let location = BufferCommHookLocation::PreForward;
/// let maximum = BufferCommHook::new("maximum", location, |group, buffers| {
///     let start = |(_name, buffer)| group.all_reduce_async(buffer, ReduceOp::Max);
///     buffers.into_iter().map(start).collect()
/// });
/// let options = DdpOptions { buffer_comm_hook: Some(maximum), ..Default::default() };
/// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
/// model.backward(&model.forward_t(&images, true).mean(Kind::Float))?;
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// It is called whenever buffers would be broadcast. In a [`join`](super::DistributedDataParallel::join) it has to come
/// before the forward pass, and ranks without inputs call it too.
///
/// [`DdpOptions::buffer_comm_hook`]: super::DdpOptions::buffer_comm_hook
pub struct BufferCommHook {
    name: String,
    pub(super) location: BufferCommHookLocation,
    pub(super) hook: Box<Hook>,
}

impl BufferCommHook {
    /// A hook that gets the buffers with their names and changes them in place; it returns exchanges that have not
    /// finished. Ranks compare `name`.
    pub fn new(
        name: impl Into<String>,
        comm_hook_location: BufferCommHookLocation,
        hook: impl FnMut(&ProcessGroup, Vec<(String, Tensor)>) -> Result<Vec<Pending<Tensor>>>
        + Send
        + 'static,
    ) -> Self {
        BufferCommHook { name: name.into(), location: comm_hook_location, hook: Box::new(hook) }
    }
}

impl fmt::Debug for BufferCommHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}", self.name, self.location)
    }
}
