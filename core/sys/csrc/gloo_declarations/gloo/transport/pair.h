#pragma once

// The connection to one peer. It is TCP's unless GLOO_DEVICE_TRANSPORT chooses another transport.
namespace gloo::transport {
class Pair {
 public:
  virtual ~Pair();
};

namespace tcp {
class Pair : public ::gloo::transport::Pair {
 public:
  ~Pair() override;
  bool isConnected();
};
} // namespace tcp
} // namespace gloo::transport
