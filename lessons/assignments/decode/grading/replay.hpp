#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lessons/assignments/decode/handout/adapters.hpp"
#include "src/core/host_tensor.hpp"

// Plays what a batcher has planned, pass by pass: each row stores its token in its place,
// and looks for those before it in theirs, as the keys and values of a real cache.

namespace lockstep::lessons::decode {

/// The tokens that a prompt has, those that are to follow, and the pass before which a
/// batcher gets it.
struct Asked {
    std::int64_t prompt = 1;
    std::int64_t output = 1;
    std::int64_t arrival = 0;
};

/// Requests are numbered from 0 up, in the order of their arrivals.
struct Batch {
    Rules rules;
    std::vector<Asked> requests{};
};

/// The shares of each pass.
using Plan = std::vector<std::vector<Share>>;

/// Reads what the task has left of a plan of so many passes. Nothing if it cannot be
/// that.
std::optional<Plan> read_plan(const HostTensor& left, const Rules& rules,
                              std::int64_t passes);

/// Says what is wrong with a plan, each as a sentence; empty if nothing is.
struct Verdict {
    std::string tokens;  ///< a token that would not be the right one, or never comes
    std::string limits;
    std::string order;
    std::int64_t last_pass = -1;  ///< that has rows
};

/// Judges a plan up to the first pass in which a token would be wrong.
Verdict replayed(const Batch& batch, const Plan& plan);

}  // namespace lockstep::lessons::decode
