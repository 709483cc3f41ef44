#include "gloo.hpp"
#include "shared_memory/virtual_ranks.hpp"

#include <gloo/context.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace c10d_sys {
namespace {

constexpr std::chrono::milliseconds kMoment{1};

Operation operation_of(
    c10d::OpType type, const at::Tensor& tensor, const c10d::ReduceOp& op = c10d::ReduceOp::SUM, int64_t root = 0) {
  return {type, tensor.scalar_type(), op, static_cast<int>(root), static_cast<uint64_t>(tensor.numel())};
}

// Unknown for other transports than TCP.
std::optional<bool> is_connected(gloo::Context& context, int rank) {
  auto* pair = dynamic_cast<gloo::transport::tcp::Pair*>(context.getPair(rank).get());
  return pair == nullptr ? std::nullopt : std::optional<bool>(pair->isConnected());
}

bool has_values_for(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && fold_of(tensor.scalar_type(), op).apply != nullptr;
}

Operation operation_of(c10d::OpType type, const Tensors& tensors, const c10d::ReduceOp& op = c10d::ReduceOp::SUM) {
  auto operation = operation_of(type, tensors.at(0), op);
  operation.count = 0;
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(
        has_values_for(op, tensor) && tensor.is_contiguous() && tensor.scalar_type() == operation.dtype,
        "not all inputs are contiguous tensors of one kind on the CPU");
    operation.count += tensor.numel();
  }
  return operation;
}

// Whether one tensor's values can be copied to the other's.
bool can_copy(const at::Tensor& from, const at::Tensor& to) {
  return to.device().is_cpu() && to.layout() == at::kStrided && to.scalar_type() == from.scalar_type() &&
      to.sizes() == from.sizes();
}

// Whether this is one tensor, and of a kind that the exchange copies.
bool is_copyable(const Tensors& tensors) { return tensors.size() == 1 && has_values_for(c10d::ReduceOp::SUM, tensors[0]); }

Tensors contiguous(Tensors tensors) {
  std::for_each(tensors.begin(), tensors.end(), [](at::Tensor& tensor) { tensor = tensor.contiguous(); });
  return tensors;
}

bool is_dense(const Tensors& tensors, const c10d::ReduceOp& op = c10d::ReduceOp::SUM) {
  return tensors.size() == 1 && has_values_for(op, tensors[0]) && tensors[0].is_non_overlapping_and_dense();
}

} // namespace

int64_t Gloo::checked_rank(int64_t rank) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < getSize(), "rank ", rank, " is none of the ", getSize(), " ranks of this group");
  return rank;
}

WorkPtr Gloo::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const auto operation = operation_of(c10d::OpType::ALLREDUCE, tensors.at(0), options.reduceOp);
  if (exchange_ != nullptr && is_dense(tensors, options.reduceOp)) {
    return start(operation, {tensors, {}}, options, "gloo:all_reduce");
  }
  return leave_to_gloo(operation, [&] { return ProcessGroupGloo::allreduce(tensors, options); });
}

WorkPtr Gloo::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const auto operation = operation_of(c10d::OpType::BROADCAST, tensors.at(0), c10d::ReduceOp::SUM, checked_rank(options.rootRank));
  if (exchange_ != nullptr && is_dense(tensors)) {
    return start(operation, {tensors, {}}, options, "gloo:broadcast");
  }
  return leave_to_gloo(operation, [&] { return ProcessGroupGloo::broadcast(tensors, options); });
}

WorkPtr Gloo::barrier(const c10d::BarrierOptions& options) {
  if (exchange_ == nullptr) {
    return failable(ProcessGroupGloo::barrier(options));
  }
  // Like gloo's, it is over only when everything is that began before it.
  std::vector<ExchangeWork::Prior> prior;
  {
    const std::lock_guard<std::mutex> lock(workMutex_);
    prior.insert(prior.end(), workInProgress_.begin(), workInProgress_.end());
    prior.insert(prior.end(), workQueue_.begin(), workQueue_.end());
  }
  return start({c10d::OpType::BARRIER}, {}, options, "gloo:barrier", std::move(prior));
}

