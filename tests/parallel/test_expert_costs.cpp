// Compares bytes, messages, memory and virtual time of a layer of experts with formulas.

#include <functional>
#include <numeric>
#include <optional>

#include "src/cost/collectives.hpp"
#include "src/cost/products_and_messages.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/expert_task.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kH = 32, kTokens = 64, kInner = 48;
constexpr std::int64_t kNumber = 8;  // bytes

MixtureOfExperts::Sizes layer_of(std::int64_t experts, std::int64_t chosen) {
    MixtureOfExperts::Sizes sizes;
    sizes.hidden = kH;
    sizes.experts.count = experts;
    sizes.experts.inner = kInner;
    sizes.experts.gate.chosen = chosen;
    return sizes;
}

struct Layer {
    MixtureOfExperts::Sizes sizes;
    int ranks = 4;
    bool numbers = false;
    bool trains = true;
    std::int64_t shared = 0;
    std::vector<Mesh::Axis> axes{};  ///< of the ranks; if empty, the ranks are "ep"
    std::function<std::shared_ptr<ExpertExchange>(Mesh&, TensorParallel*)> exchange =
        [](Mesh& mesh, TensorParallel*) { return exchange_experts(mesh, {"ep"}); };
};

RunReport run(const Layer& setting) {
    sim::ClusterOptions options;
    options.ranks = setting.ranks;
    options.workers = 1;
    options.numbers = setting.numbers;
    options.spec = products_and_messages();
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const ParameterInit init{device, DType::f64, 1, ""};
        Mesh mesh(rank.world(), setting.axes.empty()
                                    ? std::vector<Mesh::Axis>{{"ep", setting.ranks}}
                                    : setting.axes);
        std::optional<TensorParallel> tp;
        if (mesh.has("tp")) tp.emplace(device, mesh["tp"]);
        MixtureOfExperts layer(
            init, setting.sizes, setting.exchange(mesh, tp ? &*tp : nullptr),
            setting.shared > 0
                ? make_swiglu_mlp(init.child("shared_experts"), kH, setting.shared)
                : nullptr);
        const Tensor x = device.empty({kTokens, kH}, DType::f64);
        device.random_normal(x, RandomStream(3, "x"), 0, 1, kTokens * kH * rank.index());
        if (!setting.trains) {
            layer.infer(x);
            return;
        }
        Saved saved;
        const Tensor y = layer.forward(x, saved);
        layer.backward(x, saved);
        for (const std::int64_t copies : layer.take_load())
            rank.keep_value("load", static_cast<double>(copies));
    });
}

/// Returns, for each rank, how many rows it sends to each rank.
std::vector<std::vector<std::int64_t>> rows_between(const RunReport& report) {
    const std::size_t ranks = report.ranks.size();
    std::vector<std::vector<std::int64_t>> rows;
    for (const RankReport& rank : report.ranks) {
        const std::vector<double>& load = rank.series.at("load");
        rows.emplace_back(ranks);
        for (std::size_t e = 0; e < load.size(); ++e)
            rows.back()[e * ranks / load.size()] += static_cast<std::int64_t>(load[e]);
    }
    return rows;
}

Picoseconds counts_time(const Layer& setting) {
    std::vector<int> members(static_cast<std::size_t>(setting.ranks));
    std::iota(members.begin(), members.end(), 0);
    return collective_time(
        {Verb::all_to_all, setting.sizes.experts.count / setting.ranks, 4, setting.ranks},
        products_and_messages(), members);
}

/// Returns the time in which one rank sends `rows` rows to each other rank.
Picoseconds messages_time(const Layer& setting, std::int64_t rows) {
    return (setting.ranks - 1) *
           message_time(products_and_messages().inside, rows * kH * kNumber);
}

Picoseconds compute_time(std::int64_t flops) {
    return picoseconds(static_cast<double>(flops) / products_and_messages().flops_f64);
}

}  // namespace

