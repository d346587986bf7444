#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "lessons/07_ring_self_attention/lesson.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/core/units.hpp"
#include "src/device/ledger.hpp"
#include "src/device/operations/attention.hpp"
#include "src/report/compare.hpp"

namespace lockstep::lessons {

namespace {

/// Runs attention forward and backward on a cluster.
using RunOn = std::function<RunReport(Cluster&, const AttentionProblem&)>;

struct Way {
    std::string key;
    int ranks;
    int matrices;  ///< of scores that its ranks hold together at the peak
    RunOn run;
};

std::vector<Way> ways(int ranks) {
    std::vector<Way> all{{"core", 1, 3, run_core}, {"flash", 1, 0, run_flash}};
    for (const ContextMethod method : all_context_methods())
        all.push_back({key_of(method), ranks,
                       method == ContextMethod::ring_self_attention ? 3 : 0,
                       [method](Cluster& cluster, const AttentionProblem& problem) {
                           return run_method(cluster, problem, method);
                       }});
    return all;
}

/// The most that a device holds.
std::int64_t peak_of(const Way& way, AttentionProblem problem, std::int64_t tokens) {
    problem.tokens = tokens;
    return way.run(*make_shapes_only_cluster(way.ranks), problem).most_held();
}

/// The largest multiple of `step` tokens whose peak a device of `capacity`
/// holds; peaks grow with tokens.
std::int64_t longest(const Way& way, const AttentionProblem& problem, std::int64_t step,
                     std::int64_t capacity) {
    return step * largest_that([&](std::int64_t steps) {
               return peak_of(way, problem, steps * step) <= capacity;
           });
}

/// Returns whether a device of that capacity runs it.
bool runs(const Way& way, AttentionProblem problem, std::int64_t tokens,
          std::int64_t capacity) {
    problem.tokens = tokens;
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = capacity;
    try {
        way.run(*make_shapes_only_cluster(way.ranks, spec), problem);
        return true;
    } catch (const OutOfMemoryError&) {
        return false;
    }
}

/// The power of N that a growth is nearest to.
const char* growth_key(double times, int ranks) {
    const double power = std::log(times) / std::log(ranks);
    return power < 0.25   ? "none"
           : power < 0.75 ? "root"
           : power < 1.5  ? "linear"
                          : "square";
}

constexpr std::int64_t kCapacity = std::int64_t{16} << 30;

void weigh_scores(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const std::int64_t s = problem.tokens;
    const auto square = static_cast<double>(2 * problem.sizes.heads * s * s);
    for (const Way& way : ways(lesson.ranks)) {
        const std::int64_t peak = peak_of(way, problem, s);
        // f(s) = p s² + q s: f(2 s) - 2 f(s) = 2 p s²
        const std::int64_t quadratic = (peak_of(way, problem, 2 * s) - 2 * peak) / 2;
        found.give(way.key + ".held", Figure::memory(peak));
        found.give(way.key + ".matrices",
                   Figure::count(static_cast<double>(quadratic) / square));
        found.equal(way.key + ".square", Figure::memory(quadratic),
                    way.matrices * square / way.ranks);
    }
}

void find_longest(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const std::int64_t step = std::int64_t{8} * lesson.ranks;
    found.give({"capacity"_is = Figure::memory(kCapacity), "longest_step"_is = step});
    double one = 0;
    for (const Way& way : ways(lesson.ranks)) {
        const std::int64_t tokens = longest(way, problem, step, kCapacity);
        if (one == 0) one = static_cast<double>(tokens);
        const double times = static_cast<double>(tokens) / one;
        found.give(way.key + ".tokens", tokens);
        found.give(way.key + ".times", Figure::decimals(times, 2));
        if (way.key == key_of(ContextMethod::ring_self_attention))
            found.give("growth", growth_key(times, lesson.ranks));
        const bool fits = runs(way, problem, tokens, kCapacity) &&
                          !runs(way, problem, tokens + step, kCapacity);
        found.equal(way.key + ".fits", fits ? 1 : 0, 1);
    }
}

}  // namespace

void memory(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const std::int64_t a = problem.sizes.heads;
    const std::int64_t s = problem.tokens;
    const std::int64_t c = s / lesson.ranks;
    found.give({"scores_held"_is = Figure::bytes(2 * a * s * c),
                "scores_alone"_is = Figure::bytes(2 * a * s * s),
                "scores_own_keys"_is = Figure::bytes(2 * a * c * c),
                "scores_one_head"_is = Figure::bytes(2 * s * c)});
    weigh_scores(lesson, found);
    find_longest(lesson, found);
}

namespace {

/// Devices whose arithmetic alone takes time: launches, memory and links are free.
ClusterSpec arithmetic_alone() {
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = 0;
    spec.memory_bytes_per_second = 0;
    spec.launch_seconds = 0;
    spec.inside = spec.between = {0, 0};
    return spec;
}

/// Pairs of tokens in what each rank computed of Ring Attention's forward.
std::vector<std::int64_t> pairs_of(const RunReport& report, const AttentionProblem& of) {
    const auto ranks = static_cast<std::int64_t>(report.ranks.size());
    const std::int64_t rows = of.tokens / ranks * of.batch * of.sizes.heads;
    const std::int64_t finish =
        rows * of.width + rows * ops::FinishAttention::kFlopsOfRow;
    const std::int64_t a_pair =
        (4 * of.width + ops::Attend::kFlopsOfPair) * of.batch * of.sizes.heads;
    std::vector<std::int64_t> pairs;
    for (const RankReport& rank : report.ranks)
        pairs.push_back((rank.flops - finish) / a_pair);
    return pairs;
}

/// The pairs of the last rank if tokens are contiguous: all blocks before
/// its own, and half of its own.
double pairs_of_last(const AttentionProblem& of, int ranks) {
    const auto c = static_cast<double>(of.tokens) / ranks;
    return (ranks - 1) * c * c + c * (c + 1) / 2;
}

std::int64_t spread(const std::vector<std::int64_t>& of) {
    return *std::max_element(of.begin(), of.end()) -
           *std::min_element(of.begin(), of.end());
}

/// Which of the devices computes the most pairs.
const char* busiest_key(const std::vector<std::int64_t>& pairs) {
    const auto most = std::ranges::max_element(pairs);
    return spread(pairs) == 0        ? "alike"
           : most == pairs.begin()   ? "first"
           : most == pairs.end() - 1 ? "last"
                                     : "middle";
}

constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};

/// Forward of Ring Attention on the large problem, by an order, on
/// devices whose arithmetic alone takes time.
RunReport run_causal(const RingLesson& lesson, TokenOrder order) {
    AttentionProblem problem = lesson.large();
    problem.sizes.causal = true;
    return run_method(*make_shapes_only_cluster(lesson.ranks, arithmetic_alone(),
                                                /*trace=*/true),
                      problem, ContextMethod::ring_attention, order, Passes::forward);
}

/// Gives the pairs of each device, by order.
void give_pairs(RingLesson& lesson, Findings& found, const std::vector<RunReport>& runs) {
    const AttentionProblem problem = lesson.large();
    std::vector<std::vector<std::int64_t>> pairs;
    pairs.reserve(runs.size());
    for (const RunReport& run : runs)
        pairs.push_back(pairs_of(run, problem));
    for (std::size_t rank = 0; rank < pairs.front().size(); ++rank) {
        Findings& row = found.row("pairs", {"device"_is = rank});
        for (std::size_t order = 0; order < runs.size(); ++order)
            row.give(name_of(kOrders[order]), pairs[order][rank]);
    }
    found.give("busiest", busiest_key(pairs[0]));
    const auto c = static_cast<double>(problem.tokens) / lesson.ranks;
    found.equal("last_pairs", pairs[0].back(), pairs_of_last(problem, lesson.ranks));
    found.at_most("striped_spread", static_cast<double>(spread(pairs[1])) / (c * c), 1);
    found.equal("zigzag_spread", spread(pairs[2]), 0);
}

}  // namespace

