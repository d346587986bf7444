#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lessons/runner/curves.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/comm/mesh.hpp"
#include "src/cost/collectives.hpp"
#include "src/cost/products_and_messages.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/nn/gate.hpp"
#include "src/nn/mixture_of_experts.hpp"
#include "src/nn/published_sizes.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

namespace lockstep::lessons {

namespace {

/// Makes a GPT of experts: `ranks` devices can shard its sequences, experts and heads.
std::shared_ptr<const GptTask> make_experts_task(const LessonOptions& options,
                                                 int ranks) {
    const std::int64_t batch = options.values.integer("batch", least_multiple(ranks, 8));
    require_shared_out("batch", batch, ranks, fmt::format("{} ranks", ranks));
    return make_gpt_task(options, batch, [&](std::int64_t vocabulary) {
        GptSizes sizes;
        sizes.vocabulary = vocabulary;
        sizes.context = options.values.integer("context", least_multiple(ranks, 32));
        sizes.layers = options.values.integer("layers");
        BlockSizes& block = sizes.block;
        block.heads = options.values.integer("heads", least_multiple(ranks, 4));
        block.hidden = options.values.integer("hidden", 8 * block.heads);
        block.norm = NormKind::rms_norm;
        block.mlp = MlpKind::swiglu;
        block.bias = false;
        ExpertSizes& experts = block.experts;
        experts.count = options.values.integer("experts", least_multiple(ranks, 8));
        experts.inner = options.values.integer("inner", least_multiple(ranks, 32));
        experts.gate.chosen = options.values.integer("chosen");
        experts.gate.form = GateForm::softmax_then_top_k;
        // A single weight divided by itself would be 1, and the gate would learn nothing.
        experts.gate.normalized = experts.gate.chosen > 1;
        const std::string all = fmt::format("{} ranks", ranks);
        require_shared_out("heads", block.heads, ranks, all);
        require_shared_out("hidden", block.hidden, block.heads, "the heads");
        require_shared_out("experts", experts.count, ranks, all);
        require_shared_out("inner", experts.inner, ranks, all);
        require_shared_out("context", sizes.context, ranks, all);
        return sizes;
    });
}

/// The state that the lesson's experiments share.
struct ExpertsLesson final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    ExpertsLesson(const LessonOptions& options, Record& record)
        : Lesson(options, record), ranks(options.ranks.value_or(4)) {
        task = make_experts_task(options, ranks);
        note_task(*this, *task,
                  {"heads", "hidden", "experts", "inner", "batch", "context"});
    }

    int ranks;
    std::shared_ptr<const GptTask> task;
};

using Counts = std::vector<std::int64_t>;

/// A layer of experts without a model. Each of `ranks` devices has `tokens` own tokens.
struct LayerRun {
    MixtureOfExperts::Sizes sizes{};
    int ranks = 1;
    std::int64_t tokens = 0;
    bool trains = false;  ///< else forward only
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
};

/// Returns the sizes of a layer of E experts with `inner` columns. Each
/// token chooses k experts.
MixtureOfExperts::Sizes layer_of(std::int64_t hidden, std::int64_t experts,
                                 std::int64_t inner, std::int64_t chosen) {
    MixtureOfExperts::Sizes sizes;
    sizes.hidden = hidden;
    sizes.experts.count = experts;
    sizes.experts.inner = inner;
    sizes.experts.gate.chosen = chosen;
    return sizes;
}

/// Runs the layer once. Tokens are random; token t is the same for any number of ranks.
/// If the run has numbers, each rank keeps "y". If it trains, each rank keeps the number
/// of its copies for each expert in the series "load".
RunReport run_layer(Cluster& cluster, const LayerRun& run) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), {{"ep", run.ranks}});
        MixtureOfExperts layer({device, run.dtype, run.seed, ""}, run.sizes,
                               exchange_experts(mesh, {"ep"}), nullptr);
        declare_replicas_of(mesh, {"ep"}, layer);
        const Tensor x = device.empty({run.tokens, run.sizes.hidden}, run.dtype);
        device.random_normal(x, RandomStream(run.seed, "tokens"), 0, 1,
                             rank.index() * x.elements());
        Saved saved;
        const Tensor y = run.trains ? layer.forward(x, saved) : layer.infer(x);
        if (run.trains) {
            const Tensor dy = device.zeros(y.shape(), y.dtype());
            layer.backward(dy, saved);
            for (const std::int64_t copies : layer.take_load())
                rank.keep_value("load", static_cast<double>(copies));
        }
        if (device.has_numbers())
            rank.keep("y", y,
                      row_part({run.ranks * run.tokens, run.sizes.hidden},
                               rank.index() * run.tokens, run.tokens));
    });
}

