// A gate chooses experts for tokens. The tokens are sent, in unequal parts, to the
// experts' ranks and back. All results together equal those of a loop over the tokens. A
// run that computes only shapes has the time and bytes of a balanced load.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/core/no_count.hpp"
#include "src/nn/routing.hpp"
#include "src/parallel/exchange_counts.hpp"
#include "src/run/diagnosis.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

using Counts = std::vector<std::int64_t>;

constexpr std::int64_t kWidth = 8;

/// Each expert is a linear layer. `experts` and `tokens` are counts per rank.
struct Mixture {
    int ranks = 2;
    std::int64_t tokens = 12;
    std::int64_t chosen = 2;
    std::int64_t experts = 2;

    std::int64_t all_experts() const { return ranks * experts; }
    std::int64_t copies() const { return tokens * chosen; }
    HostTensor weight(std::int64_t expert) const {
        return normal_values({kWidth, kWidth}, fmt::format("expert {}", expert));
    }
};

/// All ranks' tokens, and the gate's weights (width, experts), which give the scores.
struct Data {
    HostTensor x;
    HostTensor gate;
};

Data random_data(const Mixture& mixture) {
    return {normal_values({mixture.ranks * mixture.tokens, kWidth}, "x"),
            normal_values({kWidth, mixture.all_experts()}, "gate")};
}

/// Token t prefers experts t, t + 1 and so on; all experts get equally many tokens.
Data balanced_data(const Mixture& mixture) {
    const std::int64_t experts = mixture.all_experts();
    Data data{HostTensor({mixture.ranks * mixture.tokens, kWidth}, DType::f64),
              HostTensor({kWidth, experts}, DType::f64)};
    for (std::int64_t token = 0; token < data.x.shape()[0]; ++token)
        for (std::int64_t j = 0; j < mixture.chosen; ++j)
            data.x.set(token * kWidth + (token + j) % experts,
                       static_cast<double>(3 - j));
    for (std::int64_t expert = 0; expert < experts; ++expert)
        data.gate.set(expert * experts + expert, 1);
    return data;
}

std::int64_t total(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Returns, for each rank, the sum of its block of counts.
Counts of_ranks(const Counts& counts, int ranks) {
    const auto block = static_cast<std::ptrdiff_t>(counts.size()) / ranks;
    Counts sums;
    for (auto at = counts.begin(); at != counts.end(); at += block)
        sums.push_back(std::accumulate(at, at + block, std::int64_t{0}));
    return sums;
}

/// Multiplies the arrived rows by the weights of their experts. Rows are ordered by
/// sending rank, then by expert.
Tensor by_experts(Rank& rank, const Mixture& mixture, const Tensor& arrived,
                  const Counts& received) {
    Device& device = rank.device();
    std::vector<std::int32_t> experts;
    for (std::size_t i = 0; i < received.size(); ++i)
        experts.insert(
            experts.end(), static_cast<std::size_t>(received[i]),
            static_cast<std::int32_t>(i) % static_cast<std::int32_t>(mixture.experts));
    const Routing own = route(
        device,
        device.upload(HostTensor::of<std::int32_t>({arrived.shape()[0], 1}, experts)),
        mixture.experts);
    const Tensor sorted = device.empty(arrived.shape(), DType::f64);
    device.take_rows(sorted, arrived, own.order);
    const Tensor results = device.empty(arrived.shape(), DType::f64);
    std::int64_t begin = 0;
    for (std::int64_t expert = 0; expert < mixture.experts; ++expert) {
        const std::int64_t count = own.counts[static_cast<std::size_t>(expert)];
        device.matmul_into(
            results.rows(begin, count), sorted.rows(begin, count),
            device.upload(mixture.weight(rank.index() * mixture.experts + expert)));
        begin += count;
    }
    Tensor as_arrived = device.zeros(arrived.shape(), DType::f64);
    device.add_rows(as_arrived, results, own.order);
    return as_arrived;
}

void mix(Rank& rank, const Mixture& mixture, const Data& data) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const Tensor x =
        device.upload(data.x.rows(rank.index() * mixture.tokens, mixture.tokens));
    const Tensor scores = device.softmax(device.matmul(x, device.upload(data.gate)));
    const Tensor weights = device.empty({mixture.tokens, mixture.chosen}, DType::f64);
    const Tensor ids = device.empty(weights.shape(), DType::i32);
    device.top_k(weights, ids, scores, mixture.chosen);

    const Routing routing = route(device, ids, mixture.all_experts());
    const Counts received = exchange_counts(device, world, routing.counts);
    const Counts sent_to = of_ranks(routing.counts, mixture.ranks);
    const Counts came_from = of_ranks(received, mixture.ranks);
    const Tensor copies = device.empty({mixture.copies(), kWidth}, DType::f64);
    device.take_rows(copies, x, routing.rows);
    const Tensor arrived = device.empty({total(came_from), kWidth}, DType::f64);
    world.all_to_all_v(arrived, came_from, copies, sent_to).wait();
    const Tensor results = by_experts(rank, mixture, arrived, received);
    world.all_to_all_v(copies, sent_to, results, came_from).wait();

    const Tensor factors = device.empty({mixture.copies(), 1}, DType::f64);
    device.take_rows(factors, weights.reshaped(factors.shape()), routing.order);
    device.scale_rows(copies, factors);
    const Tensor y = device.zeros(x.shape(), DType::f64);
    device.add_rows(y, copies, routing.rows);
    rank.keep("y", y);
}

