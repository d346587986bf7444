#pragma once

#include <string>
#include <vector>

#include "src/core/function_ref.hpp"

namespace emulated::test {

/// How a process ended: its standard error, and its exit status, or minus the number of
/// the signal that killed it.
struct Ended {
    int status = 0;
    std::string errors;
};

/// Calls body(rank) in `count` processes at once, forked from this one, which must never
/// use a GPU itself. An exception is printed and gives status 1. A process that takes
/// longer than a minute is killed.
std::vector<Ended> in_processes(int count, lockstep::FunctionRef<void(int)> body);

/// Returns the errors of the processes whose status is not 0; empty if all have status 0.
std::string trouble(const std::vector<Ended>& processes);

/// Throws, with the caller's line, unless `holds` is true.
void expect(bool holds, const char* what, int line = __builtin_LINE());

}  // namespace emulated::test
