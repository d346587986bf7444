// A GPT whose ranks share out the tokens of each sequence, against one device.

#include <algorithm>
#include <cmath>

#include "src/nn/flash_attention.hpp"
#include "src/report/compare.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/context_training.hpp"

namespace lockstep::test {

namespace {

constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};

/// Two layers whose tokens and heads 2, 3 and 4 ranks share out.
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

double difference_of_losses(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double here = std::abs(a[i] - b[i]) / std::abs(b[i]);
        if (!(here <= worst)) worst = here;
    }
    return worst;
}

void check_alike(const Trained& many, const Trained& one, double bound) {
    CHECK(difference_of_losses(many.losses, one.losses) <= bound);
    CHECK(largest_difference(many.first_gradients, one.first_gradients) <= bound);
    CHECK(largest_difference(many.values, one.values) <= bound);
}

/// All attention by FlashAttention, on one device.
GptKit flash_kit(Communicator& /*cp*/) {
    GptKit kit;
    kit.core = [](Device& device, const AttentionSizes& sizes) {
        return std::make_unique<FlashAttention>(device, sizes);
    };
    return kit;
}

}  // namespace

TEST_CASE("A GPT of shared-out tokens trains as on one device, by every method",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const std::int64_t kv_heads = GENERATE(0, 12);
    const Lessons given = lessons(DType::f64, kv_heads);
    const Trained one = train_alone(given);
    for (const int ranks : {2, 3, 4})
        for (const TokenOrder order : kOrders) {
            CAPTURE(name_of(method), kv_heads, ranks, name_of(order));
            check_alike(train_dealt(dealt_to(ranks, method, order), given), one, 1e-12);
        }
}

TEST_CASE("Context and data parallelism train together as on one device",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    // A batch of 3 gives one replica two sequences and the other one.
    const std::int64_t batch = GENERATE(2, 3);
    Lessons given = lessons();
    given.batch = batch;
    const Trained one = train_alone(given);
    for (const TokenOrder order : kOrders) {
        Dealing dealing = dealt_to(2, method, order);
        dealing.dp = 2;
        CAPTURE(name_of(method), batch, name_of(order));
        check_alike(train_dealt(dealing, given), one, 1e-12);
    }
}

TEST_CASE("In f32 a GPT of shared-out tokens stays with one device", "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const Lessons single = lessons(DType::f32);
    // A parameter is the sum of a term for each token of each step.
    const double bound =
        sum_bound(DType::f32, single.length * single.batch * single.steps);
    const Trained one = train_alone(single);
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

using Gradients = std::map<std::string, HostTensor>;

/// A block's gradients for all ranks' tokens, its dx among them.
Gradients block_gradients(int ranks, const BlockSizes& sizes,
                          const std::function<GptKit(Communicator&)>& make_kit) {
    const HostTensor x = normal_values({24, 2, sizes.hidden}, "x");
    const HostTensor dy = normal_values({24, 2, sizes.hidden}, "dy");
    std::vector<HostTensor> dx(static_cast<std::size_t>(ranks));
    Gradients gradients;
    TokenOrder order{};
    classroom(ranks)->run([&](Rank& rank) {
        Device& device = rank.device();
        const GptKit kit = make_kit(rank.world());
        const auto block = make_block({device, DType::f64, 5, "h.0"}, sizes, kit);
        zero_gradients(*block);
        Saved saved;
        block->forward(device.upload(dealt_rows(x, kit.tokens)), saved);
        dx[static_cast<std::size_t>(rank.index())] = device.peek(
            block->backward(device.upload(dealt_rows(dy, kit.tokens)), saved));
        order = kit.tokens.order;
        for (Parameter* parameter : block->parameters()) {
            rank.world().all_reduce(parameter->gradient).wait();
            gradients[parameter->name()] = device.peek(parameter->gradient);
        }
    });
    gradients["dx"] = whole_sequence(dx, order);
    return gradients;
}

}  // namespace

TEST_CASE("A block's gradients of shared-out tokens add up to one device's",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    BlockSizes sizes{24, 12, 36};
    sizes.norm = GENERATE(NormKind::layer_norm, NormKind::rms_norm);
    sizes.causal = GENERATE(false, true);
    const Gradients one =
        block_gradients(1, sizes, [](Communicator&) { return GptKit{}; });
    for (const int ranks : {2, 4}) {
        CAPTURE(name_of(method), ranks, sizes.causal);
        CHECK(largest_difference(block_gradients(ranks, sizes,
                                                 [&](Communicator& group) {
                                                     return context_parallel(
                                                         {}, group, method,
                                                         TokenOrder::zigzag);
                                                 }),
                                 one) <= 1e-12);
    }
}

}  // namespace lockstep::test
