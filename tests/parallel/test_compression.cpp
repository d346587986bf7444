// Gradients that are made smaller for their journey: what is lost, what is not, and how
// many bytes go.

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/rounded_all_reduce.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

using Sync = std::unique_ptr<GradientSync>;
using MakeSync = std::function<Sync(Device&, Communicator&, std::vector<Parameter*>)>;

RunReport on_ranks(int ranks, const std::function<void(Rank&)>& program,
                   sim::CheckLevel check = sim::CheckLevel::full) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.check = check;
    options.workers = 1;  // ranks note what they find in one place
    return sim::make_cluster(options)->run(program);
}

std::int64_t bytes_sent(const RunReport& report) {
    std::int64_t bytes = 0;
    for (const RankReport& rank : report.ranks)
        bytes += rank.bytes_sent();
    return bytes;
}

/// A parameter whose gradients are given: each rank has its own terms.
std::unique_ptr<Parameter> parameter_of(Rank& rank, const std::string& name, Shape shape,
                                        DType dtype = DType::f64) {
    auto parameter = std::make_unique<Parameter>(
        ParameterInit{rank.device(), dtype, 1, ""}, name, shape);
    rank.device().fill(parameter->value, 0);
    replicate_over(rank.world(), {parameter.get()}, Placement::Kind::partial);
    return parameter;
}

void set_gradient(Parameter& parameter, const HostTensor& terms) {
    parameter.zero_gradient();
    parameter.gradient.device()->upload_into(parameter.gradient,
                                             terms.as(parameter.dtype()));
}

constexpr std::int64_t kVocabulary = 11;
constexpr std::int64_t kLength = 6;
constexpr std::int64_t kSequences = 4;  // of a micro-batch
constexpr int kMicroBatches = 12;       // of a step, of all ranks

/// Texts that have something to learn: what follows a token is nearly always the same.
MicroBatch batch_of(Device& device, int step, int index) {
    HostTensor tokens({kLength + 1, kSequences}, DType::i32);
    const HostTensor first =
        ids_below({kSequences}, kVocabulary, fmt::format("{} of {}", index, step));
    for (std::int64_t b = 0; b < kSequences; ++b)
        for (std::int64_t t = 0; t <= kLength; ++t)
            tokens.set(t * kSequences + b,
                       t == 0 ? first.at(b)
                              : std::fmod(3 * tokens.at((t - 1) * kSequences + b) + 2,
                                          kVocabulary));
    return {device.upload(tokens.rows(0, kLength)),
            device.upload(tokens.rows(1, kLength)), 1.0 / kMicroBatches};
}

struct Training {
    DType dtype = DType::f64;
    int steps = 12;
    std::vector<int> micro_batches;  ///< of each rank; 12 in all
    double rate = 0.3;
};

struct Trained {
    std::vector<double> losses;
    RunReport report;
};

Trained train(const Training& training, const MakeSync& make_sync) {
    Trained trained;
    trained.losses.resize(static_cast<std::size_t>(training.steps));
    const int ranks = static_cast<int>(training.micro_batches.size());
    trained.report = on_ranks(ranks, [&](Rank& rank) {
        Device& device = rank.device();
        GptSizes sizes{kVocabulary, kLength, 2, {16, 2}};
        const auto gpt = make_gpt({device, training.dtype, 1, ""}, sizes);
        const auto parameters = gpt->parameters();
        declare_replicas_of(rank.world(), *gpt);
        const Sync sync = make_sync(device, rank.world(), parameters);
        const auto optimizer =
            make_optimizer<lockstep::Sgd>(parameters, SgdOptions{training.rate, 0.5, 0});
        int first = 0;
        for (int before = 0; before < rank.index(); ++before)
            first += training.micro_batches[static_cast<std::size_t>(before)];
        for (int step = 0; step < training.steps; ++step) {
            std::vector<MicroBatch> mine;
            const int count =
                training.micro_batches[static_cast<std::size_t>(rank.index())];
            for (int i = first; i < first + count; ++i)
                mine.push_back(batch_of(device, step, i));
            const Tensor loss =
                train_step(device, *gpt, cross_entropy_loss, mine, *sync, *optimizer);
            trained.losses[static_cast<std::size_t>(step)] += device.peek(loss).at(0);
        }
        for (const Parameter* parameter : parameters)
            rank.keep(parameter->name(), parameter->value);
    });
    for (const RankReport& rank : trained.report.ranks)
        CHECK(rank.kept == trained.report.ranks.front().kept);
    return trained;
}

Sync exact(Device&, Communicator&, std::vector<Parameter*> parameters) {
    return std::make_unique<AllReduceSync>(std::move(parameters));
}

Sync rounded(Device& device, Communicator& replicas, std::vector<Parameter*> parameters) {
    return std::make_unique<RoundedAllReduce>(device, replicas, std::move(parameters));
}

/// What two ranks are refused that each have a parameter of that type.
std::string refusal_of(const MakeSync& make_sync, DType dtype, bool declared) {
    std::string refused;
    on_ranks(
        2,
        [&](Rank& rank) {
            const auto parameter = parameter_of(rank, "w", {8, 8}, dtype);
            if (!declared) parameter->placements.clear();
            refused = message_of<UsageError>(
                [&] { make_sync(rank.device(), rank.world(), {parameter.get()}); });
        },
        sim::CheckLevel::cheap);
    return refused;
}