/// Shows what experts cost for each token, and how many numbers they hold.
void sparse(ExpertsLesson& lesson, Findings& found) {
    const GptSizes mixtral = mixtral_8x7b(4096);
    const BlockSizes& block = mixtral.block;
    const std::int64_t h = block.hidden, inner = block.inner;
    const std::int64_t k = block.experts.gate.chosen, e = block.experts.count;
    constexpr std::int64_t kTokens = 1024;
    found.give({"numbers"_is = lesson.has_numbers(), "mixtral.hidden"_is = h,
                "mixtral.inner"_is = inner, "mixtral.experts"_is = e,
                "mixtral.chosen"_is = k});
    const std::int64_t expert = 3 * h * inner;
    for (const auto& [name, held, met] :
         {std::tuple{"dense", expert, expert},
          std::tuple{"sparse", e * expert, k * expert},
          std::tuple{"as_large", e * expert, e * expert}}) {
        found.row("costs", {"what"_is = name, "held"_is = held, "met"_is = met,
                            "flops"_is = 2 * met});
    }
    LayerRun layer{layer_of(h, e, inner, k), 1, kTokens};
    const RunReport report = run_layer(*make_shapes_only_cluster(1), layer);
    const double over = ratio(report.ranks[0].flops, 2 * k * expert * kTokens);
    found.give("sparse_flops", Figure::decimals(over, 4));
    found.at_most("sparse_excess", Figure::percent(100 * std::abs(over - 1), 2), 1);
    found.give({"copy"_is = Figure::memory(h * 2),
                "expert"_is = Figure::memory(expert * 2), "ratio"_is = e / k,
                "ratio_experts"_is = e});
    const auto billions = [](std::int64_t parameters) {
        return Figure::decimals(static_cast<double>(parameters) / 1e9, 1);
    };
    const GptSizes deepseek = deepseek_v3(4096);
    found.give("deepseek_without", billions(deepseek.active_parameters() -
                                            deepseek.vocabulary * deepseek.block.hidden));
    for (const auto& [name, sizes] :
         {std::pair{"mixtral", mixtral}, std::pair{"deepseek", deepseek}}) {
        const ExpertSizes& experts = sizes.block.experts;
        found.row("models", {"model"_is = name, "experts"_is = experts.count,
                             "chosen"_is = experts.gate.chosen,
                             "held"_is = billions(sizes.parameters()),
                             "met"_is = billions(sizes.active_parameters())});
    }
}

constexpr std::int64_t kTokensByHand = 8, kExpertsByHand = 4, kChosenByHand = 2;

/// Returns the logits of eight tokens for four experts.
HostTensor logits_by_hand() {
    return HostTensor::of({kTokensByHand, kExpertsByHand},
                          std::vector<double>{3, 1, 0, 0,  //
                                              0, 2, 1, 0,  //
                                              1, 0, 1, 0,  //
                                              1, 0, 0, 3,  //
                                              2, 1, 0, 1,  //
                                              1, 2, 0, 0,  //
                                              0, 0, 2, 2,  //
                                              2, 0, 0, 1});
}

/// The gate's formulas in plain loops, for the logits of logits_by_hand().
struct GateByHand {
    std::array<std::array<std::int64_t, kChosenByHand>, kTokensByHand> ids{};
    std::array<std::array<double, kChosenByHand>, kTokensByHand> weights{};
    std::array<std::array<double, kExpertsByHand>, kTokensByHand> scores{};
    std::array<double, kExpertsByHand> shares{}, means{};
    double balance = 0;  ///< E sum f P

    GateByHand() {
        const HostTensor logits = logits_by_hand();
        for (std::size_t t = 0; t < kTokensByHand; ++t) {
            double sum = 0;
            for (std::size_t e = 0; e < kExpertsByHand; ++e) {
                scores[t][e] = std::exp(
                    logits.at(static_cast<std::int64_t>(t * kExpertsByHand + e)));
                sum += scores[t][e];
            }
            std::array<std::int64_t, kExpertsByHand> order{};
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(),
                             [&](auto a, auto b) { return scores[t][a] > scores[t][b]; });
            double chosen = 0;
            for (std::size_t j = 0; j < kChosenByHand; ++j) {
                ids[t][j] = order[j];
                chosen += scores[t][order[j]];
                shares[order[j]] += 1.0 / (kTokensByHand * kChosenByHand);
            }
            for (std::size_t j = 0; j < kChosenByHand; ++j)
                weights[t][j] = scores[t][order[j]] / chosen;
            for (std::size_t e = 0; e < kExpertsByHand; ++e) {
                scores[t][e] /= sum;
                means[e] += scores[t][e] / kTokensByHand;
            }
        }
        for (std::size_t e = 0; e < kExpertsByHand; ++e)
            balance += kExpertsByHand * shares[e] * means[e];
    }
};

GateOptions gate_by_hand() {
    GateOptions options;
    options.chosen = kChosenByHand;
    options.form = GateForm::softmax_then_top_k;
    options.normalized = true;
    options.balance = 1;
    return options;
}