TEST_CASE("Bytes and messages follow from the copies that are sent to experts and back",
          "[parallel][experts][costs]") {
    Layer setting;
    setting.ranks = GENERATE(1, 2, 3, 4);
    setting.numbers = GENERATE(true, false);
    setting.sizes = layer_of(12, GENERATE(3, 6));
    CAPTURE(setting.ranks, setting.numbers, setting.sizes.experts.gate.chosen);
    const RunReport report = run(setting);
    const auto rows = rows_between(report);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        std::int64_t copies = 0, messages = 0;
        for (std::size_t other = 0; other < rows.size(); ++other) {
            if (other == r) continue;
            copies += rows[r][other] + rows[other][r];
            messages += (rows[r][other] > 0) + (rows[other][r] > 0);
        }
        const RankReport& rank = report.ranks[r];
        // Rows are sent to experts and back, both in forward and in backward.
        CHECK(rank.bytes_sent_by("send") == 2 * copies * kH * kNumber);
        CHECK(rank.bytes_sent_by("all_to_all") ==
              4 * 12 * (setting.ranks - 1) / setting.ranks);
        CHECK(rank.bytes_sent() ==
              rank.bytes_sent_by("send") + rank.bytes_sent_by("all_to_all"));
        CHECK(rank.messages_sent() == 2 * messages + setting.ranks - 1);
        // If all experts get equally many rows, a rank sends 4 k N h (n - 1) / n numbers.
        if (!setting.numbers)
            CHECK(rank.bytes_sent_by("send") == 4 * setting.sizes.experts.gate.chosen *
                                                    kTokens * kH * kNumber *
                                                    (setting.ranks - 1) / setting.ranks);
    }
}

TEST_CASE("A layer of experts takes the time of its slowest rank",
          "[parallel][experts][costs]") {
    Layer setting;
    setting.sizes = layer_of(4, 1);
    setting.trains = GENERATE(false, true);
    setting.sizes.experts.load =
        GENERATE(std::vector<double>{}, std::vector<double>{4, 2, 1, 1},
                 std::vector<double>{1, 1, 1, 13});
    const std::int64_t inner = GENERATE(1, 40) * kInner;
    setting.sizes.experts.inner = inner;
    CAPTURE(setting.trains, setting.sizes.experts.load, inner);
    const RunReport report = run(setting);
    const auto most = std::max_element(
        report.ranks.begin(), report.ranks.end(),
        [](const RankReport& a, const RankReport& b) { return a.flops < b.flops; });
    const std::vector<std::int64_t> rows =
        dealt_by_load(kTokens, 4, setting.sizes.experts.load);
    const std::int64_t hot = *std::max_element(rows.begin(), rows.end());
    CHECK(most->flops -
              report
                  .ranks[static_cast<std::size_t>(
                      std::min_element(rows.begin(), rows.end()) - rows.begin())]
                  .flops >=
          (hot - *std::min_element(rows.begin(), rows.end())) * 6 * kH * inner *
              (setting.trains ? 3 : 1));
    // The slowest rank receives rows from all others, computes, and sends results back.
    // Backward does the same. During messages it computes the weights' and the gate's
    // gradients.
    const Picoseconds there = messages_time(setting, hot);
    if (!setting.trains) {
        CHECK(std::abs(report.makespan() - (compute_time(most->flops) +
                                            counts_time(setting) + 2 * there)) <= 100);
        return;
    }
    const std::int64_t weights = 4 * hot * 2 * 3 * kH * inner;
    // Two products, and the gradient of a softmax of k = 1 numbers, which is added to the
    // gradients of all logits.
    const std::int64_t gate = 2 * kTokens * kH * 4 * 2 + (4 + 1) * kTokens;
    const Picoseconds hidden = std::min(there, compute_time(weights + gate));
    CHECK(std::abs(report.makespan() - (most->time.compute + counts_time(setting) +
                                        4 * there - hidden)) <= 100);
}

TEST_CASE("The shared expert hides the messages to experts",
          "[parallel][experts][costs]") {
    Layer setting;
    setting.trains = false;
    setting.sizes = layer_of(4, 2);
    const RunReport alone = run(setting);
    setting.shared = GENERATE(8, 100, 4000);
    CAPTURE(setting.shared);
    const RunReport both = run(setting);
    const Picoseconds there = messages_time(setting, 2 * kTokens / 4);
    // The shared expert has products and SwiGLU. At the end both results are summed.
    const std::int64_t sum = 2 * kTokens * kH;
    const Picoseconds shared =
        compute_time(both.ranks[0].flops - alone.ranks[0].flops - sum);
    CHECK(std::abs(both.makespan() - alone.makespan() -
                   (std::max(shared, there) - there) - compute_time(sum)) <= 100);
}

