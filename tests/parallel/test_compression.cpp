// Compressed gradients: what is lost, what is kept, and how many bytes are sent.

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/power_sgd.hpp"
#include "src/parallel/rounded_all_reduce.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
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
    options.workers = 1;  // because all ranks write to the caller's variables
    return sim::make_cluster(options)->run(program);
}

std::int64_t bytes_sent(const RunReport& report) {
    std::int64_t bytes = 0;
    for (const RankReport& rank : report.ranks)
        bytes += rank.bytes_sent();
    return bytes;
}

/// Returns a replicated parameter whose gradient consists of the ranks' terms.
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
constexpr std::int64_t kSequences = 4;  // in a micro-batch
constexpr int kMicroBatches = 12;       // in a step, over all ranks

/// Texts with something to learn: a token nearly always has the same next token.
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
    std::vector<int> micro_batches{};  ///< on each rank; kMicroBatches in all
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

/// Returns the message that two ranks get from make_sync for a parameter of this type.
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

// Gradients that are rounded to bf16.

constexpr double kHalfStep = Bf16::kEpsilon / 2;

/// The errors of the sums that the ranks get.
struct Off {
    double of_bound = 0;  ///< the largest error, as a fraction of the bound
    double of_sum = 0;    ///< the largest error, as a fraction of the sum
};

/// Returns the errors of sums of normal terms or, if `positive`, of their magnitudes.
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
        sync->begin();
        set_gradient(*parameter, terms_of(rank.index()));
        sync->finish();
        const HostTensor got = rank.device().peek(parameter->gradient);
        if (rank.index() == 0) arrived = got;
        CHECK(got == arrived);  // the same bits on all ranks
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

TEST_CASE("In a sum that is sent in bf16, each rank adds at most one rounding",
          "[parallel][sim][bf16]") {
    const int ranks = GENERATE(1, 2, 3, 4, 5, 8);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    CAPTURE(ranks);
    const Off normal = rounded_sums(ranks, dtype, false);
    const Off positive = rounded_sums(ranks, dtype, true);
    CHECK(normal.of_bound <= 1);
    CHECK(positive.of_bound <= 1);
    // The roundings add up, so the error is larger than that of one rounding.
    if (ranks >= 3) CHECK(positive.of_sum > kHalfStep);
    // The sums are rounded; a result in f32 would be far more exact.
    CHECK(positive.of_sum > kHalfStep / 4);
}

TEST_CASE("A small term may vanish, depending on its place in the buffer",
          "[parallel][sim][bf16]") {
    // Rank 0 has 1, the other ranks 2^-9. The sum, 1 + 2^-7, is exact in bf16.
    constexpr double kSmall = 0x1p-9, kAll = 1 + 4 * kSmall;
    HostTensor arrived;
    on_ranks(5, [&](Rank& rank) {
        const auto parameter = parameter_of(rank, "w", {5}, DType::f32);
        const Sync sync = rounded(rank.device(), rank.world(), {parameter.get()});
        const double term = rank.index() == 0 ? 1 : kSmall;
        sync->begin();
        set_gradient(*parameter, HostTensor::of<double>({5}, std::vector(5, term)));
        sync->finish();
        arrived = rank.device().peek(parameter->gradient);
    });
    // The sum of element r begins on rank r + 1. Element 0 begins with a small term and
    // adds the 1 last. Element 4 begins with the 1, so small terms change nothing.
    const std::vector<float> expected{kAll, kAll, 1, 1, 1};
    CHECK(arrived == HostTensor::of<float>({5}, expected));
}

TEST_CASE("Gradients in bf16 are sent as two bytes an element, once a step",
          "[parallel][sim][bf16]") {
    const int ranks = GENERATE(1, 2, 3, 4);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    CAPTURE(ranks);
    const Training training{dtype, 2, std::vector<int>(ranks, kMicroBatches / ranks)};
    const Trained trained = train(training, rounded);
    std::int64_t elements = 0;
    for (const auto& [name, value] : trained.report.ranks[0].kept)
        elements += value.elements();
    CHECK(bytes_sent(trained.report) == elements * training.steps * 2 * 2 * (ranks - 1));
}

