#pragma once

#include <optional>
#include <utility>

#include "src/comm/communicator.hpp"

namespace lockstep {

/// A tensor that a message is bringing.
struct Arriving {
    Tensor tensor{};
    Tensor source{};  ///< what is sent; to be kept until it has arrived
    std::optional<Work> work{};

    /// Once: gives the tensor away.
    Tensor wait(SourceLine at = SourceLine::here()) {
        if (work) work->wait(at);
        source = {};
        return std::move(tensor);
    }
};

}  // namespace lockstep
