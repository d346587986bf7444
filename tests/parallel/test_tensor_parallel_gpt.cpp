#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/report/compare.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/gpt_training.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

constexpr int kWays[] = {1, 2, 3, 4, 8};

/// Two layers. Each number of ranks divides the 24 heads and the columns; only 1 divides
/// the vocabulary.
Lessons lessons(int steps, DType dtype) {
    return {{/*vocabulary=*/29,
             /*context=*/24,
             /*layers=*/2,
             {/*hidden=*/48, /*heads=*/24, /*inner=*/96}},
            /*length=*/24,
            /*batch=*/2,
            steps,
            dtype};
}

}  // namespace

TEST_CASE("A tensor-parallel GPT trains as on one device", "[parallel][sim]") {
    const Regions kind = GENERATE(Regions::replicated, Regions::sequence_parallel);
    CAPTURE(kind == Regions::sequence_parallel);
    constexpr int kSteps = 50;
    const Outcome one = train_alone(lessons(kSteps, DType::f64));
    const std::vector<double> losses = losses_of(one.report);
    REQUIRE(losses.back() < losses.front());
    for (const int ways : kWays) {
        CAPTURE(ways);
        const Outcome many = train_shared(ways, kind, lessons(kSteps, DType::f64));
        check_alike(many, one);
    }
}

TEST_CASE("A tensor-parallel GPT trains as on one device with AdamW", "[parallel][sim]") {
    // The gradient of the keys' biases is 0 except for rounding, and AdamW divides it by
    // its own size. So parameters differ more than with SGD; losses do not.
    Lessons adamw = lessons(20, DType::f64);
    adamw.adamw = true;
    const Outcome one = train_alone(adamw);
    for (const Regions kind : {Regions::replicated, Regions::sequence_parallel}) {
        const Outcome many = train_shared(4, kind, adamw);
        check_alike(named_under(many.results, "loss/"),
                    named_under(one.results, "loss/"));
        check_alike(many, one, 1e-9);
    }
}

TEST_CASE("In f32 a tensor-parallel GPT stays close to one device", "[parallel][sim]") {
    const Regions kind = GENERATE(Regions::replicated, Regions::sequence_parallel);
    constexpr int kSteps = 50;
    // A parameter is a sum, to which each token of each step adds one term.
    const Lessons single = lessons(kSteps, DType::f32);
    const double bound = sum_bound(DType::f32, single.length * single.batch * kSteps);
    const Outcome one = train_alone(single);
    for (const int ways : kWays) {
        CAPTURE(ways);
        const Outcome many = train_shared(ways, kind, single);
        check_alike(many, one, bound);
    }
}

TEST_CASE("RMSNorm and SwiGLU also train tensor-parallel", "[parallel][sim]") {
    Lessons modern = lessons(10, DType::f64);
    modern.sizes.block.norm = NormKind::rms_norm;
    modern.sizes.block.mlp = MlpKind::swiglu;
    const Outcome one = train_alone(modern);
    for (const Regions kind : {Regions::replicated, Regions::sequence_parallel}) {
        const Outcome many = train_shared(4, kind, modern);
        for (const char* what : {"grad/", "loss/"})
            check_alike(named_under(many.results, what), named_under(one.results, what));
    }
}

TEST_CASE("Time, bytes and memory are the same with shapes only", "[parallel][sim]") {
    const bool modern = GENERATE(false, true);
    const int ways = GENERATE(1, 3, 4);
    for (const Regions kind : {Regions::replicated, Regions::sequence_parallel}) {
        Lessons both = lessons(2, DType::f32);
        if (modern) {
            both.sizes.block.norm = NormKind::rms_norm;
            both.sizes.block.mlp = MlpKind::swiglu;
            both.sizes.block.causal = false;
        }
        const RunReport numbers = train_shared(ways, kind, both).report;
        both.numbers = false;
        const RunReport shapes = train_shared(ways, kind, both).report;
        REQUIRE(numbers.ranks.size() == shapes.ranks.size());
        CHECK(numbers.makespan() == shapes.makespan());
        for (std::size_t rank = 0; rank < numbers.ranks.size(); ++rank) {
            const RankReport &a = numbers.ranks[rank], &b = shapes.ranks[rank];
            CHECK(a.flops == b.flops);
            CHECK(a.bytes_sent() == b.bytes_sent());
            CHECK(a.messages_sent() == b.messages_sent());
            CHECK(a.memory.peak == b.memory.peak);
            CHECK(a.memory.category_peak == b.memory.category_peak);
            CHECK(a.memory.at_peak == b.memory.at_peak);
            CHECK(a.time.compute == b.time.compute);
            CHECK(a.time.communication == b.time.communication);
        }
    }
}

TEST_CASE("Heads that the ranks do not divide are refused", "[parallel][errors]") {
    const auto refused = [](const BlockSizes& sizes) {
        return refusal([&] {
            classroom(3)->run([&](Rank& rank) {
                TensorParallel tp(rank.device(), rank.world());
                make_block({rank.device(), DType::f32, 1, "h.0"}, sizes,
                           tensor_parallel({}, tp));
            });
        });
    };
    CHECK_THAT(refused({48, 4}), says("h.0.attn: 4 heads cannot be sharded over 3 ranks; "
                                      "a positive multiple of 3 is expected"));
    CHECK_THAT(refused({48, 24, 100}),
               says("h.0.mlp.c_fc: 100 columns cannot be sharded over 3 ranks"));
}

TEST_CASE("A sequence that the ranks do not divide is refused", "[parallel][errors]") {
    Lessons odd = lessons(1, DType::f32);
    odd.length = 23;
    CHECK_THAT(refusal([&] { train_shared(4, Regions::sequence_parallel, odd); }),
               says("a sequence of 23 tokens cannot be sharded over 4 ranks"));
}

}  // namespace lockstep::test
