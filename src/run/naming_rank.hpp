#pragma once

#include <exception>

namespace lockstep {

/// Rethrows what a rank's program threw, with the rank before its sentence: "rank 2: …".
/// This works for Lockstep's types, and for types of the standard library that are made
/// from a sentence. Other types are rethrown unchanged. So is FaultError, which names
/// ranks.
[[noreturn]] void rethrow_naming_rank(int rank, const std::exception_ptr& thrown);

}  // namespace lockstep