/// Shows a gate on eight tokens, number by number.
void gate(ExpertsLesson& lesson, Findings& found) {
    const GateByHand expected;
    double gap = 0, loss_gap = 0;
    const RunReport report = lesson.devices(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Gate gate({device, DType::f64, 0, "gate"}, kExpertsByHand, gate_by_hand());
        Gating gating =
            gate.choose(device.upload(logits_by_hand()), {}, SourceLine::here());
        const std::vector<double> shares(expected.shares.begin(), expected.shares.end());
        const auto losses = gate.losses(gating, shares, 1, SourceLine::here());
        rank.keep("ids", gating.ids);
        rank.keep("weights", gating.weights);
        rank.keep("scores", gating.scores);
        rank.keep("loss", losses[0]);
    });
    const auto& kept = report.ranks[0].kept;
    const HostTensor &ids = kept.at("ids"), &weights = kept.at("weights");
    const HostTensor &scores = kept.at("scores"), &loss = kept.at("loss");
    found.give({"hand.tokens"_is = kTokensByHand, "hand.experts"_is = kExpertsByHand,
                "hand.chosen"_is = kChosenByHand});
    const HostTensor logits = logits_by_hand();
    for (std::size_t t = 0; t < kTokensByHand; ++t) {
        Findings& row = found.row("gated", {"token"_is = t});
        for (std::size_t e = 0; e < kExpertsByHand; ++e) {
            const auto place = static_cast<std::int64_t>(t * kExpertsByHand + e);
            row.give(fmt::format("logit_{}", e), Figure::count(logits.at(place)));
            row.give(fmt::format("score_{}", e),
                     Figure::decimals(expected.scores[t][e], 2));
            if (lesson.has_numbers())
                gap = std::max(gap, std::abs(scores.at(place) - expected.scores[t][e]));
        }
        row.give({"first"_is = expected.ids[t][0], "second"_is = expected.ids[t][1],
                  "first_weight"_is = Figure::decimals(expected.weights[t][0], 2),
                  "second_weight"_is = Figure::decimals(expected.weights[t][1], 2)});
        for (std::size_t j = 0; lesson.has_numbers() && j < kChosenByHand; ++j) {
            const auto place = static_cast<std::int64_t>(t * kChosenByHand + j);
            gap = std::max(gap, std::abs(weights.at(place) - expected.weights[t][j]));
            gap = std::max(
                gap, std::abs(ids.at(place) - static_cast<double>(expected.ids[t][j])));
        }
    }
    for (std::size_t e = 0; e < kExpertsByHand; ++e) {
        found.row("shares", {"expert"_is = e,
                             "copies"_is = static_cast<std::int64_t>(std::lround(
                                 expected.shares[e] * kTokensByHand * kChosenByHand)),
                             "f"_is = Figure::decimals(expected.shares[e], 3),
                             "p"_is = Figure::decimals(expected.means[e], 3)});
    }
    found.give("balance", Figure::decimals(expected.balance, 3));
    if (lesson.has_numbers()) loss_gap = std::abs(loss.at(0) - expected.balance);
    lesson.values_at_most(found, "gate_values", gap, 1e-14);
    lesson.values_at_most(found, "balance_value", loss_gap, 1e-14);
    found.give("even_loss", Figure::count(1));
}

constexpr std::int64_t kDevicesByHand = 2;

/// A copy of a token, for one expert.
struct CopyByHand {
    std::int64_t expert;
    std::int64_t token;

    std::int64_t device() const { return expert * kDevicesByHand / kExpertsByHand; }
};

/// Returns a device's copies, expert by expert.
std::vector<CopyByHand> copies_by_hand(const GateByHand& gate, std::int64_t device) {
    constexpr std::int64_t kOwn = kTokensByHand / kDevicesByHand;
    std::vector<CopyByHand> copies;
    for (std::int64_t token = device * kOwn; token < (device + 1) * kOwn; ++token)
        for (const std::int64_t expert : gate.ids[token])
            copies.push_back({expert, token});
    std::ranges::stable_sort(copies, {}, &CopyByHand::expert);
    return copies;
}

/// Writes copies as "0:1 0:3", expert and token, or "-" if there are none.
std::string words(const std::vector<CopyByHand>& copies) {
    std::string text;
    for (const CopyByHand& copy : copies)
        text += fmt::format("{}{}:{}", text.empty() ? "" : " ", copy.expert, copy.token);
    return text.empty() ? "-" : text;
}

/// Compares the same layer on one device and on all devices.
void compare_layers(ExpertsLesson& lesson, Findings& found) {
    const DType dtype = lesson.dtype();
    constexpr std::int64_t kHidden = 16, kTokens = 12;
    LayerRun layer{layer_of(kHidden, std::int64_t{2} * lesson.ranks, 24, 2),
                   lesson.ranks,
                   kTokens,
                   true,
                   dtype,
                   lesson.options().seed};
    const RunReport shared = run_layer(*lesson.devices(lesson.ranks), layer);
    LayerRun alone = layer;
    alone.ranks = 1;
    alone.tokens *= lesson.ranks;
    const RunReport one = run_layer(*lesson.devices(1), alone);
    double gap = 0;
    if (lesson.has_numbers()) {
        const HostTensor many = shared.whole("y"), expected = one.whole("y");
        for (std::int64_t i = 0; i < expected.elements(); ++i)
            gap = std::max(gap, std::abs(many.at(i) - expected.at(i)));
    }
    lesson.values_at_most(found, "same_y", gap,
                          RoundingBound{1e-5, 1e-12}.value(dtype, 8));
    // Rows of copies for other devices. Each row is sent there and back, in both passes.
    std::int64_t rows = 0;
    const auto own = static_cast<std::size_t>(layer.sizes.experts.count / lesson.ranks);
    for (std::size_t rank = 0; rank < shared.ranks.size(); ++rank) {
        const std::vector<double>& load = shared.ranks[rank].series.at("load");
        for (std::size_t e = 0; e < load.size(); ++e)
            if (e / own != rank) rows += static_cast<std::int64_t>(load[e]);
    }
    std::int64_t sent = 0;
    for (const RankReport& rank : shared.ranks)
        sent += rank.bytes_sent_by("send");
    found.give({"dispatch.hidden"_is = kHidden, "dispatch.tokens"_is = kTokens,
                "dispatch.copies"_is = rows, "dispatch.bytes"_is = bytes_of(dtype)});
    if (lesson.ranks > 1)
        found.equal("sent", Figure::bytes(sent), 4 * rows * kHidden * bytes_of(dtype));
}

