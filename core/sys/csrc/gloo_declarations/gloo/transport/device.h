#pragma once

namespace gloo::transport {
class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};
} // namespace gloo::transport
