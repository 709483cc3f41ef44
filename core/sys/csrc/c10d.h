// The C ABI over libtorch's distributed engine (c10d).
//
// Every function that can fail returns a c10d_status; no exception leaves it. The caller frees
// messages and byte strings with c10d_free, and every handle with its own function. A
// `c10d_tensor*` is an `at::Tensor*`, the same pointer that torch-sys calls `C_tensor*`. Tensors
// are borrowed for the call; the engine takes a reference of its own if it needs one for longer.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

typedef struct c10d_store c10d_store;
typedef struct c10d_process_group c10d_process_group;
typedef struct c10d_work c10d_work;
typedef struct c10d_reducer c10d_reducer;
typedef struct c10d_grad_bucket c10d_grad_bucket;
typedef struct c10d_graph_end c10d_graph_end;
typedef struct c10d_thread_state c10d_thread_state;
typedef struct c10d_event c10d_event;
typedef struct c10d_memory c10d_memory;
typedef void c10d_tensor;

// The kind of an exception; error.rs says what each means.
typedef enum {
  C10D_OTHER = 0,
  C10D_CONNECTION = 1,
  C10D_TIMEOUT = 2,
  C10D_MISUSE = 3,
  C10D_UNFINISHED = 4,
} c10d_error_kind;

typedef struct {
  // Null for success.
  char* message;
  c10d_error_kind kind;
} c10d_status;

void c10d_free(void* memory);
// A copy to be freed with c10d_free, for the messages of callbacks.
char* c10d_copy_text(const char* text);

// --- initialize.cpp: what `import torch.distributed` does in Python ---

c10d_status c10d_initialize(void);

// --- store.cpp: Store.hpp, TCPStore.hpp, HashStore.hpp, PrefixStore.hpp ---

// `listen_fd` >= 0 makes this process the server, on that bound and listening socket.
c10d_status c10d_tcp_store_new(
    const char* host, uint16_t port, size_t world_size, int listen_fd, int64_t timeout_ms, c10d_store** out);
c10d_status c10d_hash_store_new(c10d_store** out);
c10d_status c10d_prefix_store_new(const char* prefix, const c10d_store* store, c10d_store** out);
// Another connection to the same server, for another thread.
c10d_status c10d_store_clone(const c10d_store* store, c10d_store** out);
c10d_status c10d_store_set(const c10d_store* store, const char* key, const uint8_t* value, size_t length);
c10d_status c10d_store_append(const c10d_store* store, const char* key, const uint8_t* value, size_t length);
// Waits at most `timeout_ms` for the key. `*value` is to be freed with c10d_free.
c10d_status c10d_store_get(
    const c10d_store* store, const char* key, int64_t timeout_ms, uint8_t** value, size_t* length);
// Waits at most `timeout_ms` for all of the keys.
c10d_status c10d_store_wait(const c10d_store* store, const char** keys, size_t count, int64_t timeout_ms);
// Sets the key to `desired` if it is `expected`, or if it is not set and `expected` is empty. The
// value afterwards, or `expected` if the key is not set, is to be freed with c10d_free.
c10d_status c10d_store_compare_set(
    const c10d_store* store,
    const char* key,
    const uint8_t* expected,
    size_t expected_length,
    const uint8_t* desired,
    size_t desired_length,
    uint8_t** value,
    size_t* length);
c10d_status c10d_store_delete_key(const c10d_store* store, const char* key, bool* out);
// How many keys the whole store has, whatever the prefix.
c10d_status c10d_store_num_keys(const c10d_store* store, int64_t* out);
c10d_status c10d_store_check(const c10d_store* store, const char* key, bool* out);
c10d_status c10d_store_add(const c10d_store* store, const char* key, int64_t amount, int64_t* out);
void c10d_store_free(c10d_store* store);

// --- process_group.cpp: ProcessGroup.hpp, ProcessGroupGloo.hpp ---