TEST_CASE("Gradients sent in bf16 train nearly as well as in f32",
          "[parallel][sim][bf16]") {
    const Training training{DType::f32, 20, {3, 4, 5}};
    const Trained usual = train(training, exact), small = train(training, rounded);
    CHECK(usual.losses.back() < 0.5 * usual.losses.front());
    for (std::size_t step = 0; step < usual.losses.size(); ++step)
        CHECK(std::abs(small.losses[step] - usual.losses[step]) <=
              0.02 * usual.losses[step]);
    CHECK(small.losses != usual.losses);
}

TEST_CASE("Rounded gradients are sent during backward", "[parallel][sim][bf16]") {
    const auto step_of = [](const BucketSizes& sizes) {
        sim::ClusterOptions options;
        options.ranks = 4;
        options.numbers = false;
        options.spec = load_cluster("classroom");
        return sim::make_cluster(options)->run([&](Rank& rank) {
            Device& device = rank.device();
            const auto gpt = make_gpt({device, DType::f32, 1, ""}, {64, 32, 4, {128, 4}});
            declare_replicas_of(rank.world(), *gpt);
            RoundedAllReduce sync(device, rank.world(), gpt->parameters(), sizes);
            lockstep::Sgd optimizer(gpt->parameters());
            const Tensor ids = device.zeros({32, 16}, DType::i32);
            const MicroBatch batch{ids, ids, 0.25};
            train_step(device, *gpt, cross_entropy_loss, {&batch, 1}, sync, optimizer);
        });
    };
    constexpr std::int64_t kBlock = std::int64_t{4} * 12 * 128 * 128;
    constexpr BucketSizes kLayer{kBlock, kBlock};
    const RunReport at_end = step_of(BucketSizes::all_in_one());
    const RunReport overlapped = step_of(kLayer);
    CHECK(bytes_sent(overlapped) == bytes_sent(at_end));
    CHECK(overlapped.ranks[0].time.waiting < at_end.ranks[0].time.waiting / 2);
}

TEST_CASE("Values that cannot be rounded for a message are refused",
          "[parallel][errors][bf16]") {
    CHECK(refusal_of(rounded, DType::bf16, true)
              .starts_with("RoundedAllReduce: gradients are bf16 already; "
                           "BucketedDataParallel sends them as they are"));
    CHECK(refusal_of(rounded, DType::f32, false)
              .starts_with("RoundedAllReduce: w is not known to be partial along world"));
}

namespace {

// Gradients that PowerSGD compresses.

MakeSync power_sgd(std::int64_t r) {
    return
        [r](Device& device, Communicator& replicas, std::vector<Parameter*> parameters) {
            return std::make_unique<PowerSgd>(device, replicas, std::move(parameters),
                                              PowerSgdOptions{r, 5});
        };
}

const PowerSgd::Matrix& only_matrix(const PowerSgd& sync) {
    REQUIRE(sync.matrices().size() == 1);
    return sync.matrices().front();
}

HostTensor sum_of(const std::vector<HostTensor>& terms) {
    HostTensor sum(terms.front().shape(), DType::f64);
    for (const HostTensor& term : terms)
        for (std::int64_t i = 0; i < sum.elements(); ++i)
            sum.set(i, sum.at(i) + term.at(i));
    return sum;
}

HostTensor difference_of(const HostTensor& a, const HostTensor& b) {
    HostTensor difference = a.as(DType::f64);
    for (std::int64_t i = 0; i < difference.elements(); ++i)
        difference.set(i, a.at(i) - b.at(i));
    return difference;
}

/// Returns the sum of the squares of all elements.
double squares_of(const HostTensor& values) {
    double sum = 0;
    for (std::int64_t i = 0; i < values.elements(); ++i)
        sum += values.at(i) * values.at(i);
    return sum;
}

constexpr std::int64_t kRows = 14;
constexpr std::int64_t kColumns = 9;

/// Returns a matrix whose rank, in the sense of linear algebra, is `rank`.
HostTensor low_rank(std::int64_t rank, const std::string& name) {
    const HostTensor left = normal_values({kRows, rank}, name + "/left");
    const HostTensor right = normal_values({rank, kColumns}, name + "/right");
    HostTensor product({kRows, kColumns}, DType::f64);
    for (std::int64_t i = 0; i < product.elements(); ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < rank; ++k)
            sum +=
                left.at(i / kColumns * rank + k) * right.at(k * kColumns + i % kColumns);
        product.set(i, sum);
    }
    return product;
}