RunReport run(const Mixture& mixture, const Data& data, bool numbers = true,
              sim::CheckLevel check = sim::CheckLevel::full) {
    return classroom(mixture.ranks, numbers, check)->run([&](Rank& rank) {
        mix(rank, mixture, data);
    });
}

/// Computes y token by token, with the experts that have the best scores.
HostTensor mixed_by_a_loop(const Mixture& mixture, const Data& data) {
    const std::int64_t experts = mixture.all_experts();
    HostTensor y(data.x.shape(), DType::f64);
    for (std::int64_t token = 0; token < y.shape()[0]; ++token) {
        std::vector<std::pair<double, std::int64_t>> ranking;
        double sum = 0;
        for (std::int64_t expert = 0; expert < experts; ++expert) {
            double score = 0;
            for (std::int64_t i = 0; i < kWidth; ++i)
                score +=
                    data.x.at(token * kWidth + i) * data.gate.at(i * experts + expert);
            sum += std::exp(score);
            ranking.emplace_back(-std::exp(score), expert);
        }
        std::sort(ranking.begin(), ranking.end());
        for (std::int64_t j = 0; j < mixture.chosen; ++j) {
            const auto [negative, expert] = ranking[static_cast<std::size_t>(j)];
            const HostTensor weight = mixture.weight(expert);
            for (std::int64_t i = 0; i < kWidth; ++i)
                for (std::int64_t to = 0; to < kWidth; ++to) {
                    const std::int64_t place = token * kWidth + to;
                    y.set(place, y.at(place) - negative / sum *
                                                   data.x.at(token * kWidth + i) *
                                                   weight.at(i * kWidth + to));
                }
        }
    }
    return y;
}

HostTensor joined(const RunReport& report, const Shape& shape) {
    HostTensor whole(shape, DType::f64);
    std::int64_t at = 0;
    for (const RankReport& rank : report.ranks) {
        const HostTensor& part = rank.kept.at("y");
        for (std::int64_t i = 0; i < part.elements(); ++i)
            whole.set(at++, part.at(i));
    }
    return whole;
}

}  // namespace

TEST_CASE("Experts on several ranks give the same as a loop over the tokens",
          "[parallel][sim]") {
    for (const Mixture& mixture :
         {Mixture{1, 12, 2, 4}, Mixture{2, 12, 2, 2}, Mixture{3, 7, 1, 2},
          Mixture{4, 10, 3, 1}, Mixture{4, 1, 2, 2}}) {
        CAPTURE(mixture.ranks, mixture.tokens, mixture.chosen, mixture.experts);
        const Data data = random_data(mixture);
        for (const auto check : {sim::CheckLevel::cheap, sim::CheckLevel::full})
            CHECK(relative_difference(
                      joined(run(mixture, data, true, check), data.x.shape()),
                      mixed_by_a_loop(mixture, data)) <= 1e-12);
    }
}

TEST_CASE("With shapes only, a mixture of experts has the time and bytes of an even load",
          "[parallel][sim]") {
    for (const Mixture& mixture : {Mixture{2, 12, 2, 2}, Mixture{4, 16, 2, 2},
                                   Mixture{4, 8, 3, 1}, Mixture{3, 9, 2, 1}}) {
        CAPTURE(mixture.ranks, mixture.tokens, mixture.chosen, mixture.experts);
        const Data data = balanced_data(mixture);
        const RunReport even = run(mixture, data);
        CHECK(relative_difference(joined(even, data.x.shape()),
                                  mixed_by_a_loop(mixture, data)) <= 1e-12);
        const RunReport shapes = run(mixture, random_data(mixture), false);
        CHECK(shapes.makespan() == even.makespan());
        const std::int64_t others = mixture.ranks - 1;
        for (std::size_t rank = 0; rank < shapes.ranks.size(); ++rank) {
            const RankReport& mine = shapes.ranks[rank];
            // Rows are sent there and back.
            CHECK(mine.bytes_sent_by("send") ==
                  2 * mixture.copies() * kWidth * 8 * others / mixture.ranks);
            CHECK(mine.bytes_sent_by("all_to_all") == others * mixture.experts * 4);
            CHECK(mine.bytes_sent() == even.ranks[rank].bytes_sent());
            CHECK(mine.memory.peak == even.ranks[rank].memory.peak);
            CHECK(mine.flops == even.ranks[rank].flops);
        }
    }
}