WorkPtr Gloo::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const auto operation = operation_of(c10d::OpType::REDUCE, tensors.at(0), options.reduceOp, checked_rank(options.rootRank));
  if (exchange_ != nullptr && is_dense(tensors, options.reduceOp) && options.reduceOp != c10d::ReduceOp::AVG) {
    return start(operation, {tensors, {}}, options, "gloo:reduce");
  }
  return leave_to_gloo(operation, [&] { return ProcessGroupGloo::reduce(tensors, options); });
}

// Whether this is one list, of a tensor for each rank, to which and from which `like` could be copied.
bool Gloo::has_one_per_rank(const std::vector<Tensors>& lists, const at::Tensor& like) const {
  const auto is_like = [&](const at::Tensor& tensor) { return can_copy(like, tensor); };
  return lists.size() == 1 && lists[0].size() == static_cast<size_t>(getSize()) &&
      std::all_of(lists[0].begin(), lists[0].end(), is_like);
}

WorkPtr Gloo::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const auto operation = operation_of(c10d::OpType::ALLGATHER, inputs.at(0));
  if (exchange_ != nullptr && is_dense(inputs) && has_one_per_rank(outputs, inputs[0])) {
    return start(operation, {{inputs[0].contiguous()}, outputs[0]}, options, "gloo:all_gather");
  }
  return leave_to_gloo(operation, [&] { return ProcessGroupGloo::allgather(outputs, inputs, options); });
}

WorkPtr Gloo::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  const auto is_part = [&] {
    return output.device().is_cpu() && output.layout() == at::kStrided &&
        output.scalar_type() == input.scalar_type() && output.dim() == input.dim() && output.dim() > 0 &&
        output.size(0) * getSize() == input.size(0) && output.sizes().slice(1) == input.sizes().slice(1);
  };
  if (exchange_ != nullptr && has_values_for(options.reduceOp, input) && input.is_contiguous() && is_part()) {
    const auto operation = operation_of(c10d::OpType::_REDUCE_SCATTER_BASE, input, options.reduceOp);
    return start(operation, {input.chunk(getSize()), {output}}, options, "gloo:reduce_scatter");
  }
  return ProcessGroupGloo::_reduce_scatter_base(output, input, options);
}

WorkPtr Gloo::allgather_parts(
    const Tensors& outputs, const Tensors& inputs, const c10d::AllgatherOptions& options) {
  Exchange::Operands operands{inputs, {}};
  const auto parts = parts_of(outputs);
  for (int rank = 0; rank < getSize(); ++rank) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK_VALUE(
          parts[i][rank].is_cpu() && parts[i][rank].scalar_type() == inputs[i].scalar_type() &&
              parts[i][rank].numel() == inputs[i].numel(),
          "an output's rows are of another size, kind or device than its input");
      operands.outputs.push_back(parts[i][rank]);
    }
  }
  const auto operation = operation_of(c10d::OpType::ALLGATHER, inputs);
  return start(operation, operands, options, "gloo:all_gather");
}

WorkPtr Gloo::reduce_scatter_parts(
    const at::Tensor& output, const Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  Exchange::Operands operands{{}, {output}};
  const auto parts = parts_of(inputs);
  for (int rank = 0; rank < getSize(); ++rank) {
    for (const auto& each : parts) {
      operands.inputs.push_back(each[rank]);
    }
  }
  const auto operation = operation_of(c10d::OpType::_REDUCE_SCATTER_BASE, inputs, options.reduceOp);
  TORCH_CHECK_VALUE(
      output.is_cpu() && output.layout() == at::kStrided && output.scalar_type() == operation.dtype &&
          operation.count == static_cast<uint64_t>(output.numel() * getSize()),
      "the output is of another size, kind or device than the inputs' rows");
  return start(operation, operands, options, "gloo:reduce_scatter");
}

WorkPtr Gloo::add_rows(const at::Tensor& tensor, int virtual_ranks, const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(
      virtual_ranks >= getSize() && virtual_ranks <= std::numeric_limits<uint16_t>::max(),
      "virtual ranks must be ", getSize(), " to 65535, not ", virtual_ranks);
  const auto needed = VirtualRanks{virtual_ranks, getSize()}.most_rows();
  TORCH_CHECK_VALUE(
      tensor.dim() == 2 && tensor.size(0) >= needed && tensor.size(0) < 128,
      "the tensor must be 2-D with ", needed, " to 127 rows");
  auto operation = operation_of(c10d::OpType::ALLREDUCE, Tensors{tensor});
  operation.rows = static_cast<uint8_t>(tensor.size(0));
  operation.virtual_ranks = static_cast<uint16_t>(virtual_ranks);
  operation.count /= operation.rows;
  return start(operation, {{tensor}, {}}, options, "gloo:all_reduce");
}

