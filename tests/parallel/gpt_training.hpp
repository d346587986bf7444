// A GPT trained on one device, on some that share out its weights, and on some that share
// out the tokens.
#pragma once

#include <functional>
#include <string>

#include "src/nn/gpt.hpp"
#include "src/parallel/context_parallel.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

struct Lessons {
    GptSizes sizes;
    std::int64_t length = 0;
    std::int64_t batch = 0;
    int steps = 1;
    DType dtype = DType::f64;
    bool numbers = true;
    bool adamw = false;  ///< else SGD with momentum
};

// Each keeps what train() does: losses, the first step's gradients, values.

Outcome train_alone(const Lessons& lessons);
/// All ranks have to have the same losses.
Outcome train_shared(int ranks, Regions kind, const Lessons& lessons);

using MakeKit = std::function<GptKit(Communicator& cp)>;

/// Replicas that share out the batch, and in each of them ranks that share out the
/// tokens.
struct Dealing {
    int dp = 1;
    int cp = 1;
    MakeKit kit{};
    std::string forgotten{};  ///< a parameter whose gradient is not summed over ranks
    sim::CheckLevel check = sim::check_level_asked();
};

Dealing dealt_to(int cp, ContextMethod method, TokenOrder order);

/// All ranks have to end with the same bits, unless a gradient is forgotten.
Outcome train_dealt(const Dealing& dealing, const Lessons& lessons);

}  // namespace lockstep::test
