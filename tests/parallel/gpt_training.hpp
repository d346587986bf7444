// Trains a GPT on one device, on ranks that shard the weights, and on ranks that shard
// the tokens. Tests of pipelines use the batches.
#pragma once

#include <functional>
#include <string>

#include "src/comm/chunks.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/context_parallel.hpp"
#include "src/parallel/gradient_accumulation.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

struct Lessons {
    GptSizes sizes;
    std::int64_t length = 0;
    std::int64_t batch = 0;  ///< sequences in a step
    int steps = 1;
    DType dtype = DType::f64;
    int micro_batches = 1;  ///< in a step
    bool numbers = true;
    bool adamw = false;  ///< otherwise kMomentumSgd
};

inline constexpr SgdOptions kMomentumSgd{0.1, 0.9, 0};

/// A rank's part of the batch: some sequences of each step, and some of their tokens.
struct Share {
    Chunk sequences;
    TokenDeal tokens{};
};

/// Returns a rank's micro-batches of a step: tokens, and the successor of each token.
std::vector<MicroBatch> batches_of(Device& device, const Lessons& lessons, int step,
                                   const Share& share, int micro_batches);

// Each function keeps what train() keeps: losses, the first step's gradients, values.

Outcome train_alone(const Lessons& lessons);
/// All ranks must have the same losses.
Outcome train_shared(int ranks, Regions kind, const Lessons& lessons);

using MakeKit = std::function<GptKit(Communicator& cp)>;

/// The replicas shard the batch, and the ranks of each replica shard the tokens.
struct Dealing {
    int dp = 1;
    int cp = 1;
    MakeKit kit{};
    std::string forgotten{};  ///< a parameter whose gradient is not summed over ranks
    sim::CheckLevel check = sim::check_level_asked();
};

Dealing dealt_to(int cp, ContextMethod method, TokenOrder order);

/// All ranks must end with the same bits, unless a gradient is forgotten.
Outcome train_dealt(const Dealing& dealing, const Lessons& lessons);

}  // namespace lockstep::test
