//! The C ABI of `csrc/`: the types of `c10d.h`, and the functions of each file.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{cell::UnsafeCell, marker::PhantomData};

/// What Rust owns until this function frees it.
pub(crate) trait Freed: Sized {
    const FREE: unsafe extern "C" fn(*mut Self);
}

/// What only C++ looks into, through whatever reference, and how it is freed if Rust can own it.
macro_rules! opaque {
    ($($name:ident $(=> $free:ident)?),*) => {$(
        #[derive(Debug)]
        #[repr(C)]
        pub(crate) struct $name {
            _private: UnsafeCell<[u8; 0]>,
        }
        $(unsafe extern "C" {
            fn $free(owned: *mut $name);
        }
        impl Freed for $name {
            const FREE: unsafe extern "C" fn(*mut Self) = $free;
        })?
    )*};
}

/// Declares C++ functions for the whole crate. Those that are safe may be called with any arguments of their types.
macro_rules! functions {
    (
        $($(#[$attribute:meta])* $safety:ident fn $name:ident($($argument:ident: $type:ty),*)
            $(-> $result:ty)?;)*
    ) => {
        unsafe extern "C" {
            $($(#[$attribute])* pub(crate) $safety fn $name($($argument: $type),*) $(-> $result)?;)*
        }
    };
}

opaque!(
    Tensor, GradBucket, Store => c10d_store_free, ProcessGroup => c10d_process_group_free,
    Work => c10d_work_free, Reducer => c10d_reducer_free, GraphEnd => c10d_graph_end_free,
    ThreadState => c10d_thread_state_free, Event => c10d_event_free, Memory => c10d_memory_free
);

/// Where a call writes the address of something new.
type Out<'a, T> = &'a mut *mut T;

type Callback = extern "C" fn(*mut c_void);
type Hook = extern "C" fn(*mut c_void) -> Status;

/// Text that ends with NUL.
#[repr(transparent)]
pub(crate) struct Text<'a> {
    first: *const c_char,
    text: PhantomData<&'a CStr>,
}

impl<'a> Text<'a> {
    pub(crate) fn new(text: &'a CStr) -> Self {
        Text { first: text.as_ptr(), text: PhantomData }
    }
}

/// A list that lives through the call.
#[repr(C)]
pub(crate) struct Slice<'a, T> {
    first: *const T,
    count: usize,
    list: PhantomData<&'a [T]>,
}

impl<'a, T> From<&'a [T]> for Slice<'a, T> {
    fn from(list: &'a [T]) -> Self {
        Slice { first: list.as_ptr(), count: list.len(), list: PhantomData }
    }
}

pub(crate) type Tensors<'a> = Slice<'a, &'a Tensor>;

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
    pub(crate) tag: c_int,
    pub(crate) virtual_ranks: c_int,
}

#[repr(C)]
pub(crate) struct Message<'a> {
    pub(crate) tensor: &'a Tensor,
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
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ReducerOptions {
    /// Limit the buckets' sizes even before the first backward pass has shown the order in which gradients arrive.
    pub limit_first_buckets: bool,
    /// Search the graph for unused parameters after each forward pass.
    pub find_unused_parameters: bool,
    /// Make gradients views into the buckets, which saves a copy and its memory.
    pub gradient_as_bucket_view: bool,
    /// The graph is the same in every iteration.
    pub static_graph: bool,
    /// Whether the caller broadcasts buffers; only for the logging data.
    pub broadcast_buffers: bool,
    /// Whether to skip buckets whose parameters are all unused.
    pub skip_all_reduce_unused_params: bool,
}

