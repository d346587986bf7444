#pragma once

#include <exception>

namespace lockstep {

/// Throws again what a rank's program threw, with the rank before its sentence: "rank 2:
/// …". This works for our types, and for those of the standard library that are made from
/// a sentence. Other types are thrown as they are; so is a FaultError, which names ranks.
[[noreturn]] void rethrow_naming_rank(int rank, const std::exception_ptr& thrown);

}  // namespace lockstep
