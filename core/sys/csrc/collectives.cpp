#include "guard.hpp"
#include "handles.hpp"
#include "serial_process_group.hpp"
#include "shared_data.hpp"

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <algorithm>
#include <utility>

using std::chrono::milliseconds;

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

c10d_sys::SerialProcessGroup& serial(c10d_process_group* handle) {
  // c10d_process_group_new makes no other.
  return static_cast<c10d_sys::SerialProcessGroup&>(*handle->group);
}

milliseconds limit(int64_t timeout_ms, milliseconds none) { return timeout_ms < 0 ? none : milliseconds(timeout_ms); }

template <typename Options>
Options options_of(c10d_call call) {
  Options options;
  options.timeout = limit(call.timeout_ms, c10d::kUnsetTimeout);
  options.asyncOp = call.async;
  return options;
}

template <typename Options>
Options rooted(c10d_call call) {
  auto options = options_of<Options>(call);
  options.rootRank = call.root;
  return options;
}

template <typename Options>
Options reducing(c10d_call call, const Tensors& inputs) {
  auto options = options_of<Options>(call);
  const auto op = static_cast<c10d::ReduceOp::RedOpType>(call.op);
  // gloo would add the bytes, and 2 is not a valid bool in Rust. NCCL's backend does the same.
  const bool is_or = op == c10d::ReduceOp::SUM && inputs.at(0).scalar_type() == at::kBool;
  options.reduceOp = is_or ? c10d::ReduceOp::MAX : op;
  return options;
}

// What is exchanged for a tensor. Backends read and write as many numbers as a tensor has, one after
// the other from the first. With gaps between them, or elements that share memory, they would touch
// memory that is not the tensor's; and they know nothing of numbers that are only marked as negated.
at::Tensor exchanged(c10d_tensor* pointer) {
  const auto& tensor = c10d_sys::tensor(pointer);
  TORCH_CHECK_VALUE(tensor.defined(), "Tensors must be defined");
  if (tensor.layout() != at::kStrided) {
    return tensor;
  }
  TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), "Tensors must be contiguous");
  TORCH_CHECK_VALUE(!tensor.is_conj() && !tensor.is_neg(), "Conjugate and negative views must be resolved");
  // What NCCL knows of the memory of GPUs, it knows by its owner, CUDA's allocator.
  return tensor.is_cpu() ? c10d_sys::independent(tensor) : tensor.tensor_data();
}

Tensors exchanged(c10d_tensors list) {
  Tensors result;
  for (size_t i = 0; i < list.count; ++i) {
    result.push_back(exchanged(list.first[i]));
  }
  return result;
}

c10d_sys::Gloo& in_shared_memory(c10d_process_group* handle) {
  TORCH_CHECK_VALUE(handle->exchange != nullptr, "the group does not exchange through shared memory");
  return *handle->gloo;
}

} // namespace

