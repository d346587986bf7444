// Programs without a mistake that look like one. The checker must find nothing, by itself
// or after the program's word (Rank::intended).

#include "src/run/diagnosis.hpp"
#include "tests/catch.hpp"
#include "tests/faults/correct.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

/// Trains one layer for some steps. `reduce` sums, averages or exchanges something
/// between backward and the update.
void train_alone(Rank& rank, const std::string& name, std::uint64_t seed,
                 const std::function<void(Linear&, int step)>& reduce,
                 const std::function<void(Linear&, int step)>& after = {}) {
    Device& device = rank.device();
    Linear layer({device, DType::f64, seed, name}, 6, 4);
    Sgd optimizer(layer.parameters());
    for (int i = 0; i < kSteps; ++i) {
        zero_gradients(layer);
        Saved saved;
        const std::int64_t first = std::int64_t{4} * (i * rank.size() + rank.index());
        const Tensor y = layer.forward(random_rows(device, "x", first, 4, 6), saved);
        const Tensor target = random_rows(device, "y", first, 4, 4);
        layer.backward(mean_squared_error(device, y, target).gradient, saved);
        reduce(layer, i);
        step(device, optimizer);
        if (after) after(layer, i);
    }
}

void sum_gradients(Rank& rank, Linear& layer) {
    for (const Parameter* parameter : layer.parameters())
        rank.world().all_reduce(parameter->gradient).wait();
}

/// The objective is the sum of the ranks' means: each rank has a task of its own.
void sum_over_tasks(Rank& rank) {
    train_alone(rank, "trunk", 7,
                [&](Linear& layer, int) { sum_gradients(rank, layer); });
}

/// Averages the values of ranks, a then b, by messages.
void average_with(Rank& rank, Linear& layer, int peer) {
    for (const Parameter* parameter : layer.parameters()) {
        const Tensor theirs = rank.device().empty(parameter->shape(), DType::f64);
        Group group = rank.world().group();
        group.send(parameter->value, peer).recv(theirs, peer).start().wait();
        rank.device().add(parameter->value, theirs);
        rank.device().scale(parameter->value, 0.5);
    }
}

}  // namespace

TEST_CASE("unusual: the sum over tasks, with the program's word", "[faults]") {
    World world;
    world.check = sim::CheckLevel::full;
    const auto found = [&](const Program& program, const char* without = "") {
        sim::ClusterOptions options = options_of(world, 3);
        if (*without != '\0') options.unchecked = {without};
        try {
            sim::make_cluster(options)->run(program);
        } catch (const FaultError& error) {
            return error.diagnosis().fault + " " + error.diagnosis().cause;
        }
        return std::string();
    };
    const std::string said = found(sum_over_tasks);
    CHECK(said.starts_with("F21"));
    CHECK(said.find("rank.intended(\"F21\"") != std::string::npos);
    CHECK(found(sum_over_tasks, "F21").empty());
    CHECK(found(sum_over_tasks, "F22").starts_with("F21"));
    must_stay_silent(3, [](Rank& rank) {
        rank.intended("F21", "the sum over tasks");
        sum_over_tasks(rank);
    });
    CHECK_THROWS_AS(found([](Rank& rank) { rank.intended("F16", "no race"); }),
                    UsageError);
    CHECK_THROWS_AS(found([](Rank& rank) { rank.intended("F21", ""); }), UsageError);
}

TEST_CASE("unusual: gossip with one neighbour after each step", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        train_alone(
            rank, "layer", 7, [](Linear&, int) {},
            [&](Linear& layer, int i) {
                const int next = i % 2 == 0 ? rank.index() ^ 1 : 3 - rank.index();
                average_with(rank, layer, next);
            });
    });
}

TEST_CASE("unusual: replicas that are averaged only after the last step", "[faults]") {
    must_stay_silent(3, [](Rank& rank) {
        train_alone(
            rank, "layer", 7, [](Linear&, int) {},
            [&](Linear& layer, int i) {
                if (i + 1 < kSteps) return;
                for (const Parameter* parameter : layer.parameters())
                    rank.world().all_reduce(parameter->value, Reduction::mean).wait();
            });
    });
}

TEST_CASE("unusual: stages whose layers have one name and one seed", "[faults]") {
    must_stay_silent(3, [](Rank& rank) {
        Device& device = rank.device();
        Linear layer({device, DType::f64, 7, "layer"}, 6, 6);
        Sgd optimizer(layer.parameters());
        const int stage = rank.index(), last = rank.size() - 1;
        const Tensor loss = device.zeros({1}, DType::f64);
        for (std::int64_t i = 0; i < kSteps; ++i) {
            zero_gradients(layer);
            Saved saved;
            Tensor x = random_rows(device, "x", 4 * i, 4, 6);
            if (stage > 0) rank.world().recv(x, stage - 1).wait();
            const Tensor y = layer.forward(x, saved);
            Tensor dy = device.empty(y.shape(), DType::f64);
            if (stage < last) {
                rank.world().send(y, stage + 1).wait();
                rank.world().recv(dy, stage + 1).wait();
            } else {
                dy = mean_squared_error(device, y, random_rows(device, "y", 4 * i, 4, 6))
                         .gradient;
            }
            const Tensor dx = layer.backward(dy, saved);
            if (stage > 0) rank.world().send(dx, stage - 1).wait();
            rank.world().all_reduce(loss).wait();
            step(device, optimizer);
        }
    });
}

TEST_CASE("unusual: own parts of a bias, which all start as zeros", "[faults]") {
    must_stay_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        Parameter bias({device, DType::f64, 7, "fc"}, "bias", Shape{4});
        device.fill(bias.value, 0);
        for (int i = 0; i < kSteps; ++i) {
            const Tensor whole =
                device.empty({std::int64_t{4} * rank.size()}, DType::f64);
            rank.world().all_gather(whole, bias.value).wait();
            const Tensor gradient =
                random_rows(device, "g", 2 * i + rank.index(), 1, 4).flat();
            device.sgd(bias.value, gradient, Tensor(), {});
        }
    });
}

TEST_CASE("unusual: a bias on every rank, and then a mean", "[faults]") {
    must_stay_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        const PhaseScope phase(device, Phase::forward, 0);
        const Tensor y = random_rows(device, "y", std::int64_t{4} * rank.index(), 4, 6);
        device.add(y, random_rows(device, "bias", 0, 4, 6));
        rank.world().all_reduce(y, Reduction::mean).wait();
        rank.keep("y", y);
    });
}

TEST_CASE("unusual: one collective, called from two lines", "[faults]") {
    must_stay_silent(3, [](Rank& rank) {
        const Tensor x = rank.device().zeros({8}, DType::f32);
        for (int root = 0; root < rank.size(); ++root) {
            if (rank.index() == root)  // NOLINT(bugprone-branch-clone): two lines
                rank.world().broadcast(x, root).wait();
            else
                rank.world().broadcast(x, root).wait();
            if (rank.index() == 0)  // NOLINT(bugprone-branch-clone): two lines
                rank.world().all_reduce(x).wait();
            else
                rank.world().all_reduce(x).wait();
        }
        Group group = rank.world().group();
        const Tensor copy = rank.device().empty({8}, DType::f32);
        group.send(x, rank.index()).recv(copy, rank.index()).start().wait();
    });
}

}  // namespace lockstep::test
