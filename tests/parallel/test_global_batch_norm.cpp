// Compares batch norm over the rows of all ranks with one device that has all rows.

#include <vector>

#include "src/core/require.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/global_batch_norm.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/uneven_inputs.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kNormWidth = 7;
constexpr int kNormPasses = 2;

/// Returns the number of rows of each rank. The numbers differ; with more than three
/// ranks, the second rank has none.
std::vector<std::int64_t> dealt(int ranks) {
    std::vector<std::int64_t> rows;
    rows.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
        rows.push_back(ranks > 3 && rank == 1 ? 0 : 3 + 5 * rank % 7);
    return rows;
}

std::int64_t sum_of(const std::vector<std::int64_t>& rows, int count) {
    std::int64_t sum = 0;
    for (int i = 0; i < count; ++i)
        sum += rows[static_cast<std::size_t>(i)];
    return sum;
}

using Make = std::function<std::unique_ptr<BatchNorm>(const ParameterInit&, Rank&)>;

std::unique_ptr<BatchNorm> make_global(const ParameterInit& init, Rank& rank) {
    return std::make_unique<GlobalBatchNorm>(init, rank.world(), kNormWidth);
}

/// Runs forward and backward on some batches. Each rank uses its own rows and keeps the
/// results.
RunReport run_norm(const std::vector<std::int64_t>& rows, const Make& make) {
    const auto ranks = static_cast<int>(rows.size());
    return classroom(ranks, true, sim::CheckLevel::full)->run([&](Rank& rank) {
        Device& device = rank.device();
        const ParameterInit init{device, DType::f64, 1, "norm"};
        const auto norm = make(init, rank);
        device.upload_into(norm->weight().value, normal_values({kNormWidth}, "weight"));
        zero_gradients(*norm);
        const std::int64_t first = sum_of(rows, rank.index());
        const std::int64_t mine = rows[static_cast<std::size_t>(rank.index())];
        const Shape all{sum_of(rows, ranks), kNormWidth};
        for (int pass = 0; pass < kNormPasses; ++pass) {
            const std::string suffix = std::to_string(pass);
            const auto share = [&](const std::string& name) {
                return device.upload(normal_values(all, name + suffix).rows(first, mine));
            };
            Saved saved;
            const Tensor y = norm->forward(share("x"), saved);
            rank.keep("y" + suffix, y);
            rank.keep("dx" + suffix, norm->backward(share("dy"), saved));
        }
        for (const Parameter* parameter : norm->parameters())
            rank.keep(parameter->name(), parameter->gradient);
        rank.keep("running_mean", norm->running_mean());
        rank.keep("running_var", norm->running_variance());
    });
}

/// Returns the largest relative difference between the joined results of n ranks and one
/// device's results.
double distance(const RunReport& one, const RunReport& many,
                const std::vector<std::int64_t>& rows) {
    double worst = 0;
    const auto compare = [&](const HostTensor& got, const HostTensor& expected) {
        if (expected.elements() > 0)
            worst = std::fmax(worst, relative_difference(got, expected));
    };
    for (const auto& [name, whole] : one.ranks[0].kept) {
        if (name == "norm.weight" || name == "norm.bias") {
            // The ranks' gradients are terms of a sum.
            HostTensor sum(whole.shape(), DType::f64);
            for (const RankReport& rank : many.ranks)
                for (std::int64_t i = 0; i < sum.elements(); ++i)
                    sum.set(i, sum.at(i) + rank.kept.at(name).at(i));
            compare(sum, whole);
            continue;
        }
        const bool is_running = name == "running_mean" || name == "running_var";
        for (std::size_t rank = 0; rank < rows.size(); ++rank)
            compare(many.ranks[rank].kept.at(name),
                    is_running
                        ? whole
                        : whole.rows(sum_of(rows, static_cast<int>(rank)), rows[rank]));
    }
    return worst;
}

RunReport alone(const std::vector<std::int64_t>& rows) {
    return run_norm({sum_of(rows, static_cast<int>(rows.size()))},
                    [](const ParameterInit& init, Rank&) {
                        return std::make_unique<BatchNorm>(init, kNormWidth);
                    });
}

/// A global batch norm that leaves out all-reduce number `forgotten` of its three (1 to
/// 3) and uses the sums of the rank's own rows instead.
class Forgetful : public BatchNorm {
  public:
    Forgetful(const ParameterInit& init, Communicator& line, int forgotten)
        : BatchNorm(init, kNormWidth),
          device_(init.device),
          line_(line),
          forgotten_(forgotten) {}

  private:
    Tensor of_batch(const Tensor& own, SourceLine at) override {
        Tensor all = device_.empty(own.shape(), own.dtype());
        device_.copy(all, own);
        if (calls_++ % 3 + 1 != forgotten_) line_.all_reduce(all).wait(at);
        return all;
    }

    Device& device_;
    Communicator& line_;
    int forgotten_;
    int calls_ = 0;
};

}  // namespace

TEST_CASE("batch norm over the rows of n ranks equals one device's", "[sim][parallel]") {
    const int n = GENERATE(1, 2, 3, 4, 5);
    CAPTURE(n);
    const std::vector<std::int64_t> rows = dealt(n);
    const RunReport many = run_norm(rows, make_global);
    CHECK(distance(alone(rows), many, rows) <= 1e-12);
    // Running statistics are replicas, with the same bits.
    for (const RankReport& rank : many.ranks)
        for (const char* name : {"running_mean", "running_var"})
            CHECK(rank.kept.at(name) == many.ranks[0].kept.at(name));
}

