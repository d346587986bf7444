#pragma once

#include "gpu/launcher/address.hpp"
#include "gpu/launcher/stall_watch.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::gpu {

using os::Descriptor;

/// A socket that waits at the address. UsageError where the address cannot be: its host
/// has no such name, is another machine, or something else waits there.
Descriptor listen_at(const Address& address);

/// A connection that waits at a listening socket; a closed descriptor where none does, or
/// where it comes from another user of this machine.
Descriptor accept_from(const Descriptor& listener);

/// A connection to whoever waits at the address, or a closed descriptor where nobody has
/// come there by the deadline; tries once at least. UsageError where the host has no such
/// name.
Descriptor connect_to(const Address& address, Clock::time_point deadline);

}  // namespace lockstep::gpu