c10d_status c10d_process_group_new(const c10d_store* store, int rank, int world_size, c10d_process_group** out);
// Gloo listens on each of `names`: network interfaces, or host names. With `shared_memory`, ranks of
// one host exchange through it (shared_memory/exchange.hpp); messages then call this rank `name`.
c10d_status c10d_process_group_add_gloo(
    c10d_process_group* group,
    const char** names,
    size_t count,
    bool are_interfaces,
    bool shared_memory,
    int name,
    int64_t timeout_ms);
// Null if the group exchanges through shared memory, or why it does not. Borrowed from the group.
const char* c10d_process_group_no_shared_memory(const c10d_process_group* group);
// The first rank, from `first` on, whose connection has closed although an operation of gloo's that
// needs it began at least `age_ms` ago and is not over; -1 if there is none.
c10d_status c10d_process_group_lost_peer(c10d_process_group* group, int first, int64_t age_ms, int* out);
// Makes all operations of gloo's fail that need this rank and are not over.
c10d_status c10d_process_group_fail_operations_with(c10d_process_group* group, int rank);
// Whether gloo carries out operations, so that freeing the group would wait for them.
c10d_status c10d_process_group_is_busy(c10d_process_group* group, bool* out);
// Makes all operations of gloo's fail, on all ranks, those to come as well.
c10d_status c10d_process_group_fail(c10d_process_group* group);
// For tests: calls `probe` whenever what the other ranks see of this one in shared memory has changed.
void c10d_probe_shared_memory(void (*probe)(void));
// like.new_empty(size), in shared memory if the group has it.
c10d_status c10d_allocate_tensor(
    c10d_process_group* group, const int64_t* size, size_t dimensions, c10d_tensor* like, c10d_tensor** out);
// How many of NCCL's operations have begun, and how many are over, which its watchdog counts a few
// times a second; both -1 at first.
typedef struct {
  int64_t begun;
  int64_t finished;
} c10d_progress;
c10d_status c10d_process_group_progress(c10d_process_group* group, c10d_progress* out);
// Ends what NCCL waits for on the GPU: torch.distributed.distributed_c10d._abort_process_group.
c10d_status c10d_process_group_abort(c10d_process_group* group);
void c10d_process_group_free(c10d_process_group* group);

// --- collectives.cpp: Backend.hpp, Work.hpp, comm.hpp ---

// Each starts an exchange, to be waited for. It keeps the memory that its tensors have now, whatever
// happens to them; only if they still have it, they show the result.

// How an operation runs.
typedef struct {
  // Negative for the group's.
  int64_t timeout_ms;
  // Whether the caller goes on meanwhile; otherwise it is about to wait.
  bool async;
} c10d_call;

// A message to or from `peer`.
typedef struct {
  c10d_tensor* tensor;
  int peer;
  int tag;
  bool is_send;
} c10d_message;

c10d_status c10d_all_reduce(c10d_process_group* group, c10d_tensor* tensor, uint8_t op, c10d_call call, c10d_work** out);
c10d_status c10d_broadcast(c10d_process_group* group, c10d_tensor* tensor, int root, c10d_call call, c10d_work** out);
c10d_status c10d_reduce(
    c10d_process_group* group, c10d_tensor* tensor, int root, uint8_t op, c10d_call call, c10d_work** out);
c10d_status c10d_all_gather(
    c10d_process_group* group, c10d_tensor** outputs, size_t count, c10d_tensor* input, c10d_call call, c10d_work** out);
c10d_status c10d_all_gather_into_tensor(
    c10d_process_group* group, c10d_tensor* output, c10d_tensor* input, c10d_call call, c10d_work** out);
// No outputs on ranks other than the root.
c10d_status c10d_gather(
    c10d_process_group* group,
    c10d_tensor** outputs,
    size_t count,
    c10d_tensor* input,
    int root,
    c10d_call call,
    c10d_work** out);
// No inputs on ranks other than the root.
c10d_status c10d_scatter(
    c10d_process_group* group,
    c10d_tensor* output,
    c10d_tensor** inputs,
    size_t count,
    int root,
    c10d_call call,
    c10d_work** out);