TEST_CASE("batch norm with each rank's own statistics is another function",
          "[sim][parallel]") {
    const std::vector<std::int64_t> rows = dealt(3);
    const RunReport many = run_norm(rows, [](const ParameterInit& init, Rank&) {
        return std::make_unique<BatchNorm>(init, kNormWidth);
    });
    CHECK(distance(alone(rows), many, rows) > 1e-2);
    CHECK_FALSE(many.ranks[0].kept.at("running_mean") ==
                many.ranks[1].kept.at("running_mean"));
}

TEST_CASE("batch norm needs each of its three all-reduces", "[sim][parallel]") {
    const int forgotten = GENERATE(1, 2, 3);
    CAPTURE(forgotten);
    const std::vector<std::int64_t> rows = dealt(3);
    const RunReport many = run_norm(rows, [&](const ParameterInit& init, Rank& rank) {
        return std::make_unique<Forgetful>(init, rank.world(), forgotten);
    });
    CHECK(distance(alone(rows), many, rows) > 1e-3);
}

TEST_CASE("batch norm over n ranks sends 4 w + 1 numbers twice round the ring",
          "[sim][parallel]") {
    const int n = GENERATE(1, 2, 4, 5);
    CAPTURE(n);
    const RunReport many = run_norm(dealt(n), make_global);
    std::int64_t bytes = 0;
    for (const RankReport& rank : many.ranks) {
        bytes += rank.bytes_sent();
        CHECK(rank.messages_sent() == std::int64_t{6} * kNormPasses * (n - 1));
    }
    // Together the ranks send 2 (n-1) times the numbers, even if n does not divide these.
    CHECK(bytes == (4 * kNormWidth + 1) * kNormPasses * 2 * (n - 1) * 8);
}

namespace {

constexpr std::int64_t kFeatures = 4;

/// Returns the number of rows of each of two ranks; in step 1 rank 1 has none.
std::int64_t rows_in(int step, int rank) {
    return rank == 1 && step == 1 ? 0 : 3;
}

void join_or_step(Rank& rank, int step, Module& model, GradientSync& sync,
                  Optimizer& optimizer) {
    Device& device = rank.device();
    const std::int64_t all = rows_in(step, 0) + rows_in(step, 1);
    const std::int64_t mine = rank.size() == 1 ? all : rows_in(step, rank.index());
    if (mine == 0)
        return join_step(device, model, sync, optimizer,
                         device.empty({0, kFeatures}, DType::f64));
    const std::int64_t first = rank.index() == 0 ? 0 : rows_in(step, 0);
    const auto rows = [&](const std::string& name, std::int64_t columns) {
        return device.upload(
            normal_values({all, columns}, name + std::to_string(step)).rows(first, mine));
    };
    const MicroBatch batch{rows("x", kFeatures), rows("y", kNormWidth),
                           static_cast<double>(mine) / static_cast<double>(all)};
    train_step(device, model, mean_squared_error, {&batch, 1}, sync, optimizer);
}

RunReport train_with_norm(int ranks) {
    return classroom(ranks, true, sim::CheckLevel::full)->run([&](Rank& rank) {
        const ParameterInit init{rank.device(), DType::f64, 1, ""};
        Sequential model;
        model.add<Linear>(init.child("in"), kFeatures, kNormWidth);
        if (ranks > 1)
            model.add<GlobalBatchNorm>(init.child("norm"), rank.world(), kNormWidth);
        else
            model.add<BatchNorm>(init.child("norm"), kNormWidth);
        declare_replicas_of(rank.world(), model);
        BucketedDataParallel sync(rank.device(), rank.world(), model.parameters(),
                                  {.sizes = {100, 100}});
        Sgd optimizer(model.parameters(), {0.1, 0.9, 0});
        for (int step = 0; step < 3; ++step)
            join_or_step(rank, step, model, sync, optimizer);
        for (const Parameter* parameter : model.parameters())
            rank.keep(parameter->name(), parameter->value);
    });
}

}  // namespace

TEST_CASE("A rank without rows joins a model with a global batch norm",
          "[sim][parallel]") {
    const RunReport one = train_with_norm(1), two = train_with_norm(2);
    for (const auto& [name, values] : one.ranks[0].kept)
        for (const RankReport& rank : two.ranks)
            CHECK(relative_difference(rank.kept.at(name), values) <= 1e-12);
}

TEST_CASE("batch norm sends nothing during inference", "[sim][parallel]") {
    const RunReport report = classroom(3)->run([](Rank& rank) {
        GlobalBatchNorm norm({rank.device(), DType::f64, 1, "norm"}, rank.world(), 4);
        norm.infer(rank.device().zeros({2, 4}, DType::f64));
    });
    for (const RankReport& rank : report.ranks)
        CHECK(rank.bytes_sent() == 0);
}

TEST_CASE("global batch norm of one rank refuses one row, like batch norm",
          "[sim][parallel][errors]") {
    CHECK_THROWS_WITH(run_norm({1}, make_global),
                      Catch::Matchers::ContainsSubstring("has no variance"));
    // The two ranks together have two rows.
    CHECK_NOTHROW(run_norm({1, 1}, make_global));
}

}  // namespace lockstep::test
