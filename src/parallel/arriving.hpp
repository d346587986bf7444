#pragma once

#include <optional>
#include <utility>

#include "src/comm/communicator.hpp"

namespace lockstep {

/// A tensor whose values are still on their way from another rank.
struct Arriving {
    Tensor tensor{};
    Tensor source{};  ///< the tensor that is sent; kept until the message has arrived
    std::optional<Work> work{};

    /// Waits for the message and returns the tensor. Call it once.
    Tensor wait(SourceLine at = SourceLine::here()) {
        if (work) work->wait(at);
        source = {};
        return std::move(tensor);
    }
};

}  // namespace lockstep