c10d_status c10d_reduce_scatter(
    c10d_process_group* group,
    c10d_tensor* output,
    c10d_tensor** inputs,
    size_t count,
    uint8_t op,
    c10d_call call,
    c10d_work** out);
c10d_status c10d_reduce_scatter_tensor(
    c10d_process_group* group, c10d_tensor* output, c10d_tensor* input, uint8_t op, c10d_call call, c10d_work** out);
// Like c10d_all_gather_into_tensor and c10d_reduce_scatter_tensor of one tensor that for each rank consists
// of the rank's rows of all of these, [ranks, ...], one after the other. Only with shared memory.
c10d_status c10d_all_gather_parts(
    c10d_process_group* group,
    c10d_tensor** outputs,
    c10d_tensor** inputs,
    size_t count,
    c10d_call call,
    c10d_work** out);
c10d_status c10d_reduce_scatter_parts(
    c10d_process_group* group,
    c10d_tensor* output,
    c10d_tensor** inputs,
    size_t count,
    uint8_t op,
    c10d_call call,
    c10d_work** out);
c10d_status c10d_all_to_all(
    c10d_process_group* group,
    c10d_tensor** outputs,
    c10d_tensor** inputs,
    size_t count,
    c10d_call call,
    c10d_work** out);
// Rows per rank; no splits for as many rows of each.
c10d_status c10d_all_to_all_single(
    c10d_process_group* group,
    c10d_tensor* output,
    c10d_tensor* input,
    const int64_t* output_splits,
    size_t output_count,
    const int64_t* input_splits,
    size_t input_count,
    c10d_call call,
    c10d_work** out);
c10d_status c10d_barrier(c10d_process_group* group, c10d_call call, c10d_work** out);
// These two return when all is over.
c10d_status c10d_monitored_barrier(c10d_process_group* group, int64_t timeout_ms, bool wait_all_ranks);
c10d_status c10d_broadcast_coalesced(
    c10d_process_group* group, c10d_tensor** tensors, size_t count, size_t buffer_size, int root);
c10d_status c10d_send(c10d_process_group* group, c10d_tensor* tensor, int destination, int tag, c10d_work** out);
c10d_status c10d_recv(c10d_process_group* group, c10d_tensor* tensor, int source, int tag, c10d_work** out);
c10d_status c10d_recv_any(c10d_process_group* group, c10d_tensor* tensor, int tag, c10d_work** out);
// Starts all of these messages as one. `out` has room for a work of each.
c10d_status c10d_batch(c10d_process_group* group, const c10d_message* messages, size_t count, c10d_work** out);
// Messages have no time limit of their own, so that one for waiting takes its place. Negative for
// the operation's.
c10d_status c10d_work_wait(c10d_work* work, int64_t timeout_ms);
c10d_status c10d_work_is_completed(c10d_work* work, bool* out);
// Where a message came from, once it was waited for.
c10d_status c10d_work_source_rank(c10d_work* work, int* out);
void c10d_work_free(c10d_work* work);

// --- nccl.cpp (feature `cuda`): ProcessGroupNCCL.hpp ---

c10d_status c10d_process_group_add_nccl(c10d_process_group* group, int device_index, int64_t timeout_ms);

// --- comm_hook.cpp: comm.hpp ---

// The functions of a communication hook. The message of a failure is from c10d_copy_text.
typedef struct {
  // Starts the exchange of a bucket, which is borrowed for the call. Sets `*pending` to what
  // `finish` will be given.
  c10d_status (*start)(void* context, c10d_grad_bucket* bucket, void** pending);
  // Waits for the exchange and puts a new tensor into `*result`. Takes ownership of `pending`.
  // Called for one bucket after the other, in order, on the thread of the backward pass.
  c10d_status (*finish)(void* pending, c10d_tensor** result);
  // Abandons an exchange that will not be finished.
  void (*drop_pending)(void* pending);
  void (*drop)(void* context);
} c10d_comm_hook;

