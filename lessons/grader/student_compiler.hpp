#pragma once

#include <string>
#include <vector>

namespace lockstep::lessons {

/// What students' programs are compiled with: that of the environment's CXX, else the
/// first of g++, c++ and clang++ that is on the PATH. MissingError where there is none.
std::vector<std::string> student_compiler();

}  // namespace lockstep::lessons