/// Shows how each copy gets to its expert and back.
void dispatch(ExpertsLesson& lesson, Findings& found) {
    const GateByHand gate;
    found.give({"hand.devices"_is = kDevicesByHand, "ranks"_is = lesson.ranks,
                "several"_is = lesson.ranks > 1});
    std::vector<std::vector<CopyByHand>> arrived(kDevicesByHand);
    for (std::int64_t from = 0; from < kDevicesByHand; ++from) {
        const std::vector<CopyByHand> copies = copies_by_hand(gate, from);
        Findings& row =
            found.row("copies", {"device"_is = from, "copies"_is = words(copies)});
        for (std::int64_t to = 0; to < kDevicesByHand; ++to)
            row.give(fmt::format("to_{}", to),
                     std::ranges::count(copies, to, &CopyByHand::device));
        for (const CopyByHand& copy : copies)
            arrived[copy.device()].push_back(copy);
    }
    for (std::int64_t to = 0; to < kDevicesByHand; ++to) {
        std::vector<CopyByHand>& copies = arrived[to];
        Findings& row =
            found.row("arrivals", {"device"_is = to, "arrived"_is = words(copies)});
        std::ranges::stable_sort(copies, {}, &CopyByHand::expert);
        row.give("by_expert", words(copies));
    }
    compare_layers(lesson, found);
}

/// Shows which devices wait if loads are unequal.
void waiting(ExpertsLesson& lesson, Findings& found) {
    constexpr int kDevices = 4;
    constexpr std::int64_t kHidden = 256, kInner = 1024, kTokens = 256;
    const ClusterSpec spec = products_and_messages();
    found.give({"waiting.devices"_is = kDevices, "waiting.tokens"_is = kTokens,
                "waiting.hidden"_is = kHidden, "waiting.inner"_is = kInner});
    struct Load {
        const char* name;
        std::vector<double> shares;
    };
    Picoseconds hot_time = 0, expected = 0;
    for (const Load& load :
         {Load{"even", {}}, Load{"skewed", {3, 2, 2, 1}}, Load{"hot", {5, 1, 1, 1}}}) {
        LayerRun layer{layer_of(kHidden, kDevices, kInner, 1), kDevices, kTokens, false,
                       DType::f32};
        layer.sizes.experts.load = load.shares;
        const RunReport report =
            run_layer(*make_shapes_only_cluster(kDevices, spec, true), layer);
        const std::vector<std::int64_t> rows =
            dealt_by_load(kTokens, kDevices, load.shares);
        const std::int64_t most = *std::ranges::max_element(rows);
        const auto [least, busiest] = std::ranges::minmax_element(
            report.ranks, {}, [](const RankReport& rank) { return rank.time.compute; });
        found.row("skews",
                  {"load"_is = load.name, "most"_is = kDevices * most,
                   "mean"_is = kTokens, "time"_is = Figure::time(report.makespan()),
                   "busiest"_is = Figure::time(busiest->time.compute),
                   "idlest"_is = Figure::time(least->time.compute)});
        if (std::string(load.name) == "hot") {
            hot_time = report.makespan();
            found.timeline("hot_layer", report);
            lesson.record_run("hot", report);
            // Exchange counts, send rows, compute, and return rows.
            const Picoseconds way =
                (kDevices - 1) * message_time(spec.inside, most * kHidden * 4);
            const Picoseconds counts =
                collective_time({Verb::all_to_all, 1, 4, kDevices}, spec, {0, 1, 2, 3});
            expected = counts + 2 * way + busiest->time.compute;
        }
    }
    found.at_most("slowest", Figure::time(std::abs(hot_time - expected)), 1000);
}

/// Lets a gate choose; it prefers some experts. Returns counts by choice and expert.
std::vector<std::int64_t> gate_many(const ExpertsLesson& lesson, std::int64_t tokens,
                                    std::int64_t experts) {
    const RunReport report = lesson.devices(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Gate gate({device, DType::f32, 0, "gate"}, experts, gate_by_hand());
        const Tensor logits = device.empty({tokens, experts}, DType::f32);
        device.random_normal(logits, RandomStream(lesson.options().seed, "logits"), 0, 1);
        HostTensor likes({experts}, DType::f32);
        for (std::int64_t e = 0; e < experts; ++e)
            likes.set(e, 0.25 * static_cast<double>(experts - e));
        device.add_bias(logits, device.upload(likes));
        const Gating gating = gate.choose(logits, {}, SourceLine::here());
        for (const std::int64_t count :
             counts_by_choice(device, gating.ids, experts, {}, SourceLine::here()))
            rank.keep_value("by choice", static_cast<double>(count));
    });
    Counts by_choice;
    for (const double count : report.ranks[0].series.at("by choice"))
        by_choice.push_back(static_cast<std::int64_t>(count));
    return by_choice;
}

/// Runs a layer with the capacity that its busiest expert needs, and with 1 less.
void drop_in_a_layer(ExpertsLesson& lesson, Findings& found) {
    constexpr std::int64_t kTokens = 128, kHidden = 16, kExperts = 8, kChosen = 2;
    constexpr std::int64_t kCopies = kTokens * kChosen;
    found.give("capacity.layer_tokens", kTokens);
    if (!lesson.has_numbers()) return;
    const auto run = [&](std::int64_t capacity) {
        LayerRun layer{layer_of(kHidden, kExperts, 24, kChosen),
                       1,
                       kTokens,
                       true,
                       lesson.dtype(),
                       lesson.options().seed};
        layer.sizes.experts.capacity = ratio(capacity * kExperts, kCopies);
        return run_layer(*lesson.devices(1), layer);
    };
    const RunReport all = run(0);
    const HostTensor expected = all.whole("y");
    const std::vector<double>& load = all.ranks[0].series.at("load");
    const auto most = static_cast<std::int64_t>(*std::ranges::max_element(load));
    const auto changed = [&](std::int64_t capacity) {
        const HostTensor y = run(capacity).whole("y");
        std::int64_t tokens = 0;
        for (std::int64_t token = 0; token < kTokens; ++token) {
            bool differs = false;
            for (std::int64_t i = token * kHidden; i < (token + 1) * kHidden; ++i)
                differs = differs || y.at(i) != expected.at(i);
            tokens += differs;
        }
        return tokens;
    };
    found.equal("none_dropped", changed(most), 0);
    // Each of the busiest experts drops its last copy. Usually only one is busiest.
    found.equal("one_dropped", changed(most - 1), std::ranges::count(load, most));
}

