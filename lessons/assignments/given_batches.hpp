#pragma once

#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "src/course/task.hpp"

namespace lockstep {

/// The micro-batches of a task that run_on_rows() (micro_batches.hpp) runs, as the
/// assignment's handout declares them: x, targets, and their share of the batch.
template <typename MicroBatch>
std::vector<MicroBatch> given_batches(const TaskInputs& in) {
    std::vector<MicroBatch> batches;
    const auto all = static_cast<double>(in.number("batch rows"));
    std::int64_t begin = 0;
    for (int i = 0; i < in.integer("micro-batches"); ++i) {
        const std::int64_t rows = in.number(fmt::format("rows {}", i));
        batches.push_back({in.tensor("x").rows(begin, rows),
                           in.tensor("targets").rows(begin, rows),
                           static_cast<double>(rows) / all});
        begin += rows;
    }
    return batches;
}

}  // namespace lockstep