/// Returns a rank's terms of a gradient in a step.
using Terms = std::function<HostTensor(int rank, int step)>;

/// The history of one matrix: its gradients, the applied gradients, and what each rank
/// kept for later.
struct Course {
    std::vector<std::vector<HostTensor>> given;   ///< by step and rank
    std::vector<HostTensor> applied;              ///< by step
    std::vector<std::vector<HostTensor>> errors;  ///< by step and rank, after the step

    /// Returns the sum of all ranks' M (terms and kept error) in a step.
    HostTensor sum_of_m(std::size_t step) const {
        std::vector<HostTensor> all = given[step];
        if (step > 0)
            all.insert(all.end(), errors[step - 1].begin(), errors[step - 1].end());
        return sum_of(all);
    }
};

/// Runs after each step, for example to make a mistake.
using AfterStep = std::function<void(Rank&, const PowerSgd::Matrix&)>;

Course course_of(int ranks, std::int64_t r, int steps, const Terms& terms,
                 DType dtype = DType::f64, const AfterStep& after = {}) {
    Course course;
    const std::vector<HostTensor> none(static_cast<std::size_t>(ranks));
    course.given.assign(static_cast<std::size_t>(steps), none);
    course.errors = course.given;
    course.applied.resize(static_cast<std::size_t>(steps));
    on_ranks(ranks, [&](Rank& rank) {
        Device& device = rank.device();
        const auto parameter = parameter_of(rank, "w", {kRows, kColumns}, dtype);
        PowerSgd sync(device, rank.world(), {parameter.get()}, {r});
        const auto me = static_cast<std::size_t>(rank.index());
        Sgd optimizer({parameter.get()});
        for (std::size_t step = 0; step < course.applied.size(); ++step) {
            set_gradient(*parameter, terms(rank.index(), static_cast<int>(step)));
            course.given[step][me] = device.peek(parameter->gradient);
            sync.begin();
            sync.finish();
            sync.update(optimizer);
            const PowerSgd::Matrix& matrix = only_matrix(sync);
            const HostTensor applied = device.peek(parameter->gradient);
            if (me == 0) course.applied[step] = applied;
            CHECK(applied == course.applied[step]);
            course.errors[step][me] = device.peek(matrix.error);
            if (after) after(rank, matrix);
        }
    });
    return course;
}

/// Full matrices whose magnitudes differ between ranks and steps.
HostTensor full_terms(int rank, int step) {
    HostTensor terms =
        normal_values({kRows, kColumns}, fmt::format("{} in {}", rank, step));
    for (std::int64_t i = 0; i < terms.elements(); ++i)
        terms.set(i, terms.at(i) * (1 + 3 * rank) / (1 + step));
    return terms;
}

}  // namespace

