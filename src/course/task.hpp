#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "src/comm/rank.hpp"

namespace lockstep {

/// The inputs of an assignment's task on one rank, by name.
class TaskInputs {
  public:
    std::map<std::string, Tensor> tensors;  ///< on the rank's device
    std::map<std::string, std::int64_t> numbers;

    // UsageError names what is not there.

    const Tensor& tensor(const std::string& name) const;
    std::int64_t number(const std::string& name) const;
    int integer(const std::string& name) const;
    bool has_number(const std::string& name) const { return numbers.contains(name); }
};

/// The outputs that the task leaves there.
struct TaskOutputs {
    std::map<std::string, Tensor> tensors;  ///< on the rank's device
    std::map<std::string, HostTensor> values;
    std::map<std::string, std::string> texts;
};

/// One thing that an assignment asks for, as its tests call it: every rank runs it at the
/// same time.
using Task = std::function<void(Rank& rank, const TaskInputs& in, TaskOutputs& out)>;

using Tasks = std::map<std::string, Task>;

/// The assignment's tasks by name, which its tasks.cpp defines.
Tasks tasks();

}  // namespace lockstep
