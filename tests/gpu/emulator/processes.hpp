#pragma once

#include <string>
#include <vector>

#include "src/core/function_ref.hpp"

namespace emulated::test {

/// How a process ended: what it printed as errors, and its exit status, or minus the
/// number of the signal that killed it.
struct Ended {
    int status = 0;
    std::string errors;
};

/// Calls body(rank) in `count` processes at once, forked from this one, which itself
/// never uses a GPU. An exception is printed and gives status 1. A process that takes
/// longer than a minute is killed.
std::vector<Ended> in_processes(int count, lockstep::FunctionRef<void(int)> body);

/// The errors of the processes that did not end with status 0; empty where all did.
std::string trouble(const std::vector<Ended>& processes);

/// Throws unless it holds, with the caller's line.
void expect(bool holds, const char* what, int line = __builtin_LINE());

}  // namespace emulated::test
