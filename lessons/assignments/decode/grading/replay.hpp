#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lessons/assignments/decode/handout/adapters.hpp"
#include "src/core/host_tensor.hpp"

// Replays a batcher's plan, pass by pass. Instead of keys and values, each row stores the
// index of its token on its page, and looks for the earlier tokens on their pages.

namespace lockstep::lessons::decode {

/// A request: the length of its prompt, the number of tokens to generate, and the pass
/// before which the batcher gets the request.
struct Asked {
    std::int64_t prompt = 1;
    std::int64_t output = 1;
    std::int64_t arrival = 0;
};

/// The limits of a batcher, and its requests in the order of their arrivals.
struct Batch {
    Rules rules;
    std::vector<Asked> requests{};
};

/// The shares of each pass.
using Plan = std::vector<std::vector<Share>>;

/// Reads a plan of `passes` passes from the tensor that the task output. Returns nothing
/// if the tensor is not a plan.
std::optional<Plan> read_plan(const HostTensor& left, const Rules& rules,
                              std::int64_t passes);

/// The mistakes in a plan, one sentence of each kind; empty if there is none.
struct Verdict {
    std::string tokens;  ///< a token that would be wrong, or is never computed
    std::string limits;
    std::string order;
    std::int64_t last_pass = -1;  ///< the last pass that has rows
};

/// Judges a plan up to the first pass in which a token would be wrong.
Verdict replayed(const Batch& batch, const Plan& plan);

}  // namespace lockstep::lessons::decode