size_t c10d_grad_bucket_index(const c10d_grad_bucket* bucket);
bool c10d_grad_bucket_is_last(const c10d_grad_bucket* bucket);
// `*out` is a new tensor that shares the bucket's memory.
c10d_status c10d_grad_bucket_buffer(const c10d_grad_bucket* bucket, c10d_tensor** out);
c10d_status c10d_grad_bucket_set_buffer(c10d_grad_bucket* bucket, c10d_tensor* buffer);
// How many parameters have their gradient in the bucket.
size_t c10d_grad_bucket_len(const c10d_grad_bucket* bucket);
// Fill `out` with c10d_grad_bucket_len new tensors: views into the buffer, or the parameters.
c10d_status c10d_grad_bucket_gradients(const c10d_grad_bucket* bucket, c10d_tensor** out);
c10d_status c10d_grad_bucket_parameters(const c10d_grad_bucket* bucket, c10d_tensor** out);

// --- reducer.cpp: reducer.hpp, logger.hpp ---

struct c10d_reducer_options {
  // Bytes in the bucket that is filled first, and in each of the others.
  int64_t first_bucket_bytes;
  int64_t bucket_bytes;
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  bool static_graph;
  // Only reported in the logging data; the caller broadcasts buffers itself.
  bool broadcast_buffers;
};

c10d_status c10d_verify_params(c10d_process_group* group, c10d_tensor** parameters, size_t count);
c10d_status c10d_reducer_new(
    c10d_process_group* group,
    c10d_tensor** parameters,
    const char** names,
    const bool* sparse,
    size_t count,
    const char* module_name,
    const c10d_reducer_options* options,
    c10d_reducer** out);
c10d_status c10d_reducer_prepare_for_forward(c10d_reducer* reducer);
c10d_status c10d_reducer_rebuild_buckets(c10d_reducer* reducer, bool* out);
c10d_status c10d_reducer_prepare_for_backward(c10d_reducer* reducer, c10d_tensor** outputs, size_t count);
// The parameters whose gradients the last backward pass has not made, if the three above fail with
// C10D_UNFINISHED; otherwise none. `indices` has room for all parameters.
c10d_status c10d_reducer_missing(c10d_reducer* reducer, size_t* indices, size_t* len);
// Passes each output through an identity function whose backward tells the reducer that the
// backward pass has begun.
c10d_status c10d_reducer_sink(c10d_reducer* reducer, c10d_tensor** outputs, size_t count);
bool c10d_reducer_needs_sink(const c10d_reducer* reducer);
// `*text` is to be freed with c10d_free; null if no text of that name is logged.
c10d_status c10d_reducer_logged_text(c10d_reducer* reducer, const char* name, char** text);
c10d_status c10d_reducer_logged_number(c10d_reducer* reducer, const char* name, int64_t* number);
// Runs the communication hook for every bucket, instead of dividing it and summing it over the
// ranks. Takes ownership of `context`, even if it fails.
c10d_status c10d_reducer_register_comm_hook(
    c10d_reducer* reducer, const char* name, const c10d_comm_hook* hook, void* context);
// Notes in the logging data that ranks may have uneven numbers of inputs.
c10d_status c10d_reducer_set_uneven_input_join(c10d_reducer* reducer);
// `work` counts the ranks that still train, as a sum of ones. Gradients are divided by that count,
// or by the size of the group if `use_static_world_size`. Null undoes an earlier call.
c10d_status c10d_reducer_set_forward_pass_work(
    c10d_reducer* reducer, const c10d_work* work, bool use_static_world_size);
// Joins the exchanges of the other ranks' backward passes with zero gradients.
c10d_status c10d_reducer_shadow_backward(c10d_reducer* reducer);
// The positions of parameters in the order in which a reducer's buckets list them. `order` has room
// for `count`; `*len` is 0 if no reducer knows them, or knows the order yet.
c10d_status c10d_bucket_order(c10d_tensor** parameters, size_t count, size_t* order, size_t* len);
// From the next forward pass on, the buckets of the reducers that know these parameters list them in
// this order.
c10d_status c10d_set_bucket_order(c10d_tensor** parameters, size_t count);
// Graphs that lead to the parameters keep what their backward passes need.
void c10d_reducer_free(c10d_reducer* reducer);