functions! {
    unsafe fn c10d_free(memory: *mut c_void);
    safe fn c10d_copy_text(text: Text) -> *mut c_char;

    unsafe fn c10d_initialize() -> Status;

    unsafe fn c10d_tcp_store_new(host: Text, port: u16, world_size: usize, listen_fd: c_int,
        timeout_ms: i64, out: Out<Store>) -> Status;
    unsafe fn c10d_hash_store_new(out: Out<Store>) -> Status;
    safe fn c10d_file_store_new(path: Text, world_size: c_int, out: Out<Store>) -> Status;
    safe fn c10d_prefix_store_new(prefix: Text, store: &Store, out: Out<Store>) -> Status;
    safe fn c10d_store_clone(store: &Store, out: Out<Store>) -> Status;
    safe fn c10d_store_set(store: &Store, key: Text, value: Slice<u8>) -> Status;
    safe fn c10d_store_append(store: &Store, key: Text, value: Slice<u8>) -> Status;
    safe fn c10d_store_get(store: &Store, key: Text, timeout_ms: i64, value: Out<u8>,
        length: &mut usize) -> Status;
    unsafe fn c10d_store_multi_get(store: &Store, keys: Slice<Text>, timeout_ms: i64,
        lengths: *mut usize, values: Out<u8>, length: &mut usize) -> Status;
    safe fn c10d_store_multi_set(store: &Store, keys: Slice<Text>, values: Slice<Slice<u8>>)
        -> Status;
    safe fn c10d_store_wait(store: &Store, keys: Slice<Text>, timeout_ms: i64) -> Status;
    safe fn c10d_store_compare_set(store: &Store, key: Text, expected: Slice<u8>,
        desired: Slice<u8>, value: Out<u8>, length: &mut usize) -> Status;
    safe fn c10d_store_queue_push(store: &Store, key: Text, value: Slice<u8>) -> Status;
    safe fn c10d_store_queue_pop(store: &Store, key: Text, timeout_ms: i64, value: Out<u8>,
        length: &mut usize) -> Status;
    safe fn c10d_store_queue_len(store: &Store, key: Text, out: &mut i64) -> Status;
    safe fn c10d_store_delete_key(store: &Store, key: Text, out: &mut bool) -> Status;
    safe fn c10d_store_num_keys(store: &Store, out: &mut i64) -> Status;
    safe fn c10d_store_check(store: &Store, key: Text, out: &mut bool) -> Status;
    safe fn c10d_store_add(store: &Store, key: Text, amount: i64, out: &mut i64) -> Status;

    safe fn c10d_process_group_new(store: &Store, rank: c_int, world_size: c_int,
        out: Out<ProcessGroup>) -> Status;
    safe fn c10d_process_group_add_gloo(group: &ProcessGroup, names: Slice<Text>,
        are_interfaces: bool, shared_memory: bool, name: c_int, timeout_ms: i64,
        join_timeout_ms: i64) -> Status;
    safe fn c10d_process_group_no_shared_memory(group: &ProcessGroup) -> *const c_char;
    safe fn c10d_process_group_lost_peer(group: &ProcessGroup, first: c_int, age_ms: i64,
        out: &mut c_int) -> Status;
    safe fn c10d_process_group_fail_operations_with(group: &ProcessGroup, rank: c_int) -> Status;
    safe fn c10d_process_group_is_busy(group: &ProcessGroup, out: &mut bool) -> Status;
    safe fn c10d_process_group_fail(group: &ProcessGroup) -> Status;
    safe fn c10d_process_group_progress(group: &ProcessGroup, out: &mut Progress) -> Status;
    safe fn c10d_process_group_abort(group: &ProcessGroup) -> Status;
    safe fn c10d_probe_shared_memory(probe: extern "C" fn());
    safe fn c10d_allocate_tensor(group: &ProcessGroup, size: Slice<i64>, like: &Tensor,
        out: Out<Tensor>) -> Status;

    safe fn c10d_start(group: &ProcessGroup, operation: u8, outputs: Tensors, inputs: Tensors,
        call: Call, out: Out<Work>) -> Status;
    safe fn c10d_all_to_all_single(group: &ProcessGroup, output: &Tensor, input: &Tensor,
        output_splits: Slice<i64>, input_splits: Slice<i64>, call: Call,
        out: Out<Work>) -> Status;
    safe fn c10d_monitored_barrier(group: &ProcessGroup, timeout_ms: i64,
        wait_all_ranks: bool) -> Status;
    safe fn c10d_broadcast_coalesced(group: &ProcessGroup, tensors: Tensors, buffer_size: usize,
        root: c_int) -> Status;
    unsafe fn c10d_batch(group: &ProcessGroup, messages: *const Message, count: usize,
        out: *mut *mut Work) -> Status;
    safe fn c10d_work_wait(work: &Work, timeout_ms: i64) -> Status;
    safe fn c10d_work_is_completed(work: &Work, out: &mut bool) -> Status;
    safe fn c10d_work_source_rank(work: &Work, out: &mut c_int) -> Status;

    #[cfg(feature = "cuda")]
    safe fn c10d_process_group_add_nccl(group: &ProcessGroup, device_index: c_int,
        timeout_ms: i64) -> Status;

    safe fn c10d_grad_bucket_index(bucket: &GradBucket) -> usize;
    safe fn c10d_grad_bucket_is_last(bucket: &GradBucket) -> bool;
    safe fn c10d_grad_bucket_buffer(bucket: &GradBucket, out: Out<Tensor>) -> Status;
    safe fn c10d_grad_bucket_set_buffer(bucket: &GradBucket, buffer: &Tensor) -> Status;
    safe fn c10d_grad_bucket_len(bucket: &GradBucket) -> usize;
    unsafe fn c10d_grad_bucket_gradients(bucket: &GradBucket, out: *mut *mut Tensor) -> Status;
    unsafe fn c10d_grad_bucket_parameters(bucket: &GradBucket, out: *mut *mut Tensor) -> Status;

    safe fn c10d_verify_params(group: &ProcessGroup, parameters: Tensors) -> Status;
    unsafe fn c10d_reducer_new(group: &ProcessGroup, parameters: Tensors, names: *const Text,
        sparse: *const bool, module_name: Text, bucket_bytes: *const usize, buckets: usize, options: &ReducerOptions,
        out: Out<Reducer>) -> Status;
    safe fn c10d_reducer_expects_gradients(reducer: &Reducer, out: &mut bool) -> Status;
    safe fn c10d_is_in_reducer(parameter: &Tensor) -> bool;
    safe fn c10d_reducer_prepare_for_forward(reducer: &Reducer) -> Status;
    safe fn c10d_reducer_rebuild_buckets(reducer: &Reducer, out: &mut bool) -> Status;
    unsafe fn c10d_reducer_buckets(reducer: &Reducer, indices: *mut usize, buckets: *mut usize) -> Status;
    safe fn c10d_reducer_prepare_for_backward(reducer: &Reducer, outputs: Tensors) -> Status;
    safe fn c10d_reducer_expect_no_gradients(reducer: &Reducer) -> Status;
    unsafe fn c10d_reducer_missing(reducer: &Reducer, indices: *mut usize, len: &mut usize) -> Status;
    safe fn c10d_reducer_sink(reducer: &Reducer, outputs: Tensors) -> Status;
    safe fn c10d_reducer_needs_sink(reducer: &Reducer) -> bool;
    safe fn c10d_reducer_logged_text(reducer: &Reducer, name: Text, text: Out<c_char>) -> Status;
    safe fn c10d_reducer_logged_number(reducer: &Reducer, name: Text, number: &mut i64) -> Status;
    unsafe fn c10d_reducer_register_comm_hook(reducer: &Reducer, name: Text, hook: &CommHook,
        context: *mut c_void) -> Status;
    safe fn c10d_reducer_compute_in(reducer: &Reducer, like: &Tensor) -> Status;
    safe fn c10d_parameter_set_data(parameter: &Tensor, data: &Tensor, exchanges: bool) -> Status;
    safe fn c10d_reducer_set_uneven_input_join(reducer: &Reducer) -> Status;
    safe fn c10d_reducer_set_forward_pass_work(reducer: &Reducer, work: Option<&Work>,
        use_static_world_size: bool) -> Status;
    safe fn c10d_reducer_shadow_backward(reducer: &Reducer) -> Status;
    unsafe fn c10d_bucket_order(parameters: Tensors, order: *mut usize, len: &mut usize) -> Status;
    safe fn c10d_set_bucket_order(parameters: Tensors) -> Status;

    safe fn c10d_tensor_backward(tensor: &Tensor) -> Status;
    safe fn c10d_is_checkpoint_valid() -> bool;
    safe fn c10d_graph_end_new(tensor: &Tensor, out: Out<GraphEnd>) -> Status;
    unsafe fn c10d_backward(ends: *const &GraphEnd, gradients: Tensors, keep_graph: bool) -> Status;
    unsafe fn c10d_hook_gradients(leaves: Tensors, inputs: Tensors, call: extern "C" fn(*mut c_void,
        *mut *mut Tensor, bool, *mut *mut Tensor) -> Status, context: *mut c_void,
        drop: Callback) -> Status;
    unsafe fn c10d_before_backward(output: &Tensor, call: Hook, context: *mut c_void,
        drop: Callback) -> Status;
    unsafe fn c10d_after_accumulation(leaf: &Tensor, call: Hook, context: *mut c_void,
        drop: Callback) -> Status;
    unsafe fn c10d_after_backward(inputs: Tensors, call: Hook, context: *mut c_void,
        drop: Callback) -> Status;
    unsafe fn c10d_at_end_of_backward(call: Hook, context: *mut c_void, drop: Callback) -> Status;
    safe fn c10d_in_backward() -> bool;
    safe fn c10d_free_storage(tensor: &Tensor, message: Text, bytes: &mut usize,
        memory: Out<Memory>) -> Status;
    safe fn c10d_allocate_storage(tensor: &Tensor, bytes: usize, from: Option<&Memory>) -> Status;
    safe fn c10d_version(tensor: &Tensor) -> i64;
    unsafe fn c10d_thread_state_new(out: Out<ThreadState>) -> Status;
    unsafe fn c10d_thread_state_run(state: &ThreadState, body: Callback,
        context: *mut c_void) -> Status;

    safe fn c10d_autocast_enter(cuda: bool, kind: i32, previous: &mut Autocast) -> Status;
    safe fn c10d_autocast_leave(cuda: bool, previous: &Autocast) -> Status;
    safe fn c10d_cuda_autocast_enabled() -> bool;
    safe fn c10d_non_finite_check_and_unscale(gradients: Tensors, found_inf: &Tensor,
        inv_scale: &Tensor) -> Status;

    safe fn c10d_set_cudnn_deterministic(enabled: bool);

    safe fn c10d_profiler_start(cuda: bool) -> Status;
    unsafe fn c10d_profiler_stop(path: *const c_char) -> Status;
    unsafe fn c10d_record_function(name: Text, body: Callback, context: *mut c_void) -> Status;
    unsafe fn c10d_count_synchronizations(body: Callback, context: *mut c_void,
        count: &mut i64) -> Status;

    safe fn c10d_stream_from_pool(device: i32, out: &mut Stream) -> Status;
    safe fn c10d_current_stream(device: i32, out: &mut Stream) -> Status;
    safe fn c10d_exchange_stream(next: Stream, previous: &mut Stream) -> Status;
    safe fn c10d_record_stream(tensor: &Tensor, user: Stream) -> Status;
    safe fn c10d_event_new(on: Stream, timing: bool, out: Out<Event>) -> Status;
    safe fn c10d_event_block(event: &Event, waiting: Stream) -> Status;
    safe fn c10d_event_query(event: &Event, out: &mut bool) -> Status;
    safe fn c10d_event_synchronize(event: &Event) -> Status;
    safe fn c10d_event_elapsed(begin: &Event, end: &Event, milliseconds: &mut f64) -> Status;
    safe fn c10d_event_after_gradients(leaves: Tensors, device: i32, out: Out<Event>) -> Status;
    safe fn c10d_forget_gradients(leaves: Tensors) -> Status;

    safe fn c10d_set_cuda_device(device: i32) -> Status;
    safe fn c10d_exchange_cuda_device(device: i32, previous: &mut i32) -> Status;
    safe fn c10d_restore_cuda_device(device: i32) -> Status;

    safe fn c10d_pretend_cuda() -> bool;
    safe fn c10d_take_cuda_calls() -> Calls;

    unsafe fn c10d_exchange_cpu_device(device: i32) -> i32;
    unsafe fn c10d_cpu_memory(device: i32) -> Bytes;
    unsafe fn c10d_reset_cpu_peak(device: i32);
    safe fn c10d_cpu_device_of(tensor: &Tensor) -> i32;
    safe fn c10d_cuda_memory(device: i32, out: &mut Bytes) -> Status;
    safe fn c10d_reset_cuda_peak(device: i32) -> Status;

    safe fn c10d_rng_state(cuda_device: i32, out: Out<Tensor>) -> Status;
    safe fn c10d_set_rng_state(cuda_device: i32, state: &Tensor) -> Status;
    unsafe fn c10d_randperm(n: i64, count: i64, seed: Option<&u64>, out: *mut i64) -> Status;
    unsafe fn c10d_randint(n: i64, count: i64, seed: Option<&u64>, out: *mut i64) -> Status;
    unsafe fn c10d_multinomial(weights: *const f64, n: i64, count: i64, replacement: bool,
        seed: Option<&u64>, out: *mut i64) -> Status;

    safe fn c10d_arithmetic(tensor: &Tensor, operation: u8, a: &Tensor, b: &Tensor,
        number: f64) -> Status;
    safe fn c10d_add_scaled(tensor: &Tensor, other: &Tensor, alpha: f64, out: Out<Tensor>) -> Status;
    safe fn c10d_copy(tensor: &Tensor, out: Out<Tensor>) -> Status;
    safe fn c10d_norm(tensor: &Tensor, p: f64, dims: Slice<i64>, out: Out<Tensor>) -> Status;

    unsafe fn c10d_foreach(operation: u8, sources: Tensors, first: Tensors, second: Tensors,
        numbers: Slice<f64>, out: *mut *mut Tensor) -> Status;
    safe fn c10d_foreach_mul_tensor(targets: Tensors, factor: &Tensor) -> Status;
    safe fn c10d_unflatten_into(flat: &Tensor, targets: Tensors, add: bool) -> Status;

    safe fn c10d_randn(tensors: Tensors, seed: u64) -> Status;
    safe fn c10d_batch_norm_backward_reduce(gradient: &Tensor, input: &Tensor, mean: &Tensor,
        var: &Tensor, eps: f64, sum: &Tensor, sum_normalized: &Tensor) -> Status;
    safe fn c10d_set_grad(tensor: &Tensor, gradient: &Tensor) -> Status;
    safe fn c10d_clear_grad(tensor: &Tensor) -> Status;
    safe fn c10d_grad_enabled() -> bool;
    safe fn c10d_is_plain(tensor: &Tensor) -> bool;
    safe fn c10d_is_view(tensor: &Tensor) -> bool;
    safe fn c10d_has_overlap(tensor: &Tensor) -> bool;
    safe fn c10d_tensor_identity(tensor: &Tensor) -> *const c_void;
    safe fn c10d_exclusive_floats(tensor: &Tensor) -> *mut f32;
}
