#pragma once

#include <string>

#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

/// Rows for a classifier: x (rows, features) and targets (rows), i32.
struct ClassifiedRows {
    HostTensor x;
    HostTensor targets;
};

/// Draws that many rows; the same for the same name, but others in another grading.
ClassifiedRows draw_rows(const Judge& judge, const std::string& name, std::int64_t rows,
                         std::int64_t features, std::int64_t classes);

}  // namespace lockstep::lessons