void causal(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const auto s = static_cast<double>(problem.tokens);
    const double c = s / lesson.ranks;
    found.give({"share_more"_is = problem.tokens / lesson.ranks + 1,
                "twice_devices"_is = 2 * lesson.ranks,
                "pairs_of_last"_is = Figure::count(pairs_of_last(problem, lesson.ranks)),
                "pairs_own_whole"_is = Figure::count(lesson.ranks * c * c),
                "pairs_without_own"_is = Figure::count((lesson.ranks - 1) * c * c),
                "pairs_all"_is = Figure::count(s * (s + 1) / 2)});
    std::vector<RunReport> runs;
    for (const TokenOrder order : kOrders) {
        runs.push_back(run_causal(lesson, order));
        const std::string name = name_of(order);
        lesson.record().runs.emplace_back("causal_" + name, runs.back());
    }
    give_pairs(lesson, found, runs);
    found.timeline("contiguous", runs.front());
    found.timeline("zigzag", runs.back());
    const double ratio = static_cast<double>(runs.front().makespan()) /
                         static_cast<double>(runs.back().makespan());
    found.give("time_ratio", Figure::decimals(ratio, 2));
    found.at_most("time_ratio_gap", std::abs(ratio - (2 - 1.0 / lesson.ranks)), 0.01);
}

