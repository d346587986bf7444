#pragma once

#include "lessons/grader/assignment.hpp"

namespace lockstep::lessons {

/// A linear layer by columns and by rows, and an MLP of both.
Assignment column_row_linear_assignment();

}  // namespace lockstep::lessons
