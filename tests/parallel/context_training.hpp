// A GPT trained on tokens that ranks share out, beside gpt_training's on one device.
#pragma once

#include <functional>
#include <string>

#include "src/parallel/context_parallel.hpp"
#include "tests/parallel/gpt_training.hpp"

namespace lockstep::test {

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

/// As train_alone, with the same tokens. Requires that all ranks end with the same bits,
/// where no gradient is forgotten; shows rank 0's.
Trained train_dealt(const Dealing& dealing, const Lessons& lessons);

}  // namespace lockstep::test