// --- autograd.cpp: backward passes, whole and in parts ---

// tensor.backward()
c10d_status c10d_tensor_backward(const c10d_tensor* tensor);

// Gets the leaves' gradients, borrowed, null for a leaf without one, and whether to keep the graph.
// Puts a new tensor, or null, into `input_gradients` for each input. The message of a failure is from
// c10d_copy_text.
typedef c10d_status (*c10d_gradient_hook)(
    void* context, c10d_tensor** gradients, bool keep_graph, c10d_tensor** input_gradients);
typedef void (*c10d_drop)(void* context);

// Where the graph of a tensor ends, which is all that a backward pass needs of the tensor. It does
// not keep the tensor's memory.
c10d_status c10d_graph_end_new(const c10d_tensor* tensor, c10d_graph_end** out);
void c10d_graph_end_free(c10d_graph_end* end);
// torch.autograd.backward(tensors, gradients, retain_graph) for the tensors of these ends. Moves
// the gradients out of their handles, so that each is freed as soon as it has been used.
c10d_status c10d_backward(c10d_graph_end** ends, c10d_tensor** gradients, size_t count, bool keep_graph);
// Replaces each leaf by a tensor with the same data whose graph leads through `call` to the inputs.
// `context` is dropped with that graph.
c10d_status c10d_hook_gradients(
    c10d_tensor** leaves,
    size_t leaf_count,
    c10d_tensor** inputs,
    size_t input_count,
    c10d_gradient_hook call,
    void* context,
    c10d_drop drop);
// This thread's settings: grad mode, autocast, profiler …
c10d_status c10d_thread_state_new(c10d_thread_state** out);
// Calls `body` under that state and restores the thread's own afterwards. `body` must not throw.
c10d_status c10d_thread_state_run(const c10d_thread_state* state, void (*body)(void*), void* context);
void c10d_thread_state_free(c10d_thread_state* state);

// --- backward_hooks.cpp: callbacks during a backward pass and at its end ---

// The message of a failure, which ends the backward pass, is from c10d_copy_text. `context` is dropped
// with the graph that leads to the hook.
typedef c10d_status (*c10d_backward_hook)(void* context);
// tensor.register_hook: before the backward pass of the operation that computed the tensor.
c10d_status c10d_before_backward(c10d_tensor* output, c10d_backward_hook call, void* context, c10d_drop drop);
// After the backward pass of everything computed from the inputs, which this replaces.
c10d_status c10d_after_backward(
    c10d_tensor** inputs, size_t count, c10d_backward_hook call, void* context, c10d_drop drop);
// Variable._execution_engine.queue_callback: at the end of the backward pass that runs on this thread.
c10d_status c10d_at_end_of_backward(c10d_backward_hook call, void* context, c10d_drop drop);
// Whether a backward pass runs on this thread.
bool c10d_in_backward(void);

// --- storage.cpp: freeing the memory of tensors and allocating it again ---

// Takes the memory of this tensor and of all that share it, and returns its size. Reading or writing one
// of them then throws an exception with this message. The memory itself is null where it cannot serve
// another tensor.
c10d_status c10d_free_storage(c10d_tensor* tensor, const char* message, size_t* bytes, c10d_memory** memory);
// Gives them memory again, at least this much, with undefined contents: what `from` holds, if that is
// neither null nor unfit. Versions do not change.
c10d_status c10d_allocate_storage(c10d_tensor* tensor, size_t bytes, c10d_memory* from);
void c10d_memory_free(c10d_memory* memory);
// tensor._version
int64_t c10d_version(const c10d_tensor* tensor);

// --- amp.cpp: mixed precision ---

// What autocast was set to on a thread: whether it is on, and a c10::ScalarType.
typedef struct {
  bool enabled;
  int32_t kind;
} c10d_autocast;

