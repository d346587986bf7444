#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/core/tensor.hpp"

namespace lockstep::lessons {

/// What the grader says first: which task, and what it is given.
struct TaskStart {
    std::string task;
    int rank = 0;
    int size = 1;
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::int64_t> numbers;
};

}  // namespace lockstep::lessons