/// Shows how many copies a capacity drops, and that their order decides which ones.
void capacity(ExpertsLesson& lesson, Findings& found) {
    constexpr std::int64_t kTokens = 512, kExperts = 8, kChosen = 2;
    found.give({"capacity.tokens"_is = kTokens, "capacity.experts"_is = kExperts,
                "capacity.copies"_is = kTokens * kChosen});
    const Counts by_choice = gate_many(lesson, kTokens, kExperts);
    Counts by_token;
    for (std::size_t i = 0; i < by_choice.size(); ++i) {
        if (i < kExperts) by_token.push_back(0);
        by_token[i % kExperts] += by_choice[i];
    }
    const std::int64_t most = *std::ranges::max_element(by_token);
    found.give("capacity.most", most);
    const double enough = ratio(most * kExperts, kTokens * kChosen);
    found.give("enough", Figure::decimals(enough, 2));
    for (const double factor : {1.0, 1.25, 1.5, 2.0}) {
        const std::int64_t capacity =
            expert_capacity(factor, kTokens * kChosen, kExperts);
        const std::int64_t dropped =
            kTokens * kChosen - total(kept_counts({{by_token}, 0}, kExperts, capacity));
        Findings& row = found.row(
            "factors",
            {"factor"_is = Figure::decimals(factor, 2), "capacity"_is = capacity,
             "dropped"_is = dropped,
             "part"_is = Figure::percent(
                 100.0 * static_cast<double>(dropped) / (kTokens * kChosen), 1)});
        // First choices that are dropped, although they come before second choices.
        std::int64_t first = 0;
        for (std::size_t e = 0; e < kExperts; ++e)
            first += std::max<std::int64_t>(0, by_choice[e] - capacity);
        row.give({"first"_is = first,
                  "padding"_is = kExperts * capacity - (kTokens * kChosen - dropped)});
    }
    drop_in_a_layer(lesson, found);
}

/// How devices shard a model: `ep` tensor groups have their own sequences and experts.
/// The `tp` devices of a group shard the layers and the columns of each expert.
struct ExpertRun {
    int ep = 1;
    int tp = 1;
    double bias_rate = 0;  ///< how fast a bias follows the load, if there is one

    int ranks() const { return ep * tp; }
};

/// Returns the load of the busiest expert of any layer, as a multiple of the mean load.
double busiest(const std::vector<std::vector<std::int64_t>>& loads) {
    double most = 0;
    for (const std::vector<std::int64_t>& load : loads) {
        const auto copies = static_cast<double>(
            std::accumulate(load.begin(), load.end(), std::int64_t{0}));
        const auto largest = static_cast<double>(*std::ranges::max_element(load));
        most = std::max(most, largest * static_cast<double>(load.size()) / copies);
    }
    return most;
}

/// Trains on `cluster`, which has run.ranks() devices. Keeps what train() keeps and, in
/// rank 0's series "load", the load of the busiest expert of any layer after each step,
/// as a multiple of the mean.
// lesson: experts-mesh
RunReport train_gpt_experts(Cluster& cluster, const GptTask& task, const ExpertRun& run,
                            const Advance& advance = {}) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), {{"ep", run.ep}, {"tp", run.tp}});
        TensorParallel tp(device, mesh["tp"]);
        GptKit kit;
        if (run.tp > 1) kit = tensor_parallel(kit, tp);
        kit = expert_parallel(kit, mesh, {"ep"},
                              {.batch = {"ep"}, .tp = run.tp > 1 ? &tp : nullptr});
        const auto gpt = make_gpt(task.init(device), task.sizes, kit);
        declare_replicas_of(mesh, {"ep"}, *gpt);
        // lesson: end
        const auto layers = expert_layers(*gpt);
        const auto batches = [&](int step) {
            return upload_batches(device, task, step, mesh.coordinate("ep"), 1, run.ep);
        };
        const auto balance = [&](const Tensor& share) {
            const auto loads =
                balance_by_bias(device, rank.world(), layers, run.bias_rate);
            if (rank.index() == 0) rank.keep_value("load", busiest(loads));
            // All ranks of a tensor group have the same loss.
            return tp.rank() == 0 ? share : Tensor();
        };
        train_gpt(rank, *gpt, task, kit.loss(task.sizes), batches, advance, balance);
    });
}

/// Trains on a cluster of its own, shows its progress, and records the run as `variant`.
RunReport train(ExpertsLesson& lesson, const std::string& variant, const GptTask& task,
                const ExpertRun& run) {
    const Advance advance = advancing(variant, task.steps);
    RunReport report =
        train_gpt_experts(*lesson.devices(run.ranks()), task, run, advance);
    // All runs begin with equal values. The first run of each lesson step records them.
    const bool first = variant == "alone" || variant == "balance_none";
    record_training(lesson.record(), variant, first, losses_of(report), report);
    return report;
}