// torch.autocast(…).__enter__(); `kind` is a c10::ScalarType, or -1 for enabled=False.
c10d_status c10d_autocast_enter(bool cuda, int32_t kind, c10d_autocast* previous);
// torch.autocast(…).__exit__()
c10d_status c10d_autocast_leave(bool cuda, const c10d_autocast* previous);
// torch.is_autocast_enabled()
bool c10d_cuda_autocast_enabled(void);
// torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inv_scale)
c10d_status c10d_non_finite_check_and_unscale(
    c10d_tensor** gradients, size_t count, c10d_tensor* found_inf, const c10d_tensor* inv_scale);

// --- backends.cpp: flags of the global context ---

// torch.backends.cudnn.benchmark = enabled
void c10d_set_cudnn_benchmark(bool enabled) noexcept;
// torch.backends.cudnn.deterministic = enabled
void c10d_set_cudnn_deterministic(bool enabled) noexcept;

// --- profiler.cpp: what runs when ---

// torch.profiler.profile(activities=[CPU, CUDA if `cuda`]).start(), on all threads of the process.
c10d_status c10d_profiler_start(bool cuda);
// profile.stop(), then profile.export_chrome_trace(path), unless the path is null.
c10d_status c10d_profiler_stop(const char* path);
// Calls body(context) within torch.profiler.record_function(name).
c10d_status c10d_record_function(const char* name, void (*body)(void*), void* context);

// Calls body(context), in which the host waits for a device's event, within a range of that name.
c10d_status c10d_wait_for_device(void (*body)(void*), void* context);
// Calls body(context). `*count` becomes how often this thread made the host wait for a device
// meanwhile, or would have if its tensors were on one.
c10d_status c10d_count_synchronizations(void (*body)(void*), void* context, int64_t* count);

// --- stream.cpp: streams and events of CUDA devices; c10/core/Stream.h, Event.h ---

// A c10::Stream of CUDA device `device`. There is a fixed number; none is ever freed.
typedef struct {
  int64_t id;
  int32_t device;
} c10d_stream;

// torch.cuda.Stream(device)
c10d_status c10d_stream_from_pool(int32_t device, c10d_stream* out);
// torch.cuda.current_stream(device)
c10d_status c10d_current_stream(int32_t device, c10d_stream* out);
// Makes it the current stream of its device on this thread. The current device stays.
c10d_status c10d_exchange_stream(c10d_stream next, c10d_stream* previous);
// tensor.record_stream(user)
c10d_status c10d_record_stream(c10d_tensor* tensor, c10d_stream user);

// torch.cuda.Event(enable_timing=timing), recorded on the stream.
c10d_status c10d_event_new(c10d_stream on, bool timing, c10d_event** out);
// waiting.wait_event(event)
c10d_status c10d_event_block(const c10d_event* event, c10d_stream waiting);
c10d_status c10d_event_query(const c10d_event* event, bool* out);
c10d_status c10d_event_synchronize(const c10d_event* event);
// begin.elapsed_time(end). Both must have been recorded with timing, and reached.
c10d_status c10d_event_elapsed(const c10d_event* begin, const c10d_event* end, double* milliseconds);
// An event with timing that is recorded anew whenever one of these leaves has got its gradient, until
// c10d_forget_gradients: when a backward pass is over, it is at the end of the leaves' part. An error
// for a leaf with a post-accumulate hook, of which it can have only one.
c10d_status c10d_event_after_gradients(c10d_tensor** leaves, size_t count, int32_t device, c10d_event** out);
c10d_status c10d_forget_gradients(c10d_tensor** leaves, size_t count);
void c10d_event_free(c10d_event* event);

// --- device.cpp: this thread's current CUDA device; c10/core/impl/DeviceGuardImplInterface.h ---

// torch.cuda.set_device(device). Makes a context on it.
c10d_status c10d_set_cuda_device(int32_t device);
// torch.cuda._exchange_device(device). Makes a context on it.
c10d_status c10d_exchange_cuda_device(int32_t device, int32_t* previous);
// torch.cuda._maybe_exchange_device(device): makes none. A device without one becomes current only
// when it is first used.
c10d_status c10d_restore_cuda_device(int32_t device);

// --- pretended_cuda.cpp: devices for tests ---