TEST_CASE("A sum of gradients of rank r passes through r columns unchanged",
          "[parallel][sim]") {
    const int ranks = GENERATE(1, 2, 3, 4);
    const std::int64_t r = GENERATE(1, 2, 4);
    CAPTURE(ranks, r);
    // Each step has a different sum. Some sums have a lower rank, and one is zero. The
    // ranks' terms have full rank, but add up to this sum.
    const std::vector<std::int64_t> rank_in{r, r, 0, r, 1, r};
    const auto sum_in = [&](int step) {
        const std::int64_t rank = rank_in[static_cast<std::size_t>(step)];
        return rank == 0 ? HostTensor({kRows, kColumns}, DType::f64)
                         : low_rank(rank, fmt::format("sum in {}", step));
    };
    const Course course =
        course_of(ranks, r, static_cast<int>(rank_in.size()), [&](int rank, int step) {
            const HostTensor sum = sum_in(step);
            std::vector<HostTensor> others;
            for (int other = 1; other < ranks; ++other)
                others.push_back(normal_values(sum.shape(), fmt::format("{}", other)));
            if (rank > 0) return others[static_cast<std::size_t>(rank - 1)];
            return others.empty() ? sum : difference_of(sum, sum_of(others));
        });
    for (std::size_t step = 0; step < rank_in.size(); ++step) {
        CAPTURE(step);
        const HostTensor off =
            difference_of(course.applied[step], sum_in(static_cast<int>(step)));
        CHECK(std::sqrt(squares_of(off)) <= 1e-11);
        // What the ranks leave out adds up to zero.
        CHECK(std::sqrt(squares_of(sum_of(course.errors[step]))) <= 1e-11);
        if (ranks > 1) CHECK(squares_of(course.errors[step][1]) > 1);
    }
}

TEST_CASE("Applied and kept parts add up to all gradients", "[parallel][sim]") {
    const int ranks = GENERATE(1, 2, 3, 4);
    const auto [dtype, most] =
        GENERATE(std::pair(DType::f64, 1e-13), std::pair(DType::f32, 1e-5),
                 // Each gradient is rounded when it is applied.
                 std::pair(DType::bf16, Bf16::kEpsilon / 2));
    constexpr int kSteps = 6;
    CAPTURE(ranks, name_of(dtype));
    const Course course = course_of(ranks, 2, kSteps, full_terms, dtype);
    std::vector<HostTensor> given;
    for (const auto& step : course.given)
        given.insert(given.end(), step.begin(), step.end());
    std::vector<HostTensor> found = course.applied;
    found.insert(found.end(), course.errors.back().begin(), course.errors.back().end());
    CHECK(relative_difference(sum_of(found), sum_of(given)) <= most);
    CHECK(squares_of(sum_of(course.errors.back())) > 0.01 * squares_of(sum_of(given)));
}

TEST_CASE("The kept part is no larger than the gradient, on each rank and in total",
          "[parallel][sim]") {
    const int ranks = GENERATE(1, 3);
    const std::int64_t r = GENERATE(1, 3);
    constexpr int kSteps = 5;
    CAPTURE(ranks, r);
    const Course course = course_of(ranks, r, kSteps, full_terms);
    for (std::size_t step = 0; step < kSteps; ++step) {
        const HostTensor m = course.sum_of_m(step);
        const double all = squares_of(m), sent = squares_of(course.applied[step]),
                     left = squares_of(difference_of(m, course.applied[step]));
        // Compression is a projection: the sent part and the part left out are orthogonal
        // (Pythagoras).
        CHECK(std::abs(sent + left - all) <= 1e-12 * all);
        CHECK(sent > 0);
        for (std::size_t rank = 0; rank < course.errors[step].size(); ++rank) {
            std::vector<HostTensor> own{course.given[step][rank]};
            if (step > 0) own.push_back(course.errors[step - 1][rank]);
            CHECK(squares_of(course.errors[step][rank]) <= squares_of(sum_of(own)));
        }
    }
}

namespace {

/// A matrix U S V^T with given singular values, and its singular vectors.
struct Decomposed {
    HostTensor left;   ///< U, (kRows, values)
    HostTensor right;  ///< V, (kColumns, values)
    HostTensor matrix;
};

Decomposed decomposed(const std::vector<double>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    Decomposed made;
    on_ranks(1, [&](Rank& rank) {
        Device& device = rank.device();
        const auto orthonormal = [&](std::int64_t rows, const char* name) {
            Tensor x = device.upload(normal_values({rows, count}, name));
            device.orthonormalize(x);
            return x;
        };
        const Tensor u = orthonormal(kRows, "u"), v = orthonormal(kColumns, "v");
        made.left = device.peek(u);
        made.right = device.peek(v);
        HostTensor scaled = made.left;
        for (std::int64_t i = 0; i < scaled.elements(); ++i)
            scaled.set(i, scaled.at(i) * values[static_cast<std::size_t>(i % count)]);
        made.matrix =
            device.peek(device.matmul(device.upload(scaled), v, {.transpose_b = true}));
    });
    return made;
}

double squares_from(const std::vector<double>& values, std::size_t first) {
    double sum = 0;
    for (std::size_t i = first; i < values.size(); ++i)
        sum += values[i] * values[i];
    return sum;
}

const std::vector<double> kValues{5, 4, 2, 1, 0.5, 0.2};

}  // namespace

