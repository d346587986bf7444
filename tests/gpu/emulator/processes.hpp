#pragma once

#include <string>
#include <vector>

#include "src/core/function_ref.hpp"

namespace emulated::test {

/// The standard error of a process that has ended, and its exit status. If a signal
/// killed it, the status is minus the signal's number.
struct Ended {
    int status = 0;
    std::string errors;
};

/// Calls body(rank) in `count` processes at once, forked from this one, which must never
/// use a GPU itself. If `body` throws, the exception is printed and the status is 1. A
/// process that takes longer than a minute is killed.
std::vector<Ended> in_processes(int count, lockstep::FunctionRef<void(int)> body);

/// Returns the errors of all processes with a status other than 0; empty if there are
/// none.
std::string trouble(const std::vector<Ended>& processes);

/// Throws, with the caller's line, if `holds` is false.
void expect(bool holds, const char* what, int line = __builtin_LINE());

}  // namespace emulated::test
