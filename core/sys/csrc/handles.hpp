// What the opaque handles of the C ABI hold.
#pragma once

#include "gloo.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <string>

struct c10d_store {
  c10::intrusive_ptr<c10d::Store> store;
};

struct c10d_process_group {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  // Null if another backend moves the tensors.
  c10::intrusive_ptr<c10d_sys::Gloo> gloo;
  // Null unless the ranks compare their operations, which they do over this one.
  c10::intrusive_ptr<c10d_sys::Gloo> helper;
  // Null if tensors take another way.
  std::shared_ptr<c10d_sys::Exchange> exchange;
  // Why there is no exchange.
  std::string why_none;
  // Of NCCL's operations.
  std::function<c10d_progress()> progress;

  c10::intrusive_ptr<c10d_sys::Arena> arena() const { return exchange == nullptr ? nullptr : exchange->arena(); }
};

struct c10d_work {
  c10::intrusive_ptr<c10d::Work> work;
};

namespace c10d_sys {

// The name that init_process_group gives the default group.
constexpr const char* kGroupName = "0";

// Call this after adding the backends, since it is they that keep the group's name.
inline void name(c10d::ProcessGroup& group) {
  group.setGroupName(kGroupName);
  group.setGroupDesc("default_pg");
}

} // namespace c10d_sys