TEST_CASE("A constant gradient is approximated better in each step", "[parallel][sim]") {
    const auto r = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{3});
    constexpr int kSteps = 30;
    const HostTensor matrix = decomposed(kValues).matrix;
    // Two ranks' terms add up to the matrix. After each step the kept error is set to 0.
    const Course course = course_of(
        2, static_cast<std::int64_t>(r), kSteps,
        [&](int rank, int) {
            HostTensor half = normal_values(matrix.shape(), "half");
            return rank == 0 ? half : difference_of(matrix, half);
        },
        DType::f64,
        [](Rank& rank, const PowerSgd::Matrix& m) { rank.device().fill(m.error, 0); });
    const double best = squares_from(kValues, r);
    double before = squares_of(matrix);
    std::vector<double> excess;
    for (const HostTensor& applied : course.applied) {
        const double left = squares_of(difference_of(matrix, applied));
        CHECK(left <= before * (1 + 1e-12));
        CHECK(left >= best * (1 - 1e-12));
        excess.push_back(left / best - 1);
        before = left;
    }
    // For error feedback a compressor may leave out at most 1 - delta of the squares
    // (Karimireddy et al. 2019, 1901.09847, assumption A). The best approximation has
    // delta = r / min(n, m).
    CHECK(before <= (1 - static_cast<double>(r) / kColumns) * squares_of(matrix));
    CHECK(excess[0] > 1e-3);
    // The excess shrinks by the fourth power of the ratio of two singular values.
    const double ratio = std::pow(kValues[r] / kValues[r - 1], 4);
    CHECK(excess[kSteps - 1] <= 1e-12 + 1e4 * std::pow(ratio, kSteps - 1));
}
TEST_CASE("The first step's approximation follows from the initial numbers of Q",
          "[parallel][sim]") {
    const Decomposed made = decomposed(kValues);
    const Course course = course_of(1, 1, 1, [&](int, int) { return made.matrix; });
    const double left = squares_of(difference_of(made.matrix, course.applied[0]));
    // The component of Q along each right singular vector.
    const RandomStream stream(0, "q/w");
    std::vector<double> along(kValues.size());
    for (std::size_t j = 0; j < along.size(); ++j)
        for (std::int64_t i = 0; i < kColumns; ++i)
            along[j] += stream.normal(static_cast<std::uint64_t>(i)) *
                        made.right.at(i * std::ssize(along) + static_cast<int>(j));
    // P is the sum of s_j along_j u_j, scaled to length 1. The ranks send M^T P.
    double length = 0, sent = 0, bound = squares_from(kValues, 1);
    for (std::size_t j = 0; j < along.size(); ++j) {
        const double part = std::pow(kValues[j] * along[j], 2);
        length += part;
        sent += part * std::pow(kValues[j], 2);
        if (j > 0) bound += part / std::pow(along[0], 2);
    }
    const double all = squares_of(made.matrix);
    CHECK(std::abs(left - (all - sent / length)) <= 1e-12 * all);
    // Halko, Martinsson and Tropp 2011, 0909.4061, theorem 9.1.
    CHECK(left <= bound);
}