/// Shows how a loss, and a bias, balance the load.
void balance(ExpertsLesson& lesson, Findings& found) {
    const BlockSizes& block = lesson.task->sizes.block;
    found.give(
        {"experts"_is = block.experts.count, "chosen"_is = block.experts.gate.chosen,
         "layers"_is = lesson.task->sizes.layers, "steps"_is = lesson.task->steps});
    constexpr double kAlpha = 0.01, kRate = 0.02;
    found.give({"alpha"_is = Figure::decimals(kAlpha, 2),
                "rate"_is = Figure::decimals(kRate, 2)});
    record_gpt_inputs(lesson.record(), *lesson.task);

    GptTask by_loss = *lesson.task, by_bias = *lesson.task;
    by_loss.sizes.block.experts.gate.balance = kAlpha;
    by_bias.sizes.block.experts.gate.biased = true;
    std::vector<std::pair<std::string, RunReport>> runs;
    runs.emplace_back("none", train(lesson, "balance_none", *lesson.task, {}));
    runs.emplace_back("by_loss", train(lesson, "balance_loss", by_loss, {}));
    runs.emplace_back("by_bias", train(lesson, "balance_bias", by_bias, {1, 1, kRate}));
    constexpr int kEnough = 60;  // steps after which the gate has clearly learned
    const bool trained = lesson.has_numbers() && lesson.task->steps >= kEnough;
    found.give("trained", trained);
    if (!lesson.has_numbers()) return;
    const auto load_of = [](const RunReport& report) -> const std::vector<double>& {
        return report.ranks[0].series.at("load");
    };
    for (const std::size_t step :
         shown_steps(static_cast<std::size_t>(lesson.task->steps))) {
        Findings& row = found.row("loads", {"step"_is = step + 1});
        for (const auto& [name, report] : runs)
            row.give(name, Figure::decimals(load_of(report)[step], 2));
    }
    const auto late = [&](const RunReport& report) {
        const std::vector<double>& load = load_of(report);
        const std::size_t from = load.size() - std::max<std::size_t>(1, load.size() / 4);
        return std::accumulate(load.begin() + static_cast<std::ptrdiff_t>(from),
                               load.end(), 0.0) /
               static_cast<double>(load.size() - from);
    };
    const double alone = late(runs[0].second);
    const double cured = std::max(late(runs[1].second), late(runs[2].second));
    if (trained) found.at_most("evened", Figure::decimals(cured / alone, 2), 1);
    for (const auto& [name, report] : runs) {
        found.row("ends", {"way"_is = name, "load"_is = Figure::decimals(late(report), 2),
                           "loss"_is = Figure::decimals(losses_of(report).back(), 3)});
    }
}

/// Runs a plain MLP forward and backward on (tokens, hidden). The ranks shard its layers,
/// and each rank has all tokens.
RunReport run_shared_mlp(Cluster& cluster, std::int64_t tokens, std::int64_t hidden,
                         std::int64_t inner, DType dtype) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        const auto mlp = make_swiglu_mlp({device, dtype, 0, ""}, hidden, inner,
                                         tensor_parallel({}, tp));
        const Tensor x = device.zeros({tokens, hidden}, dtype);
        Saved saved;
        mlp->backward(mlp->forward(x, saved), saved);
    });
}

/// Counts what experts send, and what a layer that is sharded by columns sends.
void bytes(Findings& found) {
    constexpr std::int64_t kHidden = 64, kInner = 128, kTokens = 64;
    constexpr std::int64_t kNumber = 4;  // bytes of f32
    found.give("bytes.tokens", kTokens);
    found.give("bytes.hidden", kHidden);
    const auto by_experts = [&](int devices, std::int64_t chosen) {
        LayerRun layer{layer_of(kHidden, 16, kInner, chosen), devices, kTokens, true,
                       DType::f32};
        return run_layer(*make_shapes_only_cluster(devices), layer)
            .ranks[0]
            .bytes_sent_by("send");
    };
    const auto by_columns = [&](int devices) {
        return run_shared_mlp(*make_shapes_only_cluster(devices), devices * kTokens,
                              kHidden, kInner, DType::f32)
            .ranks[0]
            .bytes_sent_by("all_reduce");
    };
    std::int64_t expert_gap = 0, column_gap = 0;
    for (const int devices : {2, 4, 8, 16}) {
        Findings& row = found.row("crossing", {"devices"_is = devices});
        for (const std::int64_t chosen : {1, 2, 4, 8}) {
            const std::int64_t sent = by_experts(devices, chosen);
            const std::int64_t formula =
                4 * chosen * kTokens * kHidden * (devices - 1) / devices * kNumber;
            expert_gap = std::max(expert_gap, std::abs(sent - formula));
            row.give(fmt::format("k_{}", chosen), Figure::memory(sent));
        }
        const std::int64_t sent = by_columns(devices);
        const std::int64_t formula =
            4 * kTokens * kHidden * devices * (devices - 1) / devices * kNumber;
        column_gap = std::max(column_gap, std::abs(sent - formula));
        row.give("columns", Figure::memory(sent));
    }
    found.equal("experts_sent", Figure::bytes(expert_gap), 0);
    found.equal("columns_sent", Figure::bytes(column_gap), 0);
    constexpr std::int64_t kChosen = 2, kDevices = 8;
    found.give({"predicted_devices"_is = kDevices, "predicted_chosen"_is = kChosen,
                "columns_to_experts"_is = kDevices / kChosen,
                "inverse"_is = Figure::decimals(double{kChosen} / kDevices, 2),
                "same_bytes"_is = 1});
}

