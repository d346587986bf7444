// Tests an asynchronous parameter server with a bound on staleness.

#include <algorithm>
#include <cstdint>

#include "src/parallel/parameter_server.hpp"
#include "src/parallel/stale_server.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/data_parallel_task.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

constexpr int kWorkers = 3;
constexpr int kSteps = 8;
constexpr std::int64_t kNoBound = 1000;

struct Served {
    std::vector<StaleUpdate> updates;
    std::map<std::string, HostTensor> values;  ///< of the server
    std::vector<std::vector<double>> losses;   ///< by worker
    RunReport report;
};

/// Trains. Worker 3 is slower than the other workers by `slowness`. Without a bound, uses
/// the synchronous server.
Served train(std::optional<std::int64_t> bound, double slowness = 1,
             const World& world = {}) {
    const RowTask task = mlp_task();
    Served served;
    served.losses.resize(kWorkers);
    sim::ClusterOptions options = options_of(world, kWorkers + 1);
    options.spec.stragglers = {{kWorkers, slowness, 1}};
    served.report = sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto pairs = pairs_with_server(rank.world());  // before any worker is late
        const auto model = task.make_model({device, DType::f64, 1, ""});
        const auto optimizer = momentum_sgd(model->parameters());
        if (rank.index() == 0) {
            if (bound)
                served.updates = serve_stale(device, pairs, model->parameters(),
                                             *optimizer, kSteps, *bound);
            else
                serve_parameters(device, rank.world(), model->parameters(), *optimizer,
                                 kSteps);
            for (const Parameter* parameter : model->parameters())
                rank.keep(parameter->name(), parameter->value);
            return;
        }
        const int worker = rank.index() - 1;
        Communicator& server = bound ? *pairs[worker] : rank.world();
        ServedWorker sync(device, server, model->parameters());
        for (int step = 0; step < kSteps; ++step) {
            const auto mine = batches_of_worker(device, task, step, worker, kWorkers, 1);
            const Tensor loss =
                train_step(device, *model, task.loss, mine, sync, *optimizer);
            served.losses[worker].push_back(device.peek(loss).at(0));
        }
    });
    served.values = served.report.ranks[0].kept;
    return served;
}

std::int64_t most(const std::vector<StaleUpdate>& updates,
                  std::int64_t StaleUpdate::*figure) {
    return (*std::ranges::max_element(updates, {}, figure)).*figure;
}

std::vector<std::int64_t> figures_of(const std::vector<StaleUpdate>& updates) {
    std::vector<std::int64_t> figures;
    for (const StaleUpdate& update : updates)
        figures.insert(figures.end(),
                       {update.worker, update.clock, update.staleness, update.missed});
    return figures;
}

}  // namespace

TEST_CASE("With a bound of 0 an asynchronous server is the synchronous one",
          "[parallel][stale]") {
    for (const double slowness : {1.0, 7.0}) {
        const Served synchronous = train(std::nullopt, slowness);
        const Served bounded = train(0, slowness);
        CHECK(bounded.values == synchronous.values);
        CHECK(bounded.losses == synchronous.losses);
        REQUIRE(bounded.updates.size() == std::size_t{kWorkers} * kSteps);
        CHECK(most(bounded.updates, &StaleUpdate::staleness) == 0);
        CHECK(most(bounded.updates, &StaleUpdate::missed) == 0);
    }
}

TEST_CASE("No update is staler than the bound, and a slow worker reaches the bound",
          "[parallel][stale]") {
    Picoseconds before = 0;
    for (const std::int64_t bound : {0, 1, 2, 3}) {
        CAPTURE(bound);
        const Served served = train(bound, 20);
        REQUIRE(served.updates.size() == std::size_t{kWorkers} * kSteps);
        CHECK(most(served.updates, &StaleUpdate::staleness) == bound);
        // The gradients of each worker arrive in order, each gradient once.
        for (int worker = 0; worker < kWorkers; ++worker) {
            std::int64_t next = 0;
            for (const StaleUpdate& update : served.updates)
                if (update.worker == worker) CHECK(update.clock == next++);
            CHECK(next == kSteps);
        }
        // The larger the bound, the earlier the fast workers finish.
        const Picoseconds end = served.report.ranks[1].time.end;
        if (bound > 0) CHECK(end < before);
        before = end;
    }
}

TEST_CASE("Without a bound a fast worker does not wait for a slow one",
          "[parallel][stale]") {
    const Served slow = train(kNoBound, 50);
    const Served even = train(kNoBound, 1);
    // The slow worker uses the server less often, so it does not delay the others.
    CHECK(slow.report.ranks[1].time.end <= even.report.ranks[1].time.end);
    CHECK(slow.updates.back().worker == kWorkers - 1);
    CHECK(most(slow.updates, &StaleUpdate::missed) >= std::int64_t{2} * (kSteps - 2));
}

TEST_CASE("An asynchronous server gives the same results in every world",
          "[parallel][stale]") {
    for (const std::int64_t bound : {std::int64_t{1}, kNoBound}) {
        const Served usual = train(bound, 3);
        for (const World& world : all_worlds()) {
            const Served other = train(bound, 3, world);
            CHECK(figures_of(other.updates) == figures_of(usual.updates));
            CHECK(other.values == usual.values);
            CHECK(other.losses == usual.losses);
            for (std::size_t rank = 0; rank < usual.report.ranks.size(); ++rank)
                CHECK(other.report.ranks[rank].time.end ==
                      usual.report.ranks[rank].time.end);
        }
    }
}

}  // namespace lockstep::test