TEST_CASE("A compressed step sends the formula's bytes", "[parallel][sim]") {
    const int ranks = GENERATE(1, 2, 3, 4, 5);
    const std::int64_t r = GENERATE(1, 2, 4);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    CAPTURE(ranks, r);
    // r (n + m) < n m is true for the first matrix with all r, and for the second matrix
    // except with r = 4. The condition is false for the other matrices.
    const std::vector<Shape> shapes{{20, 31}, {9, 7}, {4, 1}, {13}, {2, 2}};
    const RunReport report = on_ranks(ranks, [&](Rank& rank) {
        std::vector<std::unique_ptr<Parameter>> owned;
        std::vector<Parameter*> parameters;
        for (const Shape& shape : shapes) {
            owned.push_back(
                parameter_of(rank, fmt::format("w{}", owned.size()), shape, dtype));
            parameters.push_back(owned.back().get());
        }
        PowerSgd sync(rank.device(), rank.world(), parameters, {r});
        CHECK(sync.matrices().size() == (r == 4 ? 1U : 2U));
        for (Parameter* parameter : parameters)
            set_gradient(*parameter, normal_values(parameter->shape(), "terms"));
        sync.finish();
        // A gradient that is sent without compression is the exact sum.
        const HostTensor vector = rank.device().peek(parameters[3]->gradient);
        const HostTensor terms = normal_values({13}, "terms").as(dtype);
        for (std::int64_t i = 0; i < 13; ++i)
            CHECK(std::abs(vector.at(i) - ranks * terms.at(i)) <= 1e-5);
    });
    std::int64_t elements = r * (20 + 31) + 4 + 13 + 4;
    elements += r == 4 ? 63 : r * (9 + 7);
    CHECK(bytes_sent(report) == e * elements * 2 * (ranks - 1));
    const MemoryReport& memory = report.ranks[0].memory;
    const std::int64_t small = r == 4 ? 0 : 1;  // matrix 2 has factors
    CHECK(memory.peak_of(MemoryCategory::optimizer) ==
          e * (620 + r * 31 + small * (63 + r * 7)));
    CHECK(memory.peak_of(MemoryCategory::communication) ==
          e * r * (20 + 31 + small * (9 + 7)));
}

TEST_CASE("Ranks with shares of a batch, of any size, train as one device with all of it",
          "[parallel][sim]") {
    const std::vector<int> shares =
        GENERATE(std::vector{6, 6}, std::vector{3, 3, 3, 3}, std::vector{7, 2, 3},
                 std::vector{1, 8, 2, 1});
    Training training{DType::f64, 5, shares};
    const Trained many = train(training, power_sgd(2));
    training.micro_batches = {kMicroBatches};
    const Trained one = train(training, power_sgd(2));
    for (std::size_t step = 0; step < one.losses.size(); ++step)
        CHECK(std::abs(many.losses[step] - one.losses[step]) <= 1e-10 * one.losses[step]);
    for (const auto& [name, value] : one.report.ranks[0].kept) {
        CAPTURE(name);
        CHECK(relative_difference(many.report.ranks[0].kept.at(name), value) <= 1e-9);
    }
}

namespace {

/// PowerSGD that forgets what it leaves out.
class WithoutErrorFeedback : public PowerSgd {
  public:
    WithoutErrorFeedback(Device& device, Communicator& replicas,
                         std::vector<Parameter*> parameters, PowerSgdOptions options)
        : PowerSgd(device, replicas, std::move(parameters), options), device_(device) {}
    void finish() override {
        PowerSgd::finish();
        for (const Matrix& matrix : matrices())
            device_.fill(matrix.error, 0);
    }

  private:
    Device& device_;
};

MakeSync without_error_feedback(std::int64_t r) {
    return
        [r](Device& device, Communicator& replicas, std::vector<Parameter*> parameters) {
            return std::make_unique<WithoutErrorFeedback>(
                device, replicas, std::move(parameters), PowerSgdOptions{r, 5});
        };
}

}  // namespace

