#pragma once

#include <exception>

namespace lockstep {

/// Throws again what the program of a rank threw, with the rank in its sentence: "rank 2:
/// …". So it does for our types and the standard library's that are made of a sentence. A
/// type of the program's own is thrown as it is; so is a FaultError, which names ranks.
[[noreturn]] void rethrow_naming_rank(int rank, const std::exception_ptr& thrown);

}  // namespace lockstep
