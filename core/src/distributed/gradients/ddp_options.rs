//! Options for the exchange of gradients.

use super::{buffer_comm_hook::BufferCommHook, hooks::CommHook, mixed_precision::MixedPrecision};
use crate::{Result, check};
use c10d_sys::ReducerOptions;
use std::collections::BTreeSet;
use tch_parallel_base::options;

pub(super) const MIB: f64 = 1024.0 * 1024.0;

/// `dist._DEFAULT_FIRST_BUCKET_BYTES`, and PyTorch's default for `bucket_cap_mb`.
const DEFAULT_BUCKETS_MB: [f64; 2] = [1.0, 25.0];

options! {
    /// PyTorch's keyword arguments of `DistributedDataParallel`, with its defaults, and settings
    /// that PyTorch takes elsewhere.
    #[derive(Debug)]
    pub struct DdpOptions {
        /// The size of a bucket in MiB. Small buckets start early, large ones waste less time on
        /// latency. `None`: 25, with a first bucket of 1.
        pub bucket_cap_mb: Option<f64> = None,
        /// The sizes of the buckets in MiB, in order; buckets beyond the list have its last size. If not empty,
        /// `bucket_cap_mb` is ignored.
        pub bucket_cap_mb_list: Vec<f64> = Vec::new(),
        /// Whether some parameters may be unused in a loss. Costs a walk over the graph in every
        /// step; without it, an unused parameter is an error.
        pub find_unused_parameters: bool = false,
        /// Whether gradients are views into the buckets, which saves a copy and the memory for it.
        pub gradient_as_bucket_view: bool = false,
        /// Whether the graph is the same in every iteration. Unused parameters are then found only
        /// once, and more kinds of graphs are supported.
        pub static_graph: bool = false,
        /// Whether wrapping compares the ranks' models and broadcasts rank 0's. Without it, wrapping exchanges nothing,
        /// and the ranks must have built the same model with the same weights.
        pub init_sync: bool = true,
        /// Whether rank 0's buffers (running statistics, say) are broadcast to all ranks, before each forward pass and,
        /// with `init_sync`, when the model is wrapped.
        pub broadcast_buffers: bool = true,
        /// Whether they are also broadcast before each forward pass.
        pub forward_sync_buffers: bool = true,
        /// Replaces the broadcast of buffers. `model._register_buffer_comm_hook`
        pub buffer_comm_hook: Option<BufferCommHook> = None,
        /// Another way of exchanging gradients than their mean; see
        /// [`hooks`](crate::distributed::hooks). `model.register_comm_hook`
        pub comm_hook: Option<Box<dyn CommHook>> = None,
        /// The kinds of parameters and gradients during a pass, if not their own. Unlike `autocast`, it halves the
        /// memory of gradients and what is sent. Not together with `comm_hook`, `find_unused_parameters`,
        /// `gradient_as_bucket_view`, `sparse_gradients` and `static_graph`.
        pub mixed_precision: Option<MixedPrecision> = None,
        /// The number of virtual ranks: the job computes what as many ranks would, with the same bits on any smaller
        /// number of them. Each rank computes for some, one after the other
        /// ([`shares`](super::DistributedDataParallel::shares)) or, for SyncBatchNorm, in step
        /// ([`backward_shares`](super::DistributedDataParallel::backward_shares)), and gradients are added in pairs,
        /// pairs of pairs, and so on. Buffers are those of virtual rank 0. The bits still depend on the processor, the
        /// device and the number of threads, which is 1 unless OMP_NUM_THREADS says otherwise. Costs copies of the
        /// gradients: in step, one for each virtual rank that a rank has; otherwise fewer, 3 for 12 of them. Over
        /// sockets and with NCCL, a rank also holds one bucket of every rank's sums. Not together with
        /// `buffer_comm_hook`, `comm_hook`, `delay_all_reduce_named_params`, `find_unused_parameters`,
        /// `gradient_as_bucket_view`, `mixed_precision`, `params_and_buffers_to_ignore`, `sparse_gradients`,
        /// `static_graph` and buffers that are not broadcast. PyTorch has no counterpart.
        pub virtual_ranks: Option<usize> = None,
        /// Whether to skip buckets whose parameters are all unused, which `find_unused_parameters` detects. The unused
        /// parameters must be the same on all ranks in every step. Not within a join.
        pub skip_all_reduce_unused_params: bool = false,
        /// The names of the parameters whose gradients are sparse: the weights of embeddings with
        /// `sparse`. PyTorch reads that from its modules.
        pub sparse_gradients: BTreeSet<String> = BTreeSet::new(),
        /// The names of parameters that each rank trains on its own, and of buffers that stay its
        /// own. `_set_params_and_buffers_to_ignore_for_model`
        pub params_and_buffers_to_ignore: BTreeSet<String> = BTreeSet::new(),
        /// Names of parameters whose gradients are averaged apart from the buckets: all together, once the gradient of
        /// `param_to_hook_all_reduce` is complete. They must be complete by then, and all ranks must make gradients in
        /// one order. `comm_hook` does not see them. PyTorch does not wait for the exchange, also makes it under
        /// `no_sync`, and broadcasts the parameters even without `init_sync`. Not with Python ranks in the job, a join,
        /// `find_unused_parameters`, `HookThenOptimizer`, `mixed_precision`, `static_graph` or `virtual_ranks`.
        ///
        /// ```
        /// # use tch::{Kind, Tensor, nn::{self, ModuleT}};
        /// # use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
        /// # let group = ProcessGroup::from_env()?;
        /// # let vs = nn::VarStore::new(group.device());
        /// let linear = |name: &str| nn::linear(vs.root() / name, 4, 4, Default::default());
        /// let module = nn::seq_t().add(linear("first")).add(linear("last"));
        /// let options = DdpOptions {
        ///     delay_all_reduce_named_params: vec!["last.weight".into(), "last.bias".into()],
        ///     param_to_hook_all_reduce: Some("first.weight".into()), // whose gradient comes later
        ///     ..Default::default()
        /// };
        /// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
        /// # Ok::<(), tch_parallel::Error>(())
        /// ```
        pub delay_all_reduce_named_params: Vec<String> = Vec::new(),
        /// The parameter that `delay_all_reduce_named_params` waits for; its gradient is in a bucket.
        pub param_to_hook_all_reduce: Option<String> = None,
    }
}

