#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "src/comm/rank.hpp"

namespace lockstep {

/// The inputs of a task on one rank, by name.
class TaskInputs {
  public:
    std::map<std::string, Tensor> tensors;  ///< on the rank's device
    std::map<std::string, std::int64_t> numbers;
    std::map<std::string, Part> parts{};  ///< which part of its whole a tensor is

    // tensor(), number() and integer() throw a UsageError that names a missing input.

    const Tensor& tensor(const std::string& name) const;
    std::int64_t number(const std::string& name) const;
    int integer(const std::string& name) const;
    bool has_number(const std::string& name) const { return numbers.contains(name); }
};

/// The outputs of a task on one rank, by name.
struct TaskOutputs {
    std::map<std::string, Tensor> tensors;  ///< on the rank's device
    std::map<std::string, HostTensor> values;
    std::map<std::string, std::string> texts;
    std::map<std::string, Part> parts;  ///< unlisted tensors are whole
};

/// A computation with named inputs and outputs. Every rank runs it at the same time.
using Task = std::function<void(Rank& rank, const TaskInputs& in, TaskOutputs& out)>;

}  // namespace lockstep
