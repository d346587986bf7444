// Waits for the first arrival. Virtual time decides, whatever the host's order is.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

constexpr Picoseconds kMicrosecond = 1'000'000;

Tensor numbers(Rank& rank, std::int64_t count, double value) {
    Tensor tensor = rank.device().empty({count}, DType::f64);
    rank.device().fill(tensor, value);
    return tensor;
}

/// Makes this many launches, each of a microsecond.
void compute(Rank& rank, int launches) {
    const Tensor nothing = rank.device().empty({0}, DType::f64);
    for (int i = 0; i < launches; ++i)
        rank.device().fill(nothing, 0);
}

/// Returns, for each worker, a communicator of rank 0 (member 0) and the worker. On a
/// worker, all pointers are null except the pointer to its own pair.
std::vector<std::unique_ptr<Communicator>> pairs_with_server(Rank& rank) {
    std::vector<std::unique_ptr<Communicator>> pairs;
    for (int worker = 1; worker < rank.size(); ++worker)
        pairs.push_back(rank.world().subgroup({0, worker}, "pair"));
    return pairs;
}

/// An asynchronous parameter server. Each worker computes for a time of its own, sends a
/// gradient, and receives the current value. The server records the order of arrival.
void serve(Rank& rank, const std::vector<int>& launches, int steps) {
    const auto pairs = pairs_with_server(rank);
    const Tensor value = numbers(rank, 100, 1);
    if (rank.index() > 0) {
        Communicator& server = *pairs[rank.index() - 1];
        const Tensor gradient = numbers(rank, 100, 0);
        for (int step = 0; step < steps; ++step) {
            compute(rank, launches[rank.index() - 1]);
            rank.device().scale(value, 0.5);
            rank.device().copy(gradient, value);
            server.send(gradient, 0).wait();
            server.recv(value, 0).wait();
        }
        rank.keep("value", value);
        return;
    }
    std::vector<Tensor> arriving;
    std::vector<Work> works;
    for (const auto& pair : pairs) {
        arriving.push_back(numbers(rank, 100, 0));
        works.push_back(pair->recv(arriving.back(), 1));
    }
    std::vector<int> left(pairs.size(), steps);
    for (std::size_t i = 0; i < pairs.size() * static_cast<std::size_t>(steps); ++i) {
        const std::size_t worker = wait_any(works);
        rank.keep_value("order", static_cast<double>(worker + 1));
        rank.device().scale(value, 0.9);
        rank.device().add(value, arriving[worker]);
        pairs[worker]->send(value, 1).wait();
        if (--left[worker] > 0) works[worker] = pairs[worker]->recv(arriving[worker], 1);
    }
    rank.keep("value", value);
}

std::string order_of(const RunReport& report) {
    std::string text;
    for (const double worker : report.ranks[0].series.at("order"))
        text += std::to_string(static_cast<int>(worker));
    return text;
}

}  // namespace

TEST_CASE("a server that takes the first arrival has the same result in every world",
          "[sim][wait_any]") {
    const auto run = [](const World& world) {
        return make_cluster_in(world, 4)->run([](Rank& rank) {
            serve(rank, {50, 50, 200}, 6);
        });
    };
    const RunReport usual = run({});
    // The fast workers make three rounds, of about 56 us each, before the slow worker
    // makes one.
    CHECK(order_of(usual) == "121212312121233333");
    for (const World& world : all_worlds()) {
        const RunReport report = run(world);
        CHECK(order_of(report) == order_of(usual));
        CHECK(report.makespan() == usual.makespan());
        for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
            CHECK(report.ranks[rank].kept == usual.ranks[rank].kept);
            CHECK(report.ranks[rank].time.end == usual.ranks[rank].time.end);
        }
    }
}

TEST_CASE("the work that ends first is taken, even if all have ended",
          "[sim][wait_any]") {
    // A barrier of four takes 2 us, and a message of no bytes takes 1 us. The workers
    // send 10, 30 and 20 us after the barrier.
    const int busy = GENERATE(0, 100);
    const RunReport report = make_cluster_in({}, 4)->run([&](Rank& rank) {
        const auto pairs = pairs_with_server(rank);
        rank.world().barrier().wait();
        const Tensor nothing = rank.device().empty({0}, DType::f64);
        if (rank.index() > 0) {
            compute(rank, std::vector{10, 30, 20}[rank.index() - 1]);
            pairs[rank.index() - 1]->send(nothing, 0).wait();
            return;
        }
        std::vector<Work> works;
        works.reserve(pairs.size());
        for (const auto& pair : pairs)
            works.push_back(pair->recv(nothing, 1));
        compute(rank, busy);
        rank.keep_value("order", static_cast<double>(wait_any(works) + 1));
        rank.keep_value("order", static_cast<double>(wait_any(works) + 1));
        rank.keep_value("order", static_cast<double>(wait_any(works) + 1));
        CHECK_THROWS_AS(wait_any(works), UsageError);
        CHECK_THROWS_AS(works[0].wait(), UsageError);
    });
    CHECK(order_of(report) == "132");
    CHECK(report.ranks[0].time.end == (2 + std::max(31, busy)) * kMicrosecond);
}

TEST_CASE("collectives can be waited for as they end", "[sim][wait_any]") {
    const RunReport report = make_cluster_in({}, 4)->run([](Rank& rank) {
        Mesh mesh(rank.world(), {{"rows", 2}, {"columns", 2}});
        const Tensor large = numbers(rank, 10'000, 1), small = numbers(rank, 1, 1);
        std::vector<Work> works;
        works.push_back(mesh["rows"].all_reduce(large));
        works.push_back(mesh["columns"].all_reduce(small));
        rank.keep_value("order", static_cast<double>(wait_any(works)));
        rank.keep_value("order", static_cast<double>(wait_any(works)));
        rank.keep("sum", large);
    });
    CHECK(order_of(report) == "10");
    CHECK(report.ranks[3].kept.at("sum").at(0) == 2);
}

TEST_CASE("a wait_any for operations that never end is explained", "[sim][wait_any]") {
    const Diagnosis gone = fault_of(3, [](Rank& rank) {
        const auto pairs = pairs_with_server(rank);
        if (rank.index() > 0) return;
        const Tensor x = numbers(rank, 4, 0), y = numbers(rank, 4, 0);
        std::vector<Work> works;
        works.push_back(pairs[0]->recv(x, 1));
        works.push_back(pairs[1]->recv(y, 1));
        wait_any(works);
    });
    CHECK(gone.fault == "F10");
    CHECK(gone.cause.find("if messages arrive in another order") != std::string::npos);

    // The message must not mention wait_any here.
    const Diagnosis plain = fault_of(2, [](Rank& rank) {
        if (rank.index() == 0) rank.world().recv(numbers(rank, 4, 0), 1).wait();
    });
    CHECK(plain.cause.find("another order") == std::string::npos);
}

}  // namespace lockstep::test