extern "C" {

// Starts the operation with this number. all_reduce, broadcast and reduce change their one input.
c10d_status c10d_start(
    c10d_process_group* handle, uint8_t operation, c10d_tensors outputs, c10d_tensors inputs, c10d_call call,
    c10d_work** out) {
  return guarded([&] {
    auto to = exchanged(outputs);
    auto from = exchanged(inputs);
    std::vector<Tensors> to_list{to};
    std::vector<Tensors> from_list{from};
    *out = new c10d_work{serial(handle).start([&](c10d::Backend& backend) -> WorkPtr {
      switch (operation) {
        case C10D_ALL_REDUCE: return backend.allreduce(from, reducing<c10d::AllreduceOptions>(call, from));
        case C10D_BROADCAST: return backend.broadcast(from, rooted<c10d::BroadcastOptions>(call));
        case C10D_REDUCE: {
          auto options = reducing<c10d::ReduceOptions>(call, from);
          options.rootRank = call.root;
          return backend.reduce(from, options);
        }
        case C10D_ALL_GATHER: return backend.allgather(to_list, from, options_of<c10d::AllgatherOptions>(call));
        case C10D_ALL_GATHER_INTO_TENSOR:
          return backend._allgather_base(to.at(0), from.at(0), options_of<c10d::AllgatherOptions>(call));
        case C10D_ALL_GATHER_PARTS:
          return in_shared_memory(handle).allgather_parts(to, from, options_of<c10d::AllgatherOptions>(call));
        case C10D_GATHER:
          to_list.resize(to.empty() ? 0 : 1);
          return backend.gather(to_list, from, rooted<c10d::GatherOptions>(call));
        case C10D_SCATTER:
          from_list.resize(from.empty() ? 0 : 1);
          return backend.scatter(to, from_list, rooted<c10d::ScatterOptions>(call));
        case C10D_REDUCE_SCATTER:
          return backend.reduce_scatter(to, from_list, reducing<c10d::ReduceScatterOptions>(call, from));
        case C10D_REDUCE_SCATTER_TENSOR:
          return backend._reduce_scatter_base(to.at(0), from.at(0), reducing<c10d::ReduceScatterOptions>(call, from));
        case C10D_REDUCE_SCATTER_PARTS:
          return in_shared_memory(handle).reduce_scatter_parts(
              to.at(0), from, reducing<c10d::ReduceScatterOptions>(call, from));
        case C10D_ADD_ROWS:
          return in_shared_memory(handle).add_rows(
              from.at(0), call.virtual_ranks, options_of<c10d::AllreduceOptions>(call));
        case C10D_ALL_TO_ALL: return backend.alltoall(to, from, options_of<c10d::AllToAllOptions>(call));
        case C10D_BARRIER: return backend.barrier(options_of<c10d::BarrierOptions>(call));
        case C10D_SEND: return backend.send(from, call.root, call.tag);
        case C10D_RECV: return backend.recv(to, call.root, call.tag);
        case C10D_RECV_ANY: return backend.recvAnysource(to, call.tag);
        default: TORCH_CHECK(false, "no operation has the number ", static_cast<int>(operation));
      }
    })};
  });
}

c10d_status c10d_all_to_all_single(
    c10d_process_group* handle, c10d_tensor* output, c10d_tensor* input, c10d_slice<int64_t> output_splits,
    c10d_slice<int64_t> input_splits, c10d_call call, c10d_work** out) {
  return guarded([&] {
    Tensors both{exchanged(output), exchanged(input)};
    std::vector<int64_t> received(output_splits.first, output_splits.first + output_splits.count);
    std::vector<int64_t> sent(input_splits.first, input_splits.first + input_splits.count);
    // Gloo does not check this, and the sum of large ones may wrap around.
    const auto are_rows_of = [](const at::Tensor& whole, const std::vector<int64_t>& parts) {
      return std::all_of(parts.begin(), parts.end(), [&](int64_t rows) { return rows >= 0 && rows <= whole.size(0); });
    };
    TORCH_CHECK_VALUE(
        both[0].scalar_type() == both[1].scalar_type() && are_rows_of(both[0], received) && are_rows_of(both[1], sent),
        "all_to_all_single needs tensors of one kind, and numbers of rows that they have");
    const auto options = options_of<c10d::AllToAllOptions>(call);
    *out = new c10d_work{serial(handle).start([&](c10d::Backend& backend) {
      return backend.alltoall_base(both[0], both[1], received, sent, options);
    })};
  });
}

c10d_status c10d_monitored_barrier(c10d_process_group* handle, int64_t timeout_ms, bool wait_all_ranks) {
  return guarded([&] {
    c10d::BarrierOptions options;
    options.timeout = milliseconds(timeout_ms);
    // It cannot be started without waiting for it: the group stays locked until every rank has arrived.
    serial(handle).start([&](c10d::Backend& backend) { backend.monitoredBarrier(options, wait_all_ranks); });
  });
}

c10d_status c10d_broadcast_coalesced(c10d_process_group* handle, c10d_tensors list, size_t buffer_size, int root) {
  return guarded([&] {
    // A leaf that requires a gradient may not be written to; its detached twin shares the memory.
    Tensors detached;
    for (const auto& each : tensors(list)) {
      detached.push_back(each.detach());
    }
    c10d::broadcast_coalesced(handle->group, detached, buffer_size, root);
  });
}

// `out` has room for a work per message.
c10d_status c10d_batch(c10d_process_group* handle, const c10d_message* messages, size_t count, c10d_work** out) {
  return guarded([&] {
    std::vector<Tensors> lists;
    for (size_t i = 0; i < count; ++i) {
      lists.push_back({exchanged(messages[i].tensor)});
    }
    auto works = serial(handle).start([&](c10d::Backend& backend) {
      std::vector<WorkPtr> works;
      const bool together = backend.supportsCoalescing();
      if (together) {
        backend.startCoalescing();
      }
      try {
        for (size_t i = 0; i < count; ++i) {
          const auto& [_, peer, tag, is_send] = messages[i];
          works.push_back(is_send ? backend.send(lists[i], peer, tag) : backend.recv(lists[i], peer, tag));
        }
      } catch (...) {
        // Later operations would become part of it.
        if (together) {
          backend.endCoalescing();
        }
        throw;
      }
      if (together) {
        works.assign(count, backend.endCoalescing());
      }
      return works;
    });
    for (size_t i = 0; i < count; ++i) {
      out[i] = new c10d_work{std::move(works[i])};
    }
  });
}

// Messages have no time limit of their own, so that one for waiting takes its place. A negative
// `timeout_ms` means the operation's own.
c10d_status c10d_work_wait(c10d_work* work, int64_t timeout_ms) {
  auto status = guarded([&] {
    if (work->work) {
      work->work->wait(limit(timeout_ms, kNoTimeout));
    }
  });
  // Work::wait throws a plain c10::Error when the time is over. After an error of a GPU, isCompleted throws as well.
  try {
    if (status.message != nullptr && status.kind == C10D_OTHER && !work->work->isCompleted()) {
      status.kind = C10D_TIMEOUT;
    }
  } catch (...) {
  }
  return status;
}

c10d_status c10d_work_is_completed(c10d_work* work, bool* out) {
  return guarded([&] { *out = !work->work || work->work->isCompleted(); });
}

c10d_status c10d_work_source_rank(c10d_work* work, int* out) {
  return guarded([&] {
    TORCH_CHECK_VALUE(work->work, "the message has no source");
    *out = work->work->sourceRank();
  });
}

void c10d_work_free(c10d_work* work) { delete work; }

} // extern "C"