impl DdpOptions {
    pub(crate) fn for_the_reducer(&self) -> Result<ReducerOptions> {
        let check_size = |name, &size: &f64| check(size > 0.0, name, size, "more than 0 MiB");
        self.bucket_cap_mb.iter().try_for_each(|it| check_size("bucket_cap_mb", it))?;
        self.bucket_cap_mb_list.iter().try_for_each(|it| check_size("bucket_cap_mb_list", it))?;
        let [mixed_precision, virtual_ranks] =
            [self.mixed_precision.is_some(), self.virtual_ranks.is_some()];
        let has_ignored = !self.params_and_buffers_to_ignore.is_empty();
        let others = [
            ("comm_hook", self.comm_hook.is_some(), true),
            ("find_unused_parameters", self.find_unused_parameters, true),
            ("gradient_as_bucket_view", self.gradient_as_bucket_view, true),
            ("sparse_gradients", !self.sparse_gradients.is_empty(), true),
            ("static_graph", self.static_graph, true),
            // These only exclude virtual ranks.
            ("buffer_comm_hook", self.buffer_comm_hook.is_some(), virtual_ranks),
            ("broadcast_buffers: false", !self.broadcast_buffers, virtual_ranks),
            ("forward_sync_buffers: false", !self.forward_sync_buffers, virtual_ranks),
            ("mixed_precision", mixed_precision, virtual_ranks),
            ("params_and_buffers_to_ignore", has_ignored, virtual_ranks),
        ];
        let (option, expected) = match virtual_ranks {
            true => ("virtual_ranks", "the only one of them"),
            false => ("mixed_precision", "the only one of them: use amp::autocast with the other"),
        };
        for (other, is_set, excludes) in others {
            let is_refused = is_set && excludes && (mixed_precision || virtual_ranks);
            check(!is_refused, option, format_args!("set with {other}"), expected)?;
        }
        let broadcast_buffers = self.broadcast_buffers && self.forward_sync_buffers;
        let is_called = broadcast_buffers || self.buffer_comm_hook.is_none();
        let found = "set with broadcast_buffers or forward_sync_buffers: false";
        check(is_called, "buffer_comm_hook", found, "set without it")?;
        Ok(ReducerOptions {
            limit_first_buckets: !self.bucket_cap_mb_list.is_empty(),
            find_unused_parameters: self.find_unused_parameters,
            gradient_as_bucket_view: self.gradient_as_bucket_view,
            static_graph: self.static_graph,
            broadcast_buffers,
            skip_all_reduce_unused_params: self.skip_all_reduce_unused_params,
        })
    }

    /// The sizes of the buckets in bytes, in order; buckets beyond these have the last size.
    pub(super) fn bucket_bytes(&self) -> Vec<usize> {
        let sizes = match (self.bucket_cap_mb_list.as_slice(), self.bucket_cap_mb.as_slice()) {
            ([], []) => &DEFAULT_BUCKETS_MB,
            ([], of_all) => of_all,
            (of_each, _) => of_each,
        };
        sizes.iter().map(|mb| (mb * MIB) as usize).collect()
    }
}