TEST_CASE("A GPT learns nearly as well by compressed gradients as by whole ones",
          "[parallel][sim][bf16]") {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    CAPTURE(name_of(dtype));
    const Training training{dtype, 40, {4, 4, 4}, 0.1};
    const Trained whole = train(training, exact);
    CHECK(whole.losses.back() < 0.1 * whole.losses.front());
    struct Compressed {
        std::int64_t r;
        double loss, loss_without;  ///< final, relative to the loss of whole gradients
    };
    for (const Compressed& expected : {Compressed{2, 1.2, 5}, Compressed{4, 1.1, 2}}) {
        const std::int64_t r = expected.r;
        CAPTURE(r);
        const Trained compressed = train(training, power_sgd(r));
        CHECK(compressed.losses.back() <= expected.loss * whole.losses.back());
        const Trained uncorrected = train(training, without_error_feedback(r));
        CHECK(uncorrected.losses.back() >= expected.loss_without * whole.losses.back());

        // In each step, each of three ranks sends 4/3 times the bytes that are reduced.
        std::int64_t bytes = 0;
        for (const auto& [name, value] : whole.report.ranks[0].kept) {
            const std::int64_t n = value.shape().matrix_rows(),
                               m = value.shape().columns();
            bytes += r * (n + m) < n * m ? r * (n + m) * bytes_of(computed_in(dtype))
                                         : n * m * bytes_of(dtype);
        }
        CHECK(bytes_sent(compressed.report) == std::int64_t{4} * training.steps * bytes);
    }
}

TEST_CASE("Factors save time between nodes, but hardly inside a node",
          "[parallel][sim]") {
    const int ranks = GENERATE(4, 16);  // in nodes of 8
    const auto step_of = [&](const MakeSync& make_sync) {
        sim::ClusterOptions options;
        options.ranks = ranks;
        options.numbers = false;
        options.spec = load_cluster("h100-data-sheet");
        return sim::make_cluster(options)->run([&](Rank& rank) {
            const auto gpt =
                make_gpt({rank.device(), DType::f32, 1, ""}, {5000, 64, 2, {768, 12}});
            declare_replicas_of(rank.world(), *gpt);
            make_sync(rank.device(), rank.world(), gpt->parameters())->finish();
        });
    };
    const RunReport whole = step_of(exact), compressed = step_of(power_sgd(4));
    CHECK(bytes_sent(compressed) < bytes_sent(whole) / 100);
    if (ranks == 4)
        CHECK(compressed.makespan() > whole.makespan() / 2);
    else
        CHECK(compressed.makespan() < whole.makespan() / 2);
}

TEST_CASE("A rank's error does not collect its difference from the other ranks",
          "[parallel][sim]") {
    constexpr int kSteps = 200;
    const HostTensor apart = normal_values({kRows, kColumns}, "apart");
    const Course course = course_of(2, 2, kSteps, [&](int rank, int step) {
        const HostTensor sum =
            normal_values({kRows, kColumns}, fmt::format("sum in {}", step));
        return rank == 0 ? apart : difference_of(sum, apart);
    });
    // If each rank subtracted only half of the applied sum, its error would grow by about
    // `apart` in each step.
    const double kept = std::sqrt(squares_of(course.errors.back()[0]));
    CHECK(kept <= 0.1 * kSteps * std::sqrt(squares_of(apart)));
}

TEST_CASE("Compressed training has the same bits on any number of workers",
          "[parallel][sim]") {
    const auto values = [](int workers) {
        sim::ClusterOptions options;
        options.ranks = 3;
        options.workers = workers;
        const RunReport report = sim::make_cluster(options)->run([](Rank& rank) {
            const auto parameter = parameter_of(rank, "w", {300, 200}, DType::f32);
            PowerSgd sync(rank.device(), rank.world(), {parameter.get()}, {4});
            Sgd optimizer({parameter.get()});
            for (int step = 0; step < 3; ++step) {
                set_gradient(*parameter,
                             normal_values({300, 200},
                                           fmt::format("{} in {}", rank.index(), step)));
                sync.finish();
                sync.update(optimizer);
            }
            rank.keep("w", parameter->value);
        });
        return report.ranks[2].kept.at("w");
    };
    CHECK(values(1) == values(3));
}