/// Verifies that the results of an expert's column shards add up to the expert's result.
void inside(ExpertsLesson& lesson, Findings& found) {
    constexpr std::int64_t kTokens = 6, kHidden = 8;
    const std::int64_t inner = std::int64_t{4} * lesson.ranks;
    found.give({"inside.hidden"_is = kHidden, "inside.inner"_is = inner,
                "inside.own"_is = inner / lesson.ranks});
    const Experts::Sizes sizes{kHidden, inner, 1};
    HostTensor sum({kTokens, kHidden}, DType::f64);
    const auto run = [&](Rank& rank, int parts) {
        Device& device = rank.device();
        Experts experts({device, DType::f64, 3, ""}, sizes, {0, 1, parts, rank.index()});
        const Tensor x = device.empty({kTokens, kHidden}, DType::f64);
        device.random_normal(x, RandomStream(3, "x"), 0, 1);
        Saved saved;
        saved.keep_value("rows", std::vector<std::int64_t>{kTokens});
        return experts.forward(x, saved);
    };
    const RunReport alone =
        lesson.devices(1)->run([&](Rank& rank) { rank.keep("y", run(rank, 1)); });
    const RunReport report = lesson.devices(lesson.ranks)->run([&](Rank& rank) {
        const Tensor term = run(rank, lesson.ranks);
        rank.keep("term", term);
        rank.world().all_reduce(term).wait();
        rank.keep("sum", term);
    });
    double gap = 0;
    if (lesson.has_numbers()) {
        for (std::size_t r = 0; r < report.ranks.size(); ++r) {
            const HostTensor& term = report.ranks[r].kept.at("term");
            Findings& row = found.row("terms", {"device"_is = r});
            for (std::int64_t j = 0; j < 4; ++j)
                row.give(fmt::format("y_{}", j), Figure::decimals(term.at(j), 4));
            for (std::int64_t i = 0; i < sum.elements(); ++i)
                sum.set(i, sum.at(i) + term.at(i));
        }
        const HostTensor& reduced = report.ranks[0].kept.at("sum");
        const HostTensor& whole = alone.ranks[0].kept.at("y");
        for (std::int64_t i = 0; i < sum.elements(); ++i)
            gap = std::max({gap, std::abs(sum.at(i) - whole.at(i)),
                            std::abs(reduced.at(i) - whole.at(i))});
        for (std::int64_t j = 0; j < 4; ++j)
            found.give(fmt::format("whole_{}", j), Figure::decimals(whole.at(j), 4));
    }
    lesson.values_at_most(found, "terms_sum", gap, 1e-13);
}

/// Trains the same model on one device, and sharded by experts, by columns and by both.
void same(ExpertsLesson& lesson, Findings& found) {
    GptTask task = *lesson.task;
    task.sizes.block.experts.gate.balance = 0.01;
    const bool square = lesson.ranks % 2 == 0 && lesson.ranks > 2;
    Curves curves;
    const auto run = [&](const std::string& name, const ExpertRun& expert_run) {
        const RunReport report = train(lesson, name, task, expert_run);
        if (lesson.has_numbers()) curves.add(name, losses_of(report));
        Findings& row = found.row("ways", {"way"_is = name});
        std::int64_t sent = 0, held = 0;
        for (const RankReport& rank : report.ranks) {
            sent = std::max(sent, rank.bytes_sent());
            held = std::max(held, rank.memory.peak_of(MemoryCategory::parameters));
        }
        row.give({"held"_is = Figure::memory(held),
                  "sent"_is = Figure::memory(sent / task.steps)});
    };
    run("alone", {});
    run("experts", {lesson.ranks, 1});
    run("columns", {1, lesson.ranks});
    if (square) run("both", {lesson.ranks / 2, 2});
    const int stores = 12 * static_cast<int>(task.sizes.layers) + 4;
    lesson.values_at_most(
        found, "same_losses", lesson.has_numbers() ? curves.widest_gap() : 0,
        lesson.has_numbers() ? loss_bound(lesson.dtype(), stores, curves.losses.front())
                             : 1);
    if (lesson.has_numbers()) curves.give(found, "curves");
}

/// Runs a layer of DeepSeek-V3's sizes on sixteen H100s, in one node and in two.
void layer_on_nodes(Findings& found, std::int64_t experts, std::int64_t chosen) {
    constexpr std::int64_t kHidden = 7168, kInner = 2048, kOwn = 4096;
    found.give(
        {"nodes.hidden"_is = kHidden, "nodes.inner"_is = kInner, "nodes.own"_is = kOwn});
    for (const int of_node : {16, 8}) {
        ClusterSpec spec = load_cluster("h100-data-sheet");
        spec.devices_per_node = of_node;
        LayerRun layer{layer_of(kHidden, experts, kInner, chosen), 16, kOwn, true,
                       DType::bf16};
        const RunReport report = run_layer(*make_shapes_only_cluster(16, spec), layer);
        std::int64_t between = 0;
        for (const Traffic& traffic : report.ranks[0].traffic)
            if (traffic.between_nodes) between += traffic.bytes_sent;
        found.row("layers", {"nodes"_is = 16 / of_node,
                             "sent"_is = Figure::memory(report.ranks[0].bytes_sent()),
                             "between"_is = Figure::memory(between),
                             "compute"_is = Figure::time(report.ranks[0].time.compute),
                             "time"_is = Figure::time(report.makespan())});
    }
}