// The part of each rank.
std::vector<Tensors> Gloo::parts_of(const Tensors& tensors) const {
  TORCH_CHECK_VALUE(exchange_ != nullptr, "only shared memory exchanges several tensors as one");
  std::vector<Tensors> parts;
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(
        tensor.dim() > 0 && tensor.size(0) == getSize() && tensor.is_contiguous(),
        "a tensor has no rows for ", getSize(), " ranks");
    parts.push_back(tensor.unbind(0));
  }
  return parts;
}

WorkPtr Gloo::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const auto operation = operation_of(c10d::OpType::GATHER, inputs.at(0), c10d::ReduceOp::SUM, checked_rank(options.rootRank));
  const bool is_root = options.rootRank == getRank();
  if (exchange_ != nullptr && is_dense(inputs) && (is_root ? has_one_per_rank(outputs, inputs[0]) : outputs.empty())) {
    return start(operation, {{inputs[0].contiguous()}, is_root ? outputs[0] : Tensors{}}, options, "gloo:gather");
  }
  return leave_to_gloo(operation, [&] { return ProcessGroupGloo::gather(outputs, inputs, options); });
}

WorkPtr Gloo::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  auto operation = operation_of(c10d::OpType::SCATTER, outputs.at(0), c10d::ReduceOp::SUM, checked_rank(options.rootRank));
  operation.count *= getSize();
  const bool is_root = options.rootRank == getRank();
  if (exchange_ != nullptr && is_copyable(outputs) && (is_root ? has_one_per_rank(inputs, outputs[0]) : inputs.empty())) {
    return start(operation, {is_root ? contiguous(inputs[0]) : Tensors{}, outputs}, options, "gloo:scatter");
  }
  return leave_to_gloo(operation, [&] { return ProcessGroupGloo::scatter(outputs, inputs, options); });
}

WorkPtr Gloo::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
    const c10d::AllToAllOptions& options) {
  const auto operation = operation_of(c10d::OpType::ALLTOALL_BASE, input);
  const bool has_equal_parts = output_splits.empty() && input_splits.empty() && input.dim() > 0 && input.size(0) % getSize() == 0;
  if (exchange_ != nullptr && has_equal_parts && is_copyable({input}) && can_copy(input, output)) {
    return start(operation, {input.contiguous().chunk(getSize()), output.chunk(getSize())}, options, "gloo:all_to_all");
  }
  // The ranks' tensors may differ in size.
  return leave_to_gloo({operation.type, operation.dtype}, [&] {
    return ProcessGroupGloo::alltoall_base(output, input, output_splits, input_splits, options);
  });
}

WorkPtr Gloo::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  auto operation = operation_of(c10d::OpType::ALLTOALL, inputs.at(0));
  operation.count *= getSize();
  const auto& like = inputs[0];
  if (exchange_ != nullptr && is_copyable({like}) && has_one_per_rank({inputs}, like) && has_one_per_rank({outputs}, like)) {
    return start(operation, {contiguous(inputs), outputs}, options, "gloo:all_to_all");
  }
  return leave_to_gloo({operation.type, operation.dtype}, [&] { return ProcessGroupGloo::alltoall(outputs, inputs, options); });
}

WorkPtr Gloo::send(Tensors& tensors, int destination, int tag) {
  checked_rank(destination);
  auto work = ProcessGroupGloo::send(tensors, destination, tag);
  return track(c10::make_intrusive<MessageWork>(std::move(work), getOptions()->timeout), destination);
}

WorkPtr Gloo::recv(Tensors& tensors, int source, int tag) {
  checked_rank(source);
  auto work = ProcessGroupGloo::recv(tensors, source, tag);
  return track(c10::make_intrusive<MessageWork>(std::move(work), getOptions()->timeout), source);
}

WorkPtr Gloo::recvAnysource(Tensors& tensors, int tag) {
  auto work = ProcessGroupGloo::recvAnysource(tensors, tag);
  // Tracked as this rank's, because the end of one peer does not end it.
  return track(c10::make_intrusive<MessageWork>(std::move(work), getOptions()->timeout), getRank());
}