TEST_CASE("Compression works with tensor parallelism: replicas stay equal",
          "[parallel][sim]") {
    // With sequence parallelism the gradients of the norms are also summed over tp.
    const bool factors = GENERATE(false, true);
    const MakeSync make_sync = factors ? power_sgd(2) : MakeSync(rounded);
    std::vector<double> losses(25);
    on_ranks(4, [&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 2}});
        SequenceParallel tp(device, mesh["tp"]);
        const GptSizes sizes{kVocabulary, kLength, 2, {16, 2}};
        const GptKit kit = tensor_parallel({}, tp);
        const auto gpt = make_gpt({device, DType::f64, 1, ""}, sizes, kit);
        declare_replicas_of(mesh["dp"], *gpt);
        const Sync sync = make_sync(device, mesh["dp"], gpt->parameters());
        Sgd optimizer(gpt->parameters(), {0.3, 0.5, 0});
        for (std::size_t step = 0; step < losses.size(); ++step) {
            std::vector<MicroBatch> mine;
            mine.reserve(3);
            for (int i = 0; i < 3; ++i)
                mine.push_back(batch_of(device, static_cast<int>(step),
                                        3 * mesh.coordinate("dp") + i));
            for (MicroBatch& batch : mine)
                batch.weight = 1.0 / 6;
            const Tensor loss =
                train_step(device, *gpt, kit.loss(sizes), mine, *sync, optimizer);
            if (tp.rank() == 0) losses[step] += device.peek(loss).at(0);
        }
    });
    CHECK(losses.back() < 0.1 * losses.front());
}

namespace {

/// Returns the message of the mistake that full checking finds in two compressed steps.
std::string found_in(std::uint64_t seed_of_rank_1, const AfterStep& after) {
    return message_of<FaultError>([&] {
        on_ranks(3, [&](Rank& rank) {
            const auto parameter = parameter_of(rank, "w", {kRows, kColumns});
            PowerSgd sync(rank.device(), rank.world(), {parameter.get()},
                          {2, rank.index() == 1 ? seed_of_rank_1 : 0});
            for (int step = 0; step < 2; ++step) {
                set_gradient(*parameter, full_terms(rank.index(), step));
                sync.finish();
                after(rank, only_matrix(sync));
            }
        });
    });
}

}  // namespace

TEST_CASE("A Q that differs between ranks is found", "[parallel][sim][errors]") {
    const auto nothing = [](Rank&, const PowerSgd::Matrix&) {};
    CHECK(found_in(0, nothing) == "(nothing was thrown)");
    const auto is_found = [](const std::string& message) {
        INFO(message);
        CHECK(message.find("the ranks of world must read the same q/w, but do not") !=
              std::string::npos);
    };
    is_found(found_in(1, nothing));
    is_found(found_in(0, [](Rank& rank, const PowerSgd::Matrix& matrix) {
        if (rank.index() == 2) rank.device().scale(matrix.q.rows(3, 1), 1 + 1e-9);
    }));
}

TEST_CASE("Gradients that cannot be compressed are refused", "[parallel][errors]") {
    CHECK(refusal_of(power_sgd(2), DType::f32, false)
              .starts_with("PowerSgd: w is not known to be partial along world"));
    CHECK(refusal_of(power_sgd(0), DType::f32, true)
              .starts_with("PowerSgd: r is 0; 1 or more is expected"));
    CHECK(refusal_of(power_sgd(std::int64_t{1} << 62), DType::f32, true) ==
          "(nothing was thrown)");
    std::string refused;
    on_ranks(1, [&](Rank& rank) {
        const auto narrow = parameter_of(rank, "narrow", {8, 8}, DType::bf16),
                   wide = parameter_of(rank, "wide", {8, 8}, DType::f32);
        refused = message_of<UsageError>([&] {
            PowerSgd(rank.device(), rank.world(), {wide.get(), narrow.get()});
        });
    });
    CHECK(
        refused.starts_with("PowerSgd: narrow is bf16, but wide is f32; parameters of "
                            "one type are expected"));
}

}  // namespace lockstep::test