// What this thread has asked of the devices.
typedef struct {
  // A bit for each device on which there would be a context.
  uint64_t contexts;
  // How many events were recorded.
  int64_t events;
  // How often the host would have waited for a device.
  int64_t waits;
} c10d_cuda_calls;
// For tests: from now on there seem to be CUDA devices. False if there are real ones.
bool c10d_pretend_cuda(void);
// What this thread has asked of them since the last call.
c10d_cuda_calls c10d_take_cuda_calls(void);

// --- coalesced.cpp: many tensors as one ---

// Copies the elements of `flat` into the tensors, one after the other, or adds them.
// torch._foreach_copy_(targets, torch._utils._unflatten_dense_tensors(flat, targets)), or
// torch._foreach_add_. No tensor is empty.
c10d_status c10d_unflatten_into(const c10d_tensor* flat, c10d_tensor** targets, size_t count, bool add);

// --- memory.cpp: bytes per device ---

// Every CPU block is charged to the device that is current on the thread that allocates it.

// How many CPU devices, parts of the CPU's memory, can be counted separately. The number after the last
// stands for none of them: the memory of a host, which has devices beside it.
enum { C10D_CPU_DEVICES = 64, C10D_HOST = C10D_CPU_DEVICES };

// Devices are numbered from 0 to C10D_HOST; a new thread is on device 0.
int32_t c10d_exchange_cpu_device(int32_t device) noexcept;
void c10d_cpu_memory(int32_t device, int64_t* live, int64_t* peak) noexcept;
void c10d_reset_cpu_peak(int32_t device) noexcept;
// The device to which the tensor's block is charged; -1 if the tensor has no such block.
int32_t c10d_cpu_device_of(const c10d_tensor* tensor) noexcept;
c10d_status c10d_cuda_memory(int32_t device, int64_t* live, int64_t* peak);
c10d_status c10d_reset_cuda_peak(int32_t device);

// --- random.cpp: the global generators, and samples drawn from a generator of their own ---

// torch.get_rng_state(); `cuda_device` is -1 for the CPU. `*out` is a new tensor.
c10d_status c10d_rng_state(int32_t cuda_device, c10d_tensor** out);
// torch.set_rng_state(state)
c10d_status c10d_set_rng_state(int32_t cuda_device, const c10d_tensor* state);
// `count` numbers below n into out[0..count], drawn from torch.Generator().manual_seed(seed):
// one torch.randperm(n) after the other
c10d_status c10d_randperm(int64_t n, int64_t count, uint64_t seed, int64_t* out);
// torch.randint(n, …)
c10d_status c10d_randint(int64_t n, int64_t count, uint64_t seed, int64_t* out);
// torch.multinomial(weights[0..n], count, replacement)
c10d_status c10d_multinomial(
    const double* weights, int64_t n, int64_t count, bool replacement, uint64_t seed, int64_t* out);

// --- arithmetic.cpp: tensors and numbers ---

// What c10d_with_number does.
enum { C10D_ADD, C10D_MUL, C10D_DIV, C10D_CLAMP_MIN, C10D_CLAMP_MAX };
// tensor.add_(number), mul_, div_, clamp_min_ or clamp_max_
c10d_status c10d_with_number(c10d_tensor* tensor, uint8_t operation, double number);
// tensor.lerp_(end, weight)
c10d_status c10d_lerp(c10d_tensor* tensor, const c10d_tensor* end, double weight);
// tensor.add(other, alpha=alpha). `*out` is a new tensor.
c10d_status c10d_add_scaled(
    const c10d_tensor* tensor, const c10d_tensor* other, double alpha, c10d_tensor** out);
// tensor.add_(other, alpha=alpha)
c10d_status c10d_add_scaled_(c10d_tensor* tensor, const c10d_tensor* other, double alpha);
// tensor.addcmul_(a, b, value=value)
c10d_status c10d_addcmul(c10d_tensor* tensor, const c10d_tensor* a, const c10d_tensor* b, double value);
// tensor.addcdiv_(a, b, value=value)
c10d_status c10d_addcdiv(c10d_tensor* tensor, const c10d_tensor* a, const c10d_tensor* b, double value);
// tensor.detach().clone(). `*out` is a new tensor.
c10d_status c10d_copy(const c10d_tensor* tensor, c10d_tensor** out);
// tensor.norm(dim=dim, keepdim=True). `*out` is a new tensor.
c10d_status c10d_norm(const c10d_tensor* tensor, int64_t dim, c10d_tensor** out);

