// Compares a GPT whose ranks shard the tokens of each sequence with a GPT on one device.

#include <algorithm>
#include <cmath>

#include "src/nn/flash_attention.hpp"
#include "src/report/compare.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/gpt_training.hpp"

namespace lockstep::test {

namespace {

constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};

/// A GPT of two layers, with tokens and heads that are divisible by 2, 3 and 4 ranks.
Lessons lessons(DType dtype = DType::f64, std::int64_t kv_heads = 0) {
    Lessons lessons{{/*vocabulary=*/29,
                     /*context=*/24,
                     /*layers=*/2,
                     {/*hidden=*/48, /*heads=*/24, /*inner=*/96}},
                    /*length=*/24,
                    /*batch=*/2,
                    /*steps=*/3,
                    dtype};
    lessons.sizes.block.kv_heads = kv_heads;
    return lessons;
}

/// Computes all attention by FlashAttention, on one device.
GptKit flash_kit(Communicator& /*cp*/) {
    GptKit kit;
    kit.core = [](Device& device, const AttentionSizes& sizes) {
        return std::make_unique<FlashAttention>(device, sizes);
    };
    return kit;
}

}  // namespace

TEST_CASE("A GPT with sharded tokens trains as on one device, by every method",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const std::int64_t kv_heads = GENERATE(0, 12);
    const Lessons given = lessons(DType::f64, kv_heads);
    const Outcome one = train_alone(given);
    for (const int ranks : {2, 3, 4})
        for (const TokenOrder order : kOrders) {
            CAPTURE(name_of(method), kv_heads, ranks, name_of(order));
            check_alike(train_dealt(dealt_to(ranks, method, order), given), one, 1e-12);
        }
}

TEST_CASE("Context and data parallelism train together as on one device",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    // If the batch has 3 sequences, the replicas get two sequences and one sequence.
    const std::int64_t batch = GENERATE(2, 3);
    Lessons given = lessons();
    given.batch = batch;
    const Outcome one = train_alone(given);
    for (const TokenOrder order : kOrders) {
        Dealing dealing = dealt_to(2, method, order);
        dealing.dp = 2;
        CAPTURE(name_of(method), batch, name_of(order));
        check_alike(train_dealt(dealing, given), one, 1e-12);
    }
}

TEST_CASE("In f32 a GPT with sharded tokens stays close to one device",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const Lessons single = lessons(DType::f32);
    // A parameter is a sum, to which each token of each step adds one term.
    const double bound =
        sum_bound(DType::f32, single.length * single.batch * single.steps);
    const Outcome one = train_alone(single);
    for (const int ranks : {2, 3, 4}) {
        CAPTURE(name_of(method), ranks);
        check_alike(train_dealt(dealt_to(ranks, method, TokenOrder::zigzag), single), one,
                    bound);
    }
}

TEST_CASE("FlashAttention trains a GPT as CoreAttention does", "[parallel][sim]") {
    const std::int64_t kv_heads = GENERATE(0, 12, 1);
    const Lessons given = lessons(DType::f64, kv_heads);
    check_alike(train_dealt({1, 1, flash_kit}, given), train_alone(given), 1e-12);
}

namespace {

/// Returns a block's gradients for the tokens of all ranks.
Outcome block_outcome(int ranks, const BlockSizes& sizes, const MakeKit& make_kit) {
    const Task task = [&](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const auto block = make_block({rank.device(), DType::f64, 5, "h.0"}, sizes,
                                      make_kit(rank.world()));
        pass_through(*block, in, out);
        for (Parameter* parameter : block->parameters())
            rank.world().all_reduce(parameter->gradient).wait();
    };
    const Shape shape{24, 2, sizes.hidden};
    return outcome_of(*classroom(ranks), task,
                      {{{"x", {normal_values(shape, "x"), Deal::zigzag}},
                        {"dy", {normal_values(shape, "dy"), Deal::zigzag}}}});
}

}  // namespace

TEST_CASE("A block's gradients of sharded tokens add up to one device's",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    BlockSizes sizes{24, 12, 36};
    sizes.norm = GENERATE(NormKind::layer_norm, NormKind::rms_norm);
    sizes.causal = GENERATE(false, true);
    const Outcome one = block_outcome(1, sizes, [](Communicator&) { return GptKit{}; });
    for (const int ranks : {2, 4}) {
        CAPTURE(name_of(method), ranks, sizes.causal);
        const MakeKit kit = [&](Communicator& group) {
            return context_parallel({}, group, method, TokenOrder::zigzag);
        };
        check_alike(block_outcome(ranks, sizes, kit), one);
    }
}

}  // namespace lockstep::test