TEST_CASE("The experts of one half hide the messages of the other half",
          "[parallel][experts][costs]") {
    Layer setting;
    setting.trains = false;
    setting.sizes = layer_of(4, 2);
    setting.sizes.experts.inner = GENERATE(48, 4800);
    setting.sizes.experts.portions = 2;
    const RunReport report = run(setting);
    const std::int64_t rows = kTokens / 4;  // copies of one half, for each rank
    const Picoseconds way = messages_time(setting, rows);
    // One half: three products and SwiGLU.
    const Picoseconds experts = compute_time(4 * rows * (6 * kH + kTranscendental + 4) *
                                             setting.sizes.experts.inner);
    const Picoseconds rest = compute_time(report.ranks[0].flops) - 2 * experts;
    // While experts compute, the queue sends both halves' copies, then both halves'
    // results. The first half's results are added up while the second half's return.
    const Picoseconds first_done = way + experts;
    const Picoseconds first_back = std::max(first_done, 2 * way) + way;
    const Picoseconds second_done = std::max(first_done, 2 * way) + experts;
    const Picoseconds second_back = std::max(first_back, second_done) + way;
    CHECK(report.makespan() <= 2 * counts_time(setting) + second_back + rest + 200);
    CHECK(report.makespan() >= 2 * counts_time(setting) + second_back + rest / 2);
}

TEST_CASE("Tensor ranks that drop copies send a t-th of them",
          "[parallel][experts][costs]") {
    // Along ep there are two ranks, each in a tensor group of two.
    const auto bytes_of = [](bool drop, const std::string& verb) {
        Layer setting;
        setting.sizes = layer_of(4, 2);
        setting.axes = {{"ep", 2}, {"tp", 2}};
        setting.exchange = [drop](Mesh& mesh, TensorParallel* tp) {
            return exchange_experts(mesh, {"ep"}, {.tp = tp, .drop_copies = drop});
        };
        const RunReport report = run(setting);
        std::int64_t bytes = 0;
        for (const RankReport& rank : report.ranks)
            bytes += rank.bytes_sent_by(verb);
        return bytes / 4;
    };
    constexpr std::int64_t kCopies = 2 * kTokens * kH * kNumber;  // of all tokens
    // Half of the copies are sent to the other rank and back, in forward and in backward.
    CHECK(bytes_of(false, "send") == 4 * kCopies / 2);
    CHECK(bytes_of(true, "send") == 4 * kCopies / 2 / 2);
    // Without dropping, sums cover all copies of both ranks, in forward and backward.
    CHECK(bytes_of(false, "all_reduce") == 2 * kCopies);
    // With dropping, copies are gathered first, results are then reduced and scattered,
    // and tokens are gathered at the end.
    CHECK(bytes_of(true, "broadcast") == 2 * kCopies / 2);
    CHECK(bytes_of(true, "reduce") == 2 * kCopies / 2);
    CHECK(bytes_of(true, "all_gather") == kTokens * kH * kNumber + 16 /* of counts */);
}

TEST_CASE("In a run of shapes only, ranks drop the same number of copies",
          "[parallel][experts][costs]") {
    Layer setting;
    setting.sizes = layer_of(4, 1);
    setting.sizes.experts.load =
        GENERATE(std::vector<double>{}, std::vector<double>{5, 1, 1, 1});
    setting.sizes.experts.capacity = GENERATE(0.5, 1.0);
    setting.exchange = [](Mesh& mesh, TensorParallel*) {
        return exchange_experts(mesh, {"ep"}, {.batch = {"ep"}});
    };
    const RunReport report = run(setting);
    const std::int64_t capacity = expert_capacity(setting.sizes.experts.capacity, kTokens,
                                                  4);  // copies of one rank per expert
    const std::vector<std::int64_t> rows =
        dealt_by_load(kTokens, 4, setting.sizes.experts.load);
    std::int64_t kept = 0;
    for (const std::int64_t count : rows)
        kept += std::min(count, capacity);
    // All copies that a rank sends to another rank are sent back, in forward and in
    // backward.
    std::int64_t sent = 0;
    for (const RankReport& rank : report.ranks)
        sent += rank.bytes_sent_by("send");
    CHECK(sent == kept * 4 * 3 * kH * kNumber);
}

TEST_CASE("The shared expert also hides the messages of portions",
          "[parallel][experts][costs]") {
    Layer setting;
    setting.trains = false;
    setting.sizes = layer_of(4, 2);
    setting.shared = 4000;  // computing this takes longer than sending all copies
    const auto time = [&](int portions) {
        setting.sizes.experts.portions = portions;
        return run(setting).makespan() - portions * counts_time(setting);
    };
    // Portions do not change the products. While the first half returns, the second
    // half's experts compute.
    CHECK(time(2) <= time(1) + Picoseconds{1'000'000} *
                                   (setting.ranks - 1) /* latencies, 1 us each */);
}

}  // namespace lockstep::test