// Rounded to bf16.

constexpr double kHalfStep = Bf16::kEpsilon / 2;

/// How far the sums that arrive are off.
struct Off {
    double of_bound = 0;  ///< the largest, as a part of what is allowed
    double of_sum = 0;    ///< as a part of the sum
};

/// The sums of each rank's normal terms, or of their absolute values.
Off rounded_sums(int ranks, DType dtype, bool positive) {
    const Shape shape{7, 31};
    const auto terms_of = [&](int rank) {
        HostTensor terms = normal_values(shape, fmt::format("terms of {}", rank));
        for (std::int64_t i = 0; i < terms.elements(); ++i)
            terms.set(i, positive ? std::abs(terms.at(i)) : terms.at(i));
        return terms.as(dtype);
    };
    HostTensor arrived;
    on_ranks(ranks, [&](Rank& rank) {
        const auto parameter = parameter_of(rank, "w", shape, dtype);
        const Sync sync = rounded(rank.device(), rank.world(), {parameter.get()});
        set_gradient(*parameter, terms_of(rank.index()));
        sync->begin();
        sync->finish();
        const HostTensor got = rank.device().peek(parameter->gradient);
        if (rank.index() == 0) arrived = got;
        CHECK(got == arrived);  // the same bits on all
        CHECK(parameter->complete);
    });
    Off off;
    for (std::int64_t i = 0; i < arrived.elements(); ++i) {
        double sum = 0, size = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const double term = terms_of(rank).at(i);
            sum += term;
            size += std::abs(term);
        }
        const double apart = std::abs(arrived.at(i) - sum);
        const double bound = (std::pow(1 + kHalfStep, ranks) - 1) * size;
        off.of_bound = std::max(off.of_bound, apart / bound);
        off.of_sum = std::max(off.of_sum, apart / std::abs(sum));
    }
    return off;
}

}  // namespace

TEST_CASE("Sums that travel in bf16 are within a rounding a rank of all terms",
          "[parallel][sim][bf16]") {
    const int ranks = GENERATE(1, 2, 3, 4, 5, 8);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    CAPTURE(ranks);
    const Off normal = rounded_sums(ranks, dtype, false);
    const Off positive = rounded_sums(ranks, dtype, true);
    CHECK(normal.of_bound <= 1);
    CHECK(positive.of_bound <= 1);
    // One rounding of the sum is no bound: they add up.
    if (ranks >= 3) CHECK(positive.of_sum > kHalfStep);
    // And none is left out: a result in f32 would be far better.
    CHECK(positive.of_sum > kHalfStep / 4);
}

TEST_CASE("A small term may vanish, as its place in the buffer has it",
          "[parallel][sim][bf16]") {
    // Rank 0 has 1, the others 2^-9: the sum, 1 + 2^-7, is a number of bf16.
    constexpr double kSmall = 0x1p-9, kAll = 1 + 4 * kSmall;
    HostTensor arrived;
    on_ranks(5, [&](Rank& rank) {
        const auto parameter = parameter_of(rank, "w", {5}, DType::f32);
        const Sync sync = rounded(rank.device(), rank.world(), {parameter.get()});
        const double term = rank.index() == 0 ? 1 : kSmall;
        set_gradient(*parameter, HostTensor::of<double>({5}, std::vector(5, term)));
        sync->finish();
        arrived = rank.device().peek(parameter->gradient);
    });
    // Each rank has one element's sum begin behind it: element 0 begins with rank 1, and
    // meets the 1 last. Element 4 begins with the 1, to which no small term is added.
    const std::vector<float> expected{kAll, kAll, 1, 1, 1};
    CHECK(arrived == HostTensor::of<float>({5}, expected));
}

TEST_CASE("Gradients in bf16 take two bytes an element, once a step",
          "[parallel][sim][bf16]") {
    const int ranks = GENERATE(1, 2, 3, 4);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    CAPTURE(ranks);
    const Training training{dtype, 2, std::vector<int>(ranks, kMicroBatches / ranks)};
    const Trained trained = train(training, rounded);
    std::int64_t elements = 0;
    for (const auto& [name, value] : trained.report.ranks[0].kept)
        elements += value.elements();
    CHECK(bytes_sent(trained.report) == 2 * (2 * (ranks - 1) * 2 * elements));
}

TEST_CASE("Gradients that travel in bf16 train nearly as those that do not",
          "[parallel][sim][bf16]") {
    const Training training{DType::f32, 20, {3, 4, 5}};
    const Trained usual = train(training, exact), small = train(training, rounded);
    CHECK(usual.losses.back() < 0.5 * usual.losses.front());
    for (std::size_t step = 0; step < usual.losses.size(); ++step)
        CHECK(std::abs(small.losses[step] - usual.losses[step]) <=
              0.02 * usual.losses[step]);
    CHECK(small.losses != usual.losses);
}

TEST_CASE("What cannot be rounded on its way is refused", "[parallel][errors][bf16]") {
    CHECK(refusal_of(rounded, DType::bf16, true)
              .starts_with("RoundedAllReduce: gradients are bf16 already; "
                           "GradientBuckets sends them as they are"));
    CHECK(refusal_of(rounded, DType::f32, false)
              .starts_with("RoundedAllReduce: w is not known to be partial along world"));
}

}  // namespace lockstep::test