namespace {

/// Round figures, 16 bits: 2 TFLOP/s; launches and memory are free, and so
/// is a message's latency.
ClusterSpec with_link(double bytes_per_second) {
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = 0;
    spec.memory_bytes_per_second = 0;
    spec.launch_seconds = 0;
    spec.inside = spec.between = {0, bytes_per_second};
    return spec;
}

constexpr double kLink = 10e9;

RunReport run_ring(const AttentionProblem& problem, int ranks, double bytes_per_second) {
    return run_method(*make_shapes_only_cluster(ranks, with_link(bytes_per_second), true),
                      problem, ContextMethod::ring_attention, TokenOrder::contiguous,
                      Passes::forward);
}

/// Times of one block: of attending to it, of handing it on, and of what
/// stands behind the last.
struct BlockTimes {
    Picoseconds attend, hop, finish;

    /// N blocks, of which all but the first come by hops beside the others.
    Picoseconds formula(int ranks) const {
        return attend + (ranks - 1) * std::max(attend, hop) + finish;
    }
};

BlockTimes times_of(const AttentionProblem& of, int ranks, const ClusterSpec& spec) {
    const std::int64_t c = of.tokens / ranks;
    const std::int64_t rows = c * of.batch * of.sizes.heads;
    const auto time = [&](std::int64_t flops, DType dtype) {
        return operation_time(spec, flops, 0, dtype);
    };
    return {time(rows * c * (4 * of.width + ops::Attend::kFlopsOfPair), of.dtype),
            message_time(spec.inside, 2 * rows * of.width * bytes_of(of.dtype)),
            time(rows * of.width + rows * ops::FinishAttention::kFlopsOfRow,
                 computed_in(of.dtype))};
}

/// F/β.
double least_tokens(const AttentionProblem& problem) {
    return with_link(kLink).flops(problem.dtype) / kLink;
}

/// Gives the times of a block, of a hop and of all, for several lengths.
void give_blocks(RingLesson& lesson, Findings& found) {
    AttentionProblem problem = lesson.large();
    const ClusterSpec spec = with_link(kLink);
    for (const double part : {0.25, 0.5, 1.0, 2.0, 4.0}) {
        const auto c = static_cast<std::int64_t>(part * least_tokens(problem));
        problem.tokens = c * lesson.ranks;
        const BlockTimes times = times_of(problem, lesson.ranks, spec);
        const Picoseconds took = run_ring(problem, lesson.ranks, kLink).makespan();
        const Picoseconds work = lesson.ranks * times.attend + times.finish;
        Findings& row = found.row(
            "lengths",
            {"share"_is = std::to_string(c), "attend"_is = Figure::time(times.attend),
             "hop"_is = Figure::time(times.hop),
             "work"_is = Figure::percent(100.0 * static_cast<double>(work) /
                                         static_cast<double>(took))});
        row.equal("time", Figure::time(took),
                  static_cast<double>(times.formula(lesson.ranks)));
    }
}

}  // namespace

void overlap(RingLesson& lesson, Findings& found) {
    AttentionProblem problem = lesson.large();
    found.give({"least_tokens"_is = Figure::count(least_tokens(problem)),
                "least_tokens_bits"_is = Figure::count(8 * least_tokens(problem))});
    give_blocks(lesson, found);
    const auto c = static_cast<std::int64_t>(2 * least_tokens(problem));
    problem.tokens = c * lesson.ranks;
    const BlockTimes slow = times_of(problem, lesson.ranks, with_link(kLink / 4));
    found.give({"linked_share"_is = c,
                "slow_hop"_is = slow.hop <= slow.attend ? "hides" : "shows",
                "slow_hop_time"_is = Figure::time(slow.hop),
                "slow_block_time"_is = Figure::time(slow.attend)});
    for (const auto& [name, bandwidth] :
         {std::pair{"link", kLink}, std::pair{"slow_link", kLink / 4}}) {
        const RunReport report = run_ring(problem, lesson.ranks, bandwidth);
        lesson.record().runs.emplace_back(name, report);
        found.timeline(name, report);
    }
}

