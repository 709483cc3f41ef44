#pragma once

#include <exception>

namespace gloo {
// Of GLOO_ENFORCE.
class EnforceNotMet : public std::exception {};
} // namespace gloo
