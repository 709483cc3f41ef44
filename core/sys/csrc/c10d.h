// The types of the C ABI over libtorch's distributed engine (c10d).
//
// Its functions are in the extern "C" part of each source file. ../src/ffi.rs declares them and the types for
// Rust, and says what fields mean; the safe function that calls each one says what it is for.
//
// Every function that can fail returns a c10d_status; no exception leaves it. The caller frees messages and byte
// strings with c10d_free, and every handle with its own function. A `c10d_tensor*` is an `at::Tensor*`, the same
// pointer that torch-sys calls `C_tensor*`. Tensors are borrowed for the call; the engine takes a reference of its own
// if it needs one for longer. An `out` for a tensor gets the address of a new one, which the caller owns.
#pragma once

#include <cstddef>
#include <cstdint>

typedef void c10d_tensor;

// A list that lives through the call.
template <typename T>
struct c10d_slice {
  const T* first;
  size_t count;
};
typedef c10d_slice<c10d_tensor*> c10d_tensors;

// The kind of an exception; ffi.rs says what each means, and relies on there being no other.
enum c10d_error_kind {
  C10D_OTHER = 0,
  C10D_CONNECTION = 1,
  C10D_TIMEOUT = 2,
  C10D_MISUSE = 3,
  C10D_UNFINISHED = 4,
};

struct c10d_status {
  char* message;
  c10d_error_kind kind;
};

struct c10d_progress {
  int64_t begun;
  int64_t finished;
};

// How an operation runs. It keeps the memory that its tensors have now, whatever happens to them;
// they show the result only if they still have that memory.
struct c10d_call {
  // Negative for the group's.
  int64_t timeout_ms;
  // Whether the caller goes on meanwhile; otherwise it is about to wait.
  bool async;
  // For an operation that has one: the rank from or to which it goes, the number of the reduction, the tag of the
  // message, and the number of virtual ranks.
  int root;
  uint8_t op;
  int tag;
  int virtual_ranks;
};

// What c10d_start does.
enum {
  C10D_ALL_REDUCE, C10D_BROADCAST, C10D_REDUCE, C10D_ALL_GATHER, C10D_ALL_GATHER_INTO_TENSOR, C10D_ALL_GATHER_PARTS,
  C10D_GATHER, C10D_SCATTER, C10D_REDUCE_SCATTER, C10D_REDUCE_SCATTER_TENSOR, C10D_REDUCE_SCATTER_PARTS, C10D_ADD_ROWS,
  C10D_ALL_TO_ALL, C10D_BARRIER, C10D_SEND, C10D_RECV, C10D_RECV_ANY,
};

struct c10d_message {
  c10d_tensor* tensor;
  int peer;
  int tag;
  bool is_send;
};

struct c10d_grad_bucket;

// The functions of a communication hook. The message of a failure is from c10d_copy_text.
struct c10d_comm_hook {
  // Starts the exchange of a bucket, which is borrowed for the call. Sets `*pending` to what `finish` will be given.
  c10d_status (*start)(void* context, c10d_grad_bucket* bucket, void** pending);
  // Waits for the exchange and puts a new tensor into `*result`. Takes ownership of `pending`.
  // Called for one bucket after the other, in order, on the thread of the backward pass.
  c10d_status (*finish)(void* pending, c10d_tensor** result);
  // Abandons an exchange that will not be finished.
  void (*drop_pending)(void* pending);
  void (*drop)(void* context);
};

struct c10d_reducer_options {
  bool limit_first_buckets;
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  bool static_graph;
  bool broadcast_buffers;
  bool skip_all_reduce_unused_params;
};

// Gets the leaves' gradients, borrowed, null for a leaf without one, and whether to keep the graph. Puts a new tensor,
// or null, into `input_gradients` for each input. The message of a failure is from c10d_copy_text.
typedef c10d_status (*c10d_gradient_hook)(
    void* context, c10d_tensor** gradients, bool keep_graph, c10d_tensor** input_gradients);
// The message of a failure, which ends the backward pass, is from c10d_copy_text.
typedef c10d_status (*c10d_backward_hook)(void* context);
// Called with a hook's `context` once the graph that leads to the hook is gone.
typedef void (*c10d_drop)(void* context);

// What autocast was set to on a thread: whether it is on, and a c10::ScalarType.
struct c10d_autocast {
  bool enabled;
  int32_t kind;
};

// A c10::Stream of CUDA device `device`. There is a fixed number; none is ever freed.
struct c10d_stream {
  int64_t id;
  int32_t device;
};

// Never below 0: each block is freed once, after it was allocated.
struct c10d_bytes {
  size_t live;
  size_t peak;
};

struct c10d_cuda_calls {
  uint64_t contexts;
  size_t events;
  size_t waits;
};

// How many CPU devices, parts of the CPU's memory, can be counted separately; every block is charged to
// the device that is current on the thread that allocates it, initially device 0. The number after
// the last stands for none of them: the memory of a host, which has devices beside it.
enum { C10D_CPU_DEVICES = 64, C10D_HOST = C10D_CPU_DEVICES };

// What c10d_arithmetic does.
enum {
  C10D_ADD, C10D_MUL, C10D_DIV, C10D_CLAMP_MIN, C10D_CLAMP_MAX, C10D_POW, C10D_LERP, C10D_ADD_SCALED, C10D_ADDCMUL,
  C10D_ADDCDIV, C10D_ADD_PRODUCT,
};

// What c10d_foreach does. The numbers are one for all tensors, or, if the name ends in NUMBERS, one for each.
enum {
  C10D_FOREACH_ADD_NUMBER, C10D_FOREACH_ADD_NUMBERS, C10D_FOREACH_MUL_NUMBER, C10D_FOREACH_MUL_NUMBERS,
  C10D_FOREACH_DIV_NUMBERS, C10D_FOREACH_CLAMP_MIN, C10D_FOREACH_CLAMP_MAX, C10D_FOREACH_SQRT,
  C10D_FOREACH_RECIPROCAL, C10D_FOREACH_NEG, C10D_FOREACH_NORM, C10D_FOREACH_MUL, C10D_FOREACH_DIV,
  C10D_FOREACH_MAXIMUM, C10D_FOREACH_ADD_SCALED, C10D_FOREACH_LERP, C10D_FOREACH_ADDCMUL,
  C10D_FOREACH_ADDCDIV, C10D_FOREACH_ADDCDIV_NUMBERS,
};