namespace {

/// See RoundingBound.
int stores_of(const GptTask& task, int ranks) {
    return static_cast<int>(task.sizes.layers) * block_stores(ranks);
}

/// The largest relative difference of a first gradient.
double gradient_difference(const NamedTensors& outputs, const std::string& variant) {
    return difference(under(outputs, variant + "/grad/"), under(outputs, "gpt_1/grad/"))
        .relative;
}

std::vector<double> train_on(RingLesson& lesson, Findings& found, const ContextRun& run,
                             const std::string& variant, const std::string& check) {
    const RunReport report =
        train_gpt_context(*make_cluster(lesson.options(), run.ranks()), *lesson.task, run,
                          advancing(variant, lesson.task->steps));
    lesson.record().runs.emplace_back(variant, report);
    if (!lesson.has_numbers()) return {};
    const bool alone = run.attention != AttentionKind::shared;
    std::vector<double> curve = losses_of(report);
    record_training(lesson.record(), variant, alone, curve, report);
    if (alone) return curve;
    found.at_most(check, gradient_difference(lesson.record().outputs, variant),
                  RoundingBound{2e-4, 1e-11}.of(lesson.options().dtype,
                                                stores_of(*lesson.task, run.ranks())));
    return curve;
}

ContextRun shared_run(const RingLesson& lesson) {
    return {1, lesson.ranks, lesson.method, lesson.order, AttentionKind::shared};
}

void give_contexts(RingLesson& lesson, Findings& found, std::int64_t capacity) {
    const auto longest = [&](const ContextRun& run, std::int64_t step) {
        return step * largest_that([&](std::int64_t steps) {
                   return training_peak(*lesson.task, run, steps * step) <= capacity;
               });
    };
    const auto times = [&](std::int64_t alone) {
        return static_cast<double>(lesson.task->sizes.context) /
               static_cast<double>(std::max<std::int64_t>(alone, 1));
    };
    const std::int64_t core = longest(ContextRun::alone(AttentionKind::core), 1);
    const std::int64_t flash = longest(ContextRun::alone(AttentionKind::flash), 1);
    found.give("core.context", core);
    found.give("core.context_times", Figure::decimals(times(core), 2));
    found.give("flash.context", flash);
    found.give("flash.context_times", Figure::decimals(times(flash), 2));
    found.give("shared.context",
               longest(shared_run(lesson), std::int64_t{2} * lesson.ranks));
    found.give("no_gain", times(flash) < 1);
}

void train_all(RingLesson& lesson, Findings& found, std::int64_t capacity) {
    Curves curves;
    curves.add("alone", train_on(lesson, found, ContextRun::alone(AttentionKind::core),
                                 "gpt_1", ""));
    const std::string all = fmt::format("gpt_{}", lesson.ranks);
    curves.add("together", train_on(lesson, found, shared_run(lesson), all, "gradients"));
    found.at_most("held", Figure::bytes(lesson.record().runs.back().second.most_held()),
                  static_cast<double>(capacity));
    auto mesh = ContextRun::mesh_of(lesson.ranks);
    found.give("mesh", mesh.has_value());
    if (mesh) {
        mesh->method = lesson.method;
        mesh->order = lesson.order;
        found.give("mesh_parts", mesh->parts);
        curves.add("replicas",
                   train_on(lesson, found, *mesh, all + "_mesh", "mesh_gradients"));
    }
    if (lesson.has_numbers()) curves.give(found, "curve");
    lesson.values_at_most(
        found, "losses", lesson.has_numbers() ? curves.widest_gap() : 0,
        loss_bound(lesson.options().dtype, stores_of(*lesson.task, lesson.ranks),
                   curves.losses.front()));
}

}  // namespace

void train(RingLesson& lesson, Findings& found) {
    const GptSizes& sizes = lesson.task->sizes;
    const std::int64_t capacity =
        training_peak(*lesson.task, shared_run(lesson), sizes.context);
    found.give("gpt.layers", sizes.layers);
    found.give("gpt.hidden", sizes.block.hidden);
    found.give("gpt.heads", sizes.block.heads);
    found.give("gpt.sequences", lesson.task->batch);
    found.give("gpt.context", sizes.context);
    found.give("gpt.share", sizes.context / lesson.ranks);
    found.give("gpt.capacity", Figure::memory(capacity));
    found.give(
        {"method"_is = name_of(lesson.method), "order"_is = name_of(lesson.order)});
    give_contexts(lesson, found, capacity);
    record_gpt_inputs(lesson.record(), *lesson.task);
    train_all(lesson, found, capacity);
}

}  // namespace lockstep::lessons
