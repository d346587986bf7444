#pragma once

#include "sim/check/in_flight.hpp"

namespace lockstep::sim {

// What shows an access that the device does not see, Tensor::data(), while a buffer is in
// flight. By way of the device, so on any backend.

/// At the launch. `alone`: no other operation in flight uses the memory. `arrives_apart`:
/// what is written is not what the operation reads.
void prepare(Use& use, bool alone, bool arrives_apart);

/// What the operation has written is kept aside.
void put_aside(Use& use);
/// It shows.
void put_in_place(Use& use);

/// Whether a buffer that is read still holds what it held at the launch.
bool is_unchanged(const Use& use);

}  // namespace lockstep::sim
