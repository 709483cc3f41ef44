//! The C ABI of `csrc/`: the types of `c10d.h`, and the functions of each file.

use std::ffi::{c_char, c_int, c_void};

macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub(crate) struct $name {
            _private: [u8; 0],
        }
    )*};
}

/// Declares C++ functions for the whole crate.
macro_rules! functions {
    (
        $($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*
    ) => {
        unsafe extern "C" {
            $($(#[$attribute])* pub(crate) fn $name($($argument: $type),*) $(-> $result)?;)*
        }
    };
}

opaque!(Store, ProcessGroup, Work, GradBucket, Reducer, GraphEnd, ThreadState, Event, Memory);

pub(crate) type Tensor = c_void;

/// Where a call writes the address of something new.
type Out<T> = *mut *mut T;

type Text = *const c_char;
type Callback = extern "C" fn(*mut c_void);
type Hook = extern "C" fn(*mut c_void) -> Status;

#[repr(C)]
pub(crate) struct Tensors {
    pub(crate) first: *mut *mut Tensor,
    pub(crate) count: usize,
}

/// The message is null on success, otherwise the text of an exception.
#[repr(C)]
pub(crate) struct Status {
    pub(crate) message: *mut c_char,
    pub(crate) kind: ErrorKind,
}

#[repr(C)]
pub(crate) struct Call {
    pub(crate) timeout_ms: i64,
    pub(crate) is_async: bool,
    pub(crate) root: c_int,
    pub(crate) op: u8,
}

#[repr(C)]
pub(crate) struct Message {
    pub(crate) tensor: *mut Tensor,
    pub(crate) peer: c_int,
    pub(crate) tag: c_int,
    pub(crate) is_send: bool,
}

#[repr(C)]
pub(crate) struct CommHook {
    pub(crate) start: extern "C" fn(*mut c_void, *mut GradBucket, *mut *mut c_void) -> Status,
    pub(crate) finish: extern "C" fn(*mut c_void, *mut *mut Tensor) -> Status,
    pub(crate) drop_pending: Callback,
    pub(crate) drop: Callback,
}

#[repr(C)]
pub(crate) struct Autocast {
    pub(crate) enabled: bool,
    pub(crate) kind: i32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) id: i64,
    pub(crate) device: i32,
}

/// What kind of failure an [`Error`](crate::Error) is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum ErrorKind {
    /// Another rank or the store can no longer be reached.
    Connection = 1,
    /// Something did not happen in time: a rank did not arrive, or a key was not set.
    Timeout = 2,
    /// The call is wrong: an argument is invalid, or the ranks made different calls.
    Misuse = 3,
    /// The last backward pass has not made the gradients of all of a model's parameters:
    /// [`Error::missing`](crate::Error::missing) tells which.
    Unfinished = 4,
    /// Anything else.
    Other = 0,
}

/// Bytes of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Bytes {
    /// In blocks that have not been freed.
    pub live: usize,
    /// The maximum since the last reset.
    pub peak: usize,
}

/// What a thread has asked of the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Calls {
    /// A bit for each device on which there would be a context.
    pub contexts: u64,
    /// How many events were recorded.
    pub events: usize,
    /// How often the host would have waited for a device.
    pub waits: usize,
}

/// The numbers of the last operations, from 0 on; -1 if there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Progress {
    /// That has begun.
    pub begun: i64,
    /// That is over. PyTorch's watchdog counts them a few times a second.
    pub finished: i64,
}

/// DistributedDataParallel's options for `c10d::Reducer`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ReducerOptions {
    /// The size in bytes of the first bucket: a small one lets the exchange start early.
    pub first_bucket_bytes: usize,
    /// The size in bytes of all other buckets.
    pub bucket_bytes: usize,
    /// Search the graph for unused parameters after each forward pass.
    pub find_unused_parameters: bool,
    /// Make gradients views into the buckets, which saves a copy and its memory.
    pub gradient_as_bucket_view: bool,
    /// The graph is the same in every iteration.
    pub static_graph: bool,
    /// Whether the caller broadcasts buffers; only for the logging data.
    pub broadcast_buffers: bool,
}