// --- foreach.cpp: one operation for a list of tensors, torch._foreach_* ---

// What c10d_foreach_ and c10d_foreach do. The numbers are one for all tensors, or, if the name ends
// in NUMBERS, one for each.
enum {
  C10D_FOREACH_ADD_NUMBER,
  C10D_FOREACH_ADD_NUMBERS,
  C10D_FOREACH_MUL_NUMBER,
  C10D_FOREACH_MUL_NUMBERS,
  C10D_FOREACH_DIV_NUMBERS,
  C10D_FOREACH_CLAMP_MIN,
  C10D_FOREACH_CLAMP_MAX,
  C10D_FOREACH_SQRT,
  C10D_FOREACH_RECIPROCAL,
  C10D_FOREACH_NEG,
  C10D_FOREACH_NORM,
  C10D_FOREACH_MUL,
  C10D_FOREACH_DIV,
  C10D_FOREACH_MAXIMUM,
  C10D_FOREACH_ADD_SCALED,
  C10D_FOREACH_LERP,
  C10D_FOREACH_ADDCMUL,
  C10D_FOREACH_ADDCDIV,
  C10D_FOREACH_ADDCDIV_NUMBERS,
};
// In place. `first` and `second` are null, or lists of `count` tensors.
c10d_status c10d_foreach_(
    uint8_t operation,
    c10d_tensor** targets,
    c10d_tensor** first,
    c10d_tensor** second,
    size_t count,
    const double* numbers,
    size_t number_count);
// `out` is a list of `count` pointers, to which new tensors are written.
c10d_status c10d_foreach(
    uint8_t operation,
    c10d_tensor** sources,
    c10d_tensor** first,
    c10d_tensor** second,
    size_t count,
    const double* numbers,
    size_t number_count,
    c10d_tensor** out);
// torch._foreach_mul_(targets, factor)
c10d_status c10d_foreach_mul_tensor(c10d_tensor** targets, size_t count, const c10d_tensor* factor);

// --- tensor.cpp: what tch lacks ---

// For each tensor: tensor.copy_(torch.randn(tensor.shape, dtype=tensor.dtype)), drawn one after the
// other from torch.Generator().manual_seed(seed).
c10d_status c10d_randn(c10d_tensor** tensors, size_t count, uint64_t seed);
// The sums from which a batch norm's gradients are computed: for each channel of images [N, C, …],
// the sum of the gradient, and the sum of the gradient times the input normalised by `mean` and
// `var`. Assigns to the last two tensors, which may be undefined.
c10d_status c10d_batch_norm_backward_reduce(
    const c10d_tensor* gradient,
    const c10d_tensor* input,
    const c10d_tensor* mean,
    const c10d_tensor* var,
    double eps,
    c10d_tensor* sum,
    c10d_tensor* sum_normalized);
// tensor.grad = gradient
c10d_status c10d_set_grad(c10d_tensor* tensor, const c10d_tensor* gradient);
// tensor.grad = None
c10d_status c10d_clear_grad(c10d_tensor* tensor);
// torch.is_grad_enabled()
bool c10d_grad_enabled(void);
// Equal for two handles exactly if they are the same tensor.
const void* c10d_tensor_identity(const c10d_tensor* tensor);
// Whether its memory holds its real numbers one after the other.
bool c10d_is_plain(const c10d_tensor* tensor);
// Whether elements share memory, as after `expand`.
bool c10d_has_overlap(const c10d_tensor* tensor);
// The floats of a contiguous tensor on the CPU; null for any other tensor, and for one that has a
// second handle or a view.
float* c10d_exclusive_floats(c10d_tensor* tensor) noexcept;
}
