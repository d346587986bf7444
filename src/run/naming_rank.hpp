#pragma once

#include <exception>

namespace lockstep {

/// Rethrows an exception of a rank's program, with the rank before its message: "rank 2:
/// …". This works for Lockstep's types, and for types of the standard library that are
/// constructed from a message. Other types are rethrown unchanged, and also FaultError,
/// whose message names ranks already.
[[noreturn]] void rethrow_naming_rank(int rank, const std::exception_ptr& thrown);

}  // namespace lockstep