functions! {
    fn c10d_free(memory: *mut c_void);
    fn c10d_copy_text(text: Text) -> *mut c_char;

    fn c10d_initialize() -> Status;

    fn c10d_tcp_store_new(host: Text, port: u16, world_size: usize, listen_fd: c_int,
        timeout_ms: i64, out: Out<Store>) -> Status;
    fn c10d_hash_store_new(out: Out<Store>) -> Status;
    fn c10d_prefix_store_new(prefix: Text, store: *const Store, out: Out<Store>) -> Status;
    fn c10d_store_clone(store: *const Store, out: Out<Store>) -> Status;
    fn c10d_store_set(store: *const Store, key: Text, value: *const u8, length: usize) -> Status;
    fn c10d_store_append(store: *const Store, key: Text, value: *const u8, length: usize) -> Status;
    fn c10d_store_get(store: *const Store, key: Text, timeout_ms: i64, value: *mut *mut u8,
        length: *mut usize) -> Status;
    fn c10d_store_wait(store: *const Store, keys: *mut Text, count: usize,
        timeout_ms: i64) -> Status;
    fn c10d_store_compare_set(store: *const Store, key: Text, expected: *const u8,
        expected_length: usize, desired: *const u8, desired_length: usize, value: *mut *mut u8,
        length: *mut usize) -> Status;
    fn c10d_store_delete_key(store: *const Store, key: Text, out: *mut bool) -> Status;
    fn c10d_store_num_keys(store: *const Store, out: *mut i64) -> Status;
    fn c10d_store_check(store: *const Store, key: Text, out: *mut bool) -> Status;
    fn c10d_store_add(store: *const Store, key: Text, amount: i64, out: *mut i64) -> Status;
    fn c10d_store_free(store: *mut Store);

    fn c10d_process_group_new(store: *const Store, rank: c_int, world_size: c_int,
        out: Out<ProcessGroup>) -> Status;
    fn c10d_process_group_add_gloo(group: *mut ProcessGroup, names: *mut Text, count: usize,
        are_interfaces: bool, shared_memory: bool, name: c_int, timeout_ms: i64,
        join_timeout_ms: i64) -> Status;
    fn c10d_process_group_no_shared_memory(group: *const ProcessGroup) -> *const c_char;
    fn c10d_process_group_lost_peer(group: *mut ProcessGroup, first: c_int, age_ms: i64,
        out: *mut c_int) -> Status;
    fn c10d_process_group_fail_operations_with(group: *mut ProcessGroup, rank: c_int) -> Status;
    fn c10d_process_group_is_busy(group: *mut ProcessGroup, out: *mut bool) -> Status;
    fn c10d_process_group_fail(group: *mut ProcessGroup) -> Status;
    fn c10d_process_group_progress(group: *mut ProcessGroup, out: *mut Progress) -> Status;
    fn c10d_process_group_abort(group: *mut ProcessGroup) -> Status;
    fn c10d_probe_shared_memory(probe: extern "C" fn());
    fn c10d_allocate_tensor(group: *mut ProcessGroup, size: *const i64, dimensions: usize,
        like: *mut Tensor, out: Out<Tensor>) -> Status;
    fn c10d_process_group_free(group: *mut ProcessGroup);

    fn c10d_collective(group: *mut ProcessGroup, collective: u8, outputs: Tensors, inputs: Tensors,
        call: Call, out: Out<Work>) -> Status;
    fn c10d_all_to_all_single(group: *mut ProcessGroup, output: *mut Tensor, input: *mut Tensor,
        output_splits: *const i64, output_count: usize, input_splits: *const i64,
        input_count: usize, call: Call, out: Out<Work>) -> Status;
    fn c10d_monitored_barrier(group: *mut ProcessGroup, timeout_ms: i64,
        wait_all_ranks: bool) -> Status;
    fn c10d_broadcast_coalesced(group: *mut ProcessGroup, tensors: Tensors, buffer_size: usize,
        root: c_int) -> Status;
    fn c10d_send(group: *mut ProcessGroup, tensor: *mut Tensor, destination: c_int, tag: c_int,
        out: Out<Work>) -> Status;
    fn c10d_recv(group: *mut ProcessGroup, tensor: *mut Tensor, source: c_int, tag: c_int,
        out: Out<Work>) -> Status;
    fn c10d_recv_any(group: *mut ProcessGroup, tensor: *mut Tensor, tag: c_int,
        out: Out<Work>) -> Status;
    fn c10d_batch(group: *mut ProcessGroup, messages: *const Message, count: usize,
        out: *mut *mut Work) -> Status;
    fn c10d_work_wait(work: *mut Work, timeout_ms: i64) -> Status;
    fn c10d_work_is_completed(work: *mut Work, out: *mut bool) -> Status;
    fn c10d_work_source_rank(work: *mut Work, out: *mut c_int) -> Status;
    fn c10d_work_free(work: *mut Work);

    #[cfg(feature = "cuda")]
    fn c10d_process_group_add_nccl(group: *mut ProcessGroup, device_index: c_int,
        timeout_ms: i64) -> Status;

    fn c10d_grad_bucket_index(bucket: *const GradBucket) -> usize;
    fn c10d_grad_bucket_is_last(bucket: *const GradBucket) -> bool;
    fn c10d_grad_bucket_buffer(bucket: *const GradBucket, out: Out<Tensor>) -> Status;
    fn c10d_grad_bucket_set_buffer(bucket: *mut GradBucket, buffer: *mut Tensor) -> Status;
    fn c10d_grad_bucket_len(bucket: *const GradBucket) -> usize;
    fn c10d_grad_bucket_gradients(bucket: *const GradBucket, out: *mut *mut Tensor) -> Status;
    fn c10d_grad_bucket_parameters(bucket: *const GradBucket, out: *mut *mut Tensor) -> Status;

    fn c10d_verify_params(group: *mut ProcessGroup, parameters: Tensors) -> Status;
    fn c10d_reducer_new(group: *mut ProcessGroup, parameters: Tensors, names: *mut Text,
        sparse: *const bool, module_name: Text, options: *const ReducerOptions,
        out: Out<Reducer>) -> Status;
    fn c10d_reducer_prepare_for_forward(reducer: *mut Reducer) -> Status;
    fn c10d_reducer_rebuild_buckets(reducer: *mut Reducer, out: *mut bool) -> Status;
    fn c10d_reducer_prepare_for_backward(reducer: *mut Reducer, outputs: Tensors) -> Status;
    fn c10d_reducer_missing(reducer: *mut Reducer, indices: *mut usize, len: *mut usize) -> Status;
    fn c10d_reducer_sink(reducer: *mut Reducer, outputs: Tensors) -> Status;
    fn c10d_reducer_needs_sink(reducer: *const Reducer) -> bool;
    fn c10d_reducer_logged_text(reducer: *mut Reducer, name: Text,
        text: *mut *mut c_char) -> Status;
    fn c10d_reducer_logged_number(reducer: *mut Reducer, name: Text, number: *mut i64) -> Status;
    fn c10d_reducer_register_comm_hook(reducer: *mut Reducer, name: Text, hook: *const CommHook,
        context: *mut c_void) -> Status;
    fn c10d_reducer_set_uneven_input_join(reducer: *mut Reducer) -> Status;
    fn c10d_reducer_set_forward_pass_work(reducer: *mut Reducer, work: *const Work,
        use_static_world_size: bool) -> Status;
    fn c10d_reducer_shadow_backward(reducer: *mut Reducer) -> Status;
    fn c10d_bucket_order(parameters: Tensors, order: *mut usize, len: *mut usize) -> Status;
    fn c10d_set_bucket_order(parameters: Tensors) -> Status;
    fn c10d_reducer_free(reducer: *mut Reducer);

    fn c10d_tensor_backward(tensor: *const Tensor) -> Status;
    fn c10d_graph_end_new(tensor: *const Tensor, out: Out<GraphEnd>) -> Status;
    fn c10d_graph_end_free(end: *mut GraphEnd);
    fn c10d_backward(ends: *mut *mut GraphEnd, gradients: Tensors, keep_graph: bool) -> Status;
    fn c10d_hook_gradients(leaves: Tensors, inputs: Tensors,
        call: extern "C" fn(*mut c_void, *mut *mut Tensor, bool, *mut *mut Tensor) -> Status,
        context: *mut c_void, drop: Callback) -> Status;
    fn c10d_before_backward(output: *mut Tensor, call: Hook, context: *mut c_void,
        drop: Callback) -> Status;
    fn c10d_after_backward(inputs: Tensors, call: Hook, context: *mut c_void,
        drop: Callback) -> Status;
    fn c10d_at_end_of_backward(call: Hook, context: *mut c_void, drop: Callback) -> Status;
    fn c10d_in_backward() -> bool;
    fn c10d_free_storage(tensor: *mut Tensor, message: Text, bytes: *mut usize,
        memory: Out<Memory>) -> Status;
    fn c10d_allocate_storage(tensor: *mut Tensor, bytes: usize, from: *mut Memory) -> Status;
    fn c10d_memory_free(memory: *mut Memory);
    fn c10d_version(tensor: *const Tensor) -> i64;
    fn c10d_thread_state_new(out: Out<ThreadState>) -> Status;
    fn c10d_thread_state_run(state: *const ThreadState, body: Callback,
        context: *mut c_void) -> Status;
    fn c10d_thread_state_free(state: *mut ThreadState);

    fn c10d_autocast_enter(cuda: bool, kind: i32, previous: *mut Autocast) -> Status;
    fn c10d_autocast_leave(cuda: bool, previous: *const Autocast) -> Status;
    fn c10d_cuda_autocast_enabled() -> bool;
    fn c10d_non_finite_check_and_unscale(gradients: Tensors, found_inf: *mut Tensor,
        inv_scale: *const Tensor) -> Status;

    fn c10d_set_cudnn_deterministic(enabled: bool);

    fn c10d_profiler_start(cuda: bool) -> Status;
    fn c10d_profiler_stop(path: Text) -> Status;
    fn c10d_record_function(name: Text, body: Callback, context: *mut c_void) -> Status;
    fn c10d_count_synchronizations(body: Callback, context: *mut c_void, count: *mut i64) -> Status;

    fn c10d_stream_from_pool(device: i32, out: *mut Stream) -> Status;
    fn c10d_current_stream(device: i32, out: *mut Stream) -> Status;
    fn c10d_exchange_stream(next: Stream, previous: *mut Stream) -> Status;
    fn c10d_record_stream(tensor: *mut Tensor, user: Stream) -> Status;
    fn c10d_event_new(on: Stream, timing: bool, out: Out<Event>) -> Status;
    fn c10d_event_block(event: *const Event, waiting: Stream) -> Status;
    fn c10d_event_query(event: *const Event, out: *mut bool) -> Status;
    fn c10d_event_synchronize(event: *const Event) -> Status;
    fn c10d_event_elapsed(begin: *const Event, end: *const Event, milliseconds: *mut f64) -> Status;
    fn c10d_event_after_gradients(leaves: Tensors, device: i32, out: Out<Event>) -> Status;
    fn c10d_forget_gradients(leaves: Tensors) -> Status;
    fn c10d_event_free(event: *mut Event);

    fn c10d_set_cuda_device(device: i32) -> Status;
    fn c10d_exchange_cuda_device(device: i32, previous: *mut i32) -> Status;
    fn c10d_restore_cuda_device(device: i32) -> Status;

    fn c10d_pretend_cuda() -> bool;
    fn c10d_take_cuda_calls() -> Calls;

    fn c10d_exchange_cpu_device(device: i32) -> i32;
    fn c10d_cpu_memory(device: i32) -> Bytes;
    fn c10d_reset_cpu_peak(device: i32);
    fn c10d_cpu_device_of(tensor: *const Tensor) -> i32;
    fn c10d_cuda_memory(device: i32, out: *mut Bytes) -> Status;
    fn c10d_reset_cuda_peak(device: i32) -> Status;

    fn c10d_rng_state(cuda_device: i32, out: Out<Tensor>) -> Status;
    fn c10d_set_rng_state(cuda_device: i32, state: *const Tensor) -> Status;
    fn c10d_randperm(n: i64, count: i64, seed: u64, out: *mut i64) -> Status;
    fn c10d_randint(n: i64, count: i64, seed: u64, out: *mut i64) -> Status;
    fn c10d_multinomial(weights: *const f64, n: i64, count: i64, replacement: bool, seed: u64,
        out: *mut i64) -> Status;

    fn c10d_with_number(tensor: *mut Tensor, operation: u8, number: f64) -> Status;
    fn c10d_lerp(tensor: *mut Tensor, end: *const Tensor, weight: f64) -> Status;
    fn c10d_add_scaled(tensor: *const Tensor, other: *const Tensor, alpha: f64,
        out: Out<Tensor>) -> Status;
    fn c10d_add_scaled_(tensor: *mut Tensor, other: *const Tensor, alpha: f64) -> Status;
    fn c10d_addcmul(tensor: *mut Tensor, a: *const Tensor, b: *const Tensor, value: f64) -> Status;
    fn c10d_addcdiv(tensor: *mut Tensor, a: *const Tensor, b: *const Tensor, value: f64) -> Status;
    fn c10d_copy(tensor: *const Tensor, out: Out<Tensor>) -> Status;
    fn c10d_norm(tensor: *const Tensor, dim: i64, out: Out<Tensor>) -> Status;

    fn c10d_foreach_(operation: u8, targets: Tensors, first: Tensors, second: Tensors,
        numbers: *const f64, number_count: usize) -> Status;
    fn c10d_foreach(operation: u8, sources: Tensors, first: Tensors, second: Tensors,
        numbers: *const f64, number_count: usize, out: *mut *mut Tensor) -> Status;
    fn c10d_foreach_mul_tensor(targets: Tensors, factor: *const Tensor) -> Status;
    fn c10d_unflatten_into(flat: *const Tensor, targets: Tensors, add: bool) -> Status;

    fn c10d_randn(tensors: Tensors, seed: u64) -> Status;
    fn c10d_batch_norm_backward_reduce(gradient: *const Tensor, input: *const Tensor,
        mean: *const Tensor, var: *const Tensor, eps: f64, sum: *mut Tensor,
        sum_normalized: *mut Tensor) -> Status;
    fn c10d_set_grad(tensor: *mut Tensor, gradient: *const Tensor) -> Status;
    fn c10d_clear_grad(tensor: *mut Tensor) -> Status;
    fn c10d_grad_enabled() -> bool;
    fn c10d_is_plain(tensor: *const Tensor) -> bool;
    fn c10d_has_overlap(tensor: *const Tensor) -> bool;
    fn c10d_tensor_identity(tensor: *const Tensor) -> *const c_void;
    fn c10d_exclusive_floats(tensor: *mut Tensor) -> *mut f32;
}