TEST_CASE("In a run of shapes, copies that do not divide evenly go to the first ranks",
          "[parallel][sim]") {
    // Five tokens choose two experts each; the four experts get 3, 3, 2 and 2 copies.
    const Mixture mixture{4, 5, 2, 1};
    const RunReport report = run(mixture, random_data(mixture), false);
    for (std::size_t rank = 0; rank < 4; ++rank) {
        const std::int64_t own = rank < 2 ? 3 : 2;
        // A rank sends all except `own` of its 10 rows to other ranks, and returns `own`
        // rows to each of three ranks.
        CHECK(report.ranks[rank].bytes_sent_by("send") ==
              (10 - own + 3 * own) * kWidth * 8);
    }
}

TEST_CASE("Counts are exchanged block by block", "[parallel][sim]") {
    for (const int ranks : {1, 2, 3}) {
        classroom(ranks)->run([ranks](Rank& rank) {
            const auto count = [](std::int64_t from, std::int64_t to,
                                  std::int64_t expert) {
                return 100 * from + 10 * to + expert;
            };
            Counts counts, expected;
            for (int other = 0; other < ranks; ++other)
                for (int expert = 0; expert < 2; ++expert) {
                    counts.push_back(count(rank.index(), other, expert));
                    expected.push_back(count(other, rank.index(), expert));
                }
            CHECK(exchange_counts(rank.device(), rank.world(), counts) == expected);
        });
    }
}

TEST_CASE("Counts that cannot be exchanged are refused", "[parallel][sim][errors]") {
    classroom(2)->run([](Rank& rank) {
        const auto exchange = [&](const Counts& counts) {
            return refusal([&] { exchange_counts(rank.device(), rank.world(), counts); });
        };
        CHECK_THAT(exchange({1, 2, 3}), says("3 counts for 2 ranks"));
        CHECK_THAT(exchange({1, -1}), says("counts[1] is -1; from 0 to 2147483647"));
        CHECK_THAT(exchange({std::int64_t{1} << 31, 0}), says("counts[0] is 2147483648"));
        CHECK_THAT(exchange({1, kNoCount}), says("ask Device::has_numbers()"));
    });
}

TEST_CASE("Counts that a program downloads itself are refused in a run of shapes only",
          "[parallel][sim][errors]") {
    classroom(2, false)->run([](Rank& rank) {
        Device& device = rank.device();
        const HostTensor downloaded = device.download(device.zeros({2}, DType::i32));
        Counts counts;
        for (const std::int32_t count : downloaded.values<std::int32_t>())
            counts.push_back(count);
        const Tensor x = device.zeros({2, 4}, DType::f32);
        const Tensor y = device.zeros({2, 4}, DType::f32);
        CHECK_THAT(refusal([&] {
                       rank.world().all_to_all_v(y, {1, 1}, x, counts).wait();
                   }),
                   says("send_counts[0] is negative: -2147483648; a run that computes "
                        "shapes only has no numbers to download: use route(), or ask "
                        "Device::has_numbers()"));
        CHECK_THAT(refusal([&] {
                       rank.world().all_to_all_v(y, counts, x, {1, 1}).wait();
                   }),
                   says("recv_counts[0] is negative: -2147483648; a run that computes "
                        "shapes only"));
    });
}

TEST_CASE("A run of shapes only refuses ranks with unequal numbers of tokens",
          "[parallel][sim][errors]") {
    try {
        classroom(2, false)->run([](Rank& rank) {
            Device& device = rank.device();
            const Tensor ids = device.zeros({4 + 2 * rank.index(), 1}, DType::i32);
            const Counts sent = route(device, ids, 2).counts;
            const Counts received = exchange_counts(device, rank.world(), sent);
            const Tensor x = device.zeros({total(sent), 4}, DType::f32);
            const Tensor y = device.zeros({total(received), 4}, DType::f32);
            rank.world().all_to_all_v(y, received, x, sent).wait();
        });
        FAIL("nothing was found");
    } catch (const FaultError& error) {
        CHECK(error.diagnosis().fault == "F08");
        CHECK_THAT(error.diagnosis().cause,
                   says("exchange_counts() assumes that all ranks send the same counts"));
    }
}

}  // namespace lockstep::test