/// How many copies leave their node, if a gate spreads random tokens.
struct Crossings {
    std::int64_t copies = 0;  ///< copies to other nodes
    std::int64_t tokens = 0;  ///< the same, if each token is sent to a node once
};

/// Counts the copies that leave their node. Experts and tokens are spread evenly over
/// `nodes`. A token chooses `chosen` of `experts`, on at most `most` nodes.
Crossings count_crossings(Device& device, std::int64_t tokens, std::int64_t experts,
                          std::int64_t chosen, std::int64_t nodes, std::int64_t most) {
    GateOptions options;
    options.chosen = chosen;
    if (most < nodes) {
        options.groups = nodes;
        options.chosen_groups = most;
    }
    const Gate gate({device, DType::f32, 0, "gate"}, experts, options);
    const Tensor logits = device.empty({tokens, experts}, DType::f32);
    device.random_normal(logits, RandomStream(7, "logits"), 0, 1);
    const HostTensor ids = device.peek(gate.choose(logits, {}, SourceLine::here()).ids);
    Crossings crossings;
    for (std::int64_t token = 0; token < tokens; ++token) {
        std::vector<std::int64_t> others;
        for (std::int64_t j = 0; j < chosen; ++j) {
            const auto expert = static_cast<std::int64_t>(ids.at(token * chosen + j));
            const std::int64_t node = expert * nodes / experts;
            if (node == token * nodes / tokens) continue;
            ++crossings.copies;
            if (std::ranges::count(others, node) == 0) others.push_back(node);
        }
        crossings.tokens += static_cast<std::int64_t>(others.size());
    }
    return crossings;
}

/// Counts the copies that leave a node, with and without a limit on the nodes of a token.
void nodes(ExpertsLesson& lesson, Findings& found) {
    constexpr std::int64_t kTokens = 1024, kExperts = 64, kChosen = 8;
    constexpr std::int64_t kMost = 2;
    found.give({"nodes.tokens"_is = kTokens, "nodes.experts"_is = kExperts,
                "nodes.chosen"_is = kChosen, "nodes.most"_is = kMost});
    const auto crossings = [&](std::int64_t nodes, std::int64_t most) {
        const RunReport report = lesson.devices(1)->run([&](Rank& rank) {
            const Crossings counted =
                count_crossings(rank.device(), kTokens, kExperts, kChosen, nodes, most);
            rank.keep_value("copies", static_cast<double>(counted.copies));
            rank.keep_value("tokens", static_cast<double>(counted.tokens));
        });
        const auto kept = [&](const std::string& name) {
            return static_cast<std::int64_t>(report.ranks[0].series.at(name)[0]);
        };
        return Crossings{kept("copies"), kept("tokens")};
    };
    const auto a_token = [&](std::int64_t count) {
        return Figure::decimals(static_cast<double>(count) / kTokens, 2);
    };
    if (lesson.has_numbers()) {
        for (const std::int64_t nodes : {1, 2, 4, 8}) {
            const Crossings all = crossings(nodes, nodes);
            const Crossings few = crossings(nodes, std::min(nodes, kMost));
            found.row("crossings", {"nodes"_is = nodes, "copies"_is = a_token(all.copies),
                                    "once"_is = a_token(all.tokens),
                                    "few_copies"_is = a_token(few.copies),
                                    "few_once"_is = a_token(few.tokens)});
            if (nodes == 8)
                found.at_most("few_nodes", a_token(few.tokens),
                              static_cast<double>(kMost));
        }
    } else {
        found.not_compared("few_nodes");
    }
    layer_on_nodes(found, kExperts, kChosen);
}

}  // namespace

LessonEntry experts_lesson() {
    LessonEntry entry;
    entry.slug = "experts";
    entry.folder = "09_experts";
    entry.most_ranks = 16;
    entry.settings = {
        {"layers", "transformer blocks of the GPT", Whole{1, 64, 2}},
        {"heads",
         "of attention; if not set, the smallest multiple of the ranks that is at least "
         "4",
         Whole{1, 64}, "4"},
        {"hidden", "columns between layers; 8 a head", Whole{1, 1024}, "32"},
        {"experts",
         "of a block; if not set, the smallest multiple of the ranks that is at least 8",
         Whole{1, 1024}, "8"},
        {"inner",
         "columns of an expert; if not set, the smallest multiple of the ranks that is "
         "at least 32",
         Whole{1, 1024}, "32"},
        {"chosen", "experts of a token", Whole{1, 8, 2}},
        {"context",
         "tokens of a sequence; if not set, the smallest multiple of the ranks that is "
         "at least 32",
         Whole{1, 1024}, "32"},
        {"batch",
         "sequences of a step; if not set, the smallest multiple of the ranks that is at "
         "least 8",
         Whole{1, 1024}, "8"},
        {"steps", "of training", Whole{1, 100'000, 60}},
        {"learning_rate", "of SGD with momentum 0.9", Real{0, 1e6, 0.1}},
    };
    entry.takes_text = true;
    entry.make = lesson_of<ExpertsLesson>({{"sparse", sparse},
                                           {"gate", gate},
                                           {"dispatch", dispatch},
                                           {"waiting", waiting},
                                           {"capacity", capacity},
                                           {"balance", balance},
                                           {"bytes", bytes},
                                           {"inside", inside},
                                           {"same", same},
                                           {"nodes", nodes}});
    return entry;
}

}  // namespace lockstep::lessons