// How gloo loses a send (gloo/transport/tcp/pair.cc):
// 1. The peer says that it is ready to receive. `handleRemotePendingRecv` takes the send off the
//    list of those that wait for that, and writes; the socket takes a part of it, and the rest goes
//    into the queue `tx_`.
// 2. The peer dies. `signalException` tells the buffers on all lists that the connection has failed;
//    but of those in `tx_` and `rx_` only the kind that gloo's older algorithms use.
// 3. The send is in `tx_` only, so nobody tells its buffer, and `waitSend` sleeps until the timeout.
std::optional<int> Gloo::lost_peer(int first, std::chrono::milliseconds age) {
  // A connection that is only made when it is needed says the same before that as after its end.
  if (c10d::getDefaultGlooLazyInit()) {
    return std::nullopt;
  }
  for (int rank = std::max(first, 0); rank < getSize(); ++rank) {
    if (rank == getRank() || in_progress(rank, age).empty()) {
      continue;
    }
    for (const auto& context : contexts_) {
      if (is_connected(*context, rank) == false) {
        return rank;
      }
    }
  }
  return std::nullopt;
}

void Gloo::fail_operations_with(int rank) {
  for (const auto& work : in_progress(rank, std::chrono::milliseconds::zero())) {
    work->abort();
  }
}

bool Gloo::is_busy() {
  const std::lock_guard<std::mutex> lock(workMutex_);
  const auto is_work = [](const auto& work) { return work != nullptr; };
  return !workQueue_.empty() || std::any_of(workInProgress_.begin(), workInProgress_.end(), is_work);
}

void Gloo::fail() {
  if (exchange_ != nullptr) {
    exchange_->leave();
  }
  // Where one message does not come in time, gloo closes all connections of its context.
  for (size_t i = 0; i < contexts_.size(); ++i) {
    const int tag = std::numeric_limits<int>::max() - static_cast<int>(i);
    auto& context = *contexts_[tag % contexts_.size()];
    for (int rank = 0; rank < getSize(); ++rank) {
      Tensors never = {at::empty({1}, at::kByte)};
      try {
        if (rank != getRank() && is_connected(context, rank).value_or(true)) {
          ProcessGroupGloo::recv(never, rank, tag)->wait(kMoment);
        }
      } catch (const std::exception&) {
        // It has not come in time, or this connection was closed meanwhile, or cannot be made, but perhaps not the others.
      }
    }
  }
  // Gloo does not wake receives from any rank.
  fail_operations_with(getRank());
}

WorkPtr Gloo::failable(WorkPtr work) { return track(FailableWork::around(std::move(work)), std::nullopt); }

WorkPtr Gloo::track(WorkPtr work, std::optional<int> peer) {
  const std::lock_guard<std::mutex> lock(tracking_);
  // Only when the list is full, so that this takes next to no time on average.
  if (tracked_.size() == tracked_.capacity()) {
    const auto is_over = [](const Tracked& each) { return each.in_progress() == nullptr; };
    tracked_.erase(std::remove_if(tracked_.begin(), tracked_.end(), is_over), tracked_.end());
    tracked_.reserve(2 * tracked_.size() + 16);
  }
  tracked_.push_back({c10::weak_intrusive_ptr<c10d::Work>(work), peer, Clock::now()});
  return work;
}

std::vector<WorkPtr> Gloo::in_progress(int rank, std::chrono::milliseconds age) {
  const std::lock_guard<std::mutex> lock(tracking_);
  std::vector<WorkPtr> works;
  for (const auto& each : tracked_) {
    if (each.peer.value_or(rank) == rank && Clock::now() - each.begun >= age) {
      if (auto work = each.in_progress()) {
        works.push_back(std::move(work));
      }
    }
  }
  return works;
}

template <typename CallOptions>
WorkPtr Gloo::start(
    const Operation& operation, const Exchange::Operands& operands, const CallOptions& options, const char* title,
    std::vector<ExchangeWork::Prior> prior) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? getOptions()->timeout : options.timeout;
  auto work = c10::make_intrusive<ExchangeWork>(exchange_, operation, operands, timeout, title, std::move(prior));
  if (!options.asyncOp) {
    work->leave_to_wait();
  } else if (exchange_->others_have_arrived(work->ticket())) {
    ExchangeWork::execute(work);
  } else {
    enqueue(work);
  }
  return work;
}

} // namespace c10d_sys
