#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "lessons/05_ring_self_attention/lesson.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/core/units.hpp"
#include "src/device/ledger.hpp"
#include "src/device/operations/attention.hpp"
#include "src/report/compare.hpp"
#include "src/report/timeline.hpp"

namespace lockstep::lessons {

namespace {

/// Runs attention forward and backward on a cluster.
using RunOn = std::function<RunReport(Cluster&, const AttentionProblem&)>;

struct Way {
    std::string name;
    int ranks;
    int matrices;  ///< of scores that its ranks hold together at the peak
    RunOn run;
};

std::vector<Way> ways(int ranks) {
    std::vector<Way> all{{"one device, all weights held", 1, 3, run_core},
                         {"one device, online softmax", 1, 0, run_flash}};
    for (const ContextMethod method : all_context_methods())
        all.push_back({name_of(method), ranks,
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

}  // namespace

void RingLesson::memory(Page& page) {
    const AttentionProblem problem = large();
    const std::int64_t a = problem.sizes.heads;
    const std::int64_t s = problem.tokens;
    const auto square = static_cast<double>(2 * a * s * s);
    page.text(fmt::format(
        "What do the scores of step 4's problem weigh, s = {} tokens, {} heads, 2 bytes "
        "each? a s² on one device, a s²/N on each that runs Ring Self-Attention; Ring "
        "Attention never has more than a tile of a block, in the kernel's shared memory.",
        count_text(s), a));
    page.predict(fmt::format("How many bytes of scores does each of {} devices hold in "
                             "Ring Self-Attention?",
                             ranks_),
                 square / ranks_, "bytes",
                 fmt::format("2 a s²/N = 2 * {} * {}²/{}", a, count_text(s), ranks_));
    show_square(page);
    page.text(
        "On one device backward holds three matrices of scores at its peak: the weights, "
        "their gradient, the scores' gradient. Ring Self-Attention has an N-th of each. "
        "(An all-gather holds keys and values of the whole sequence, and their "
        "gradients, for a moment: with s, not s².)");
    show_longest(page);
}

void RingLesson::show_square(Page& page) {
    const AttentionProblem problem = large();
    const std::int64_t s = problem.tokens;
    const auto square = static_cast<double>(2 * problem.sizes.heads * s * s);
    page.text(
        "What a device holds at most, forward and backward, by the ledger. Twice the "
        "tokens take more than twice as much: half the excess is the term with s²:");
    Table table{{"", "most held", "term with s²", "in a s² numbers"}, {}};
    std::vector<Check> checks;
    for (const Way& way : ways(ranks_)) {
        const std::int64_t peak = peak_of(way, problem, s);
        // f(s) = p s² + q s: f(2 s) - 2 f(s) = 2 p s²
        const std::int64_t quadratic = (peak_of(way, problem, 2 * s) - 2 * peak) / 2;
        table.rows.push_back(
            {way.name, bytes_text(peak), bytes_text(quadratic),
             fmt::format("{:.4g}", static_cast<double>(quadratic) / square)});
        checks.push_back(Check::equal(fmt::format("bytes with s² of {}", way.name),
                                      static_cast<double>(quadratic),
                                      way.matrices * square / way.ranks));
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

void RingLesson::show_longest(Page& page) {
    constexpr std::int64_t kCapacity = std::int64_t{16} << 30;
    const AttentionProblem problem = large();
    const std::int64_t step = std::int64_t{8} * ranks_;
    page.text(fmt::format(
        "So how long a sequence does a device of {} hold, in this one layer's attention? "
        "Shapes are enough; the ledger refuses one step of {} tokens more:",
        bytes_text(kCapacity), step));
    Table table{{"", "tokens", "against one device"}, {}};
    std::vector<Check> checks;
    double one = 0;
    for (const Way& way : ways(ranks_)) {
        const std::int64_t tokens = longest(way, problem, step, kCapacity);
        if (one == 0) one = static_cast<double>(tokens);
        table.rows.push_back({way.name, count_text(tokens),
                              fmt::format("{:.3g}", static_cast<double>(tokens) / one)});
        const bool fits = runs(way, problem, tokens, kCapacity) &&
                          !runs(way, problem, tokens + step, kCapacity);
        checks.push_back(Check::equal(
            fmt::format(
                "{}: runs with that many tokens, and runs out of memory with {} more",
                way.name, step),
            fits ? 1 : 0, 1));
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
    page.text(
        "Ring Self-Attention's sequence grows as the square root of N, since its scores "
        "are s²/N. Ring Attention's grows with N, without end, and Ulysses' as long as "
        "there are heads to share out. An all-gather's soon stops growing: each device "
        "holds the keys and values of the whole sequence. What a ring has under way, up "
        "to five blocks, is why two devices hold little more than one.");
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

}  // namespace

RunReport RingLesson::run_causal(TokenOrder order) const {
    AttentionProblem problem = large();
    problem.sizes.causal = true;
    return run_method(*make_shapes_only_cluster(ranks_, arithmetic_alone(),
                                                /*trace=*/true),
                      problem, ContextMethod::ring_attention, order, Passes::forward);
}

void RingLesson::causal(Page& page) {
    const AttentionProblem problem = large();
    const std::int64_t c = problem.tokens / ranks_;
    page.text(fmt::format(
        "A GPT's attention is causal: a token sees those up to itself. Deal tokens out "
        "in stretches, and the first device's queries see no block but its own, the last "
        "one's those of all N = {}: they work N to 1, counted in hops at which there is "
        "anything to do. By pairs of tokens, of which its own block has half:",
        ranks_));
    page.predict(
        fmt::format("Of s = {} tokens each of {} devices has c = {}. How many pairs of a "
                    "query and a key that it sees has the last device?",
                    count_text(problem.tokens), ranks_, count_text(c)),
        pairs_of_last(problem, ranks_), "pairs",
        fmt::format("(N - 1) c² + c (c + 1)/2 = {} * {}² + {} * {}/2", ranks_ - 1,
                    count_text(c), count_text(c), count_text(c + 1)));
    show_pairs(page);
    page.text(
        "Striped (Brandon et al. 2023) gives device r tokens r, r + N, r + 2N, …; zigzag "
        "(as Llama 3 has it) cuts the sequence into 2N stretches and gives it number r "
        "and number 2N - 1 - r, an early one and a late one. On the clock, where "
        "arithmetic alone takes time, the first picture waits for its last device and "
        "the second for none:");
    const RunReport contiguous = run_causal(TokenOrder::contiguous);
    const RunReport zigzag = run_causal(TokenOrder::zigzag);
    page.chart(timeline_chart(contiguous, "contiguous"));
    page.chart(timeline_chart(zigzag, "zigzag"));
    page.check(Check::at_most("time of contiguous over zigzag, against 2 - 1/N, off by",
                              std::abs(static_cast<double>(contiguous.makespan()) /
                                           static_cast<double>(zigzag.makespan()) -
                                       (2 - 1.0 / ranks_)),
                              0.01));
    page.text(
        "Nothing of the program changes but which tokens a device is dealt: the mask "
        "asks for each row's token. (A mask that asks for the row's number instead is a "
        "mistake that trains without a word.)");
    page.quote("token-rows");
}

void RingLesson::show_pairs(Page& page) {
    const AttentionProblem problem = large();
    Table table{{"device"}, {}};
    for (int rank = 0; rank < ranks_; ++rank)
        table.rows.push_back({std::to_string(rank)});
    std::vector<std::vector<std::int64_t>> pairs;
    for (const TokenOrder order :
         {TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag}) {
        const RunReport report = run_causal(order);
        const std::string name = name_of(order);
        record().runs.emplace_back("causal_" + name, report);
        record().titles["causal_" + name] = "causal, " + name + " tokens";
        table.head.push_back(name_of(order));
        pairs.push_back(pairs_of(report, problem));
        for (std::size_t rank = 0; rank < pairs.back().size(); ++rank)
            table.rows[rank].push_back(count_text(pairs.back()[rank]));
    }
    page.text("Pairs that each device computes, by order of tokens:");
    page.table(table);
    const auto c = static_cast<double>(problem.tokens) / ranks_;
    page.check(Check::equal("pairs of the last device, contiguous",
                            static_cast<double>(pairs[0].back()),
                            pairs_of_last(problem, ranks_)));
    page.check(
        Check::at_most("difference between devices, striped, in blocks of c² pairs",
                       static_cast<double>(spread(pairs[1])) / (c * c), 1));
    page.check(Check::equal("difference between devices, zigzag",
                            static_cast<double>(spread(pairs[2])), 0));
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

/// F/B.
double least_tokens(const AttentionProblem& problem) {
    return with_link(kLink).flops(problem.dtype) / kLink;
}

}  // namespace

void RingLesson::overlap(Page& page) {
    AttentionProblem problem = large();
    page.text(fmt::format(
        "A hop costs nothing as long as it hides behind the block that is attended to "
        "meanwhile. With c tokens a device and h = {} columns, a block takes 4 c² h "
        "operations, and a hop moves c keys and c values, 4 c h bytes in 16 bits. At F "
        "operations and B bytes a second the hop hides where 4 c h/B <= 4 c² h/F: c >= "
        "F/B, and neither h nor N matters.",
        count_text(problem.sizes.heads * problem.width)));
    page.predict(
        "A device of 2 TFLOP/s and links of 10 GB/s: how many tokens does a device need?",
        least_tokens(problem), "tokens", "F/B = 2e12/10e9");
    show_blocks(page);
    page.text(
        "(The softmax between the products counts too, so that it hides a little earlier "
        "than F/B.) Change the link instead: the same 400 tokens a device, at 10 GB/s "
        "and at a quarter of it.");
    problem.tokens = std::int64_t{400} * ranks_;
    for (const auto& [bandwidth, title] : {std::pair{kLink, "links of 10 GB/s"},
                                           std::pair{kLink / 4, "links of 2.5 GB/s"}}) {
        const std::string name = bandwidth == kLink ? "link" : "slow_link";
        const RunReport report = run_ring(problem, ranks_, bandwidth);
        record().runs.emplace_back(name, report);
        record().titles[name] = title;
        page.chart(timeline_chart(report, title));
    }
    page.text(
        "Causal attention in zigzag order computes half of it, so that it needs twice as "
        "many tokens; grouped queries send g/a of it, and need fewer. Backward works two "
        "and a half times as much a pair and sends twice as much a hop; and the "
        "gradients make one hop more, home, which hides behind nothing.");
}

void RingLesson::show_blocks(Page& page) {
    AttentionProblem problem = large();
    const ClusterSpec spec = with_link(kLink);
    Table table{
        {"tokens a device", "a block", "a hop", "forward takes", "of it, arithmetic"},
        {}};
    std::vector<Check> checks;
    for (const double part : {0.25, 0.5, 1.0, 2.0, 4.0}) {
        const auto c = static_cast<std::int64_t>(part * least_tokens(problem));
        problem.tokens = c * ranks_;
        const BlockTimes times = times_of(problem, ranks_, spec);
        const Picoseconds took = run_ring(problem, ranks_, kLink).makespan();
        const Picoseconds work = ranks_ * times.attend + times.finish;
        table.rows.push_back({count_text(c), time_text(times.attend),
                              time_text(times.hop), time_text(took),
                              fmt::format("{:.3g} %", 100.0 * static_cast<double>(work) /
                                                          static_cast<double>(took))});
        checks.push_back(Check::equal(
            fmt::format("picoseconds with {} tokens a device, against block + (N-1) "
                        "max(block, hop) + finish",
                        c),
            static_cast<double>(took), static_cast<double>(times.formula(ranks_))));
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

namespace {

/// See RoundingBound.
int stores_of(const GptTask& task, int ranks) {
    return static_cast<int>(task.sizes.layers) * block_stores(ranks);
}

/// The largest relative difference of a first gradient; NaN if there is one.
double gradient_difference(const NamedTensors& outputs, const std::string& variant) {
    double worst = 0;
    for (const auto& [name, tensor] : outputs) {
        const std::string prefix = variant + "/grad/";
        if (!name.starts_with(prefix)) continue;
        const double here = relative_difference(
            tensor, outputs.at("gpt_1/grad/" + name.substr(prefix.size())));
        if (!(here <= worst)) worst = here;
    }
    return worst;
}

}  // namespace

std::vector<double> RingLesson::train_on(Page& page, const ContextRun& run,
                                         const std::string& variant) {
    const RunReport report = train_gpt_context(
        *make_cluster(options(), run.ranks()), *task_, run, options().dtype,
        options().seed, page.progress(variant, task_->steps).get());
    record().runs.emplace_back(variant, report);
    if (!has_numbers()) return {};
    const bool alone = run.attention != AttentionKind::shared;
    std::vector<double> curve = losses_of(report);
    record_training(record(), variant, alone, curve, [&](const std::string& prefix) {
        return kept_under(report, prefix);
    });
    if (alone) return curve;
    check_values(
        page,
        fmt::format(
            "{}: first gradients against one device's, largest relative difference",
            variant),
        gradient_difference(record().outputs, variant),
        RoundingBound{2e-4, 1e-11}.of(options().dtype, stores_of(*task_, run.ranks())));
    return curve;
}

void RingLesson::show_contexts(Page& page, std::int64_t capacity) {
    const auto longest = [&](const ContextRun& run, std::int64_t step) {
        return step * largest_that([&](std::int64_t steps) {
                   return training_peak(*task_, run, steps * step, options().dtype) <=
                          capacity;
               });
    };
    const std::int64_t core = longest(ContextRun::alone(AttentionKind::core), 1);
    const std::int64_t flash = longest(ContextRun::alone(AttentionKind::flash), 1);
    Table table{{"", "longest context"}, {}};
    table.rows.push_back({"one such device, all weights held", count_text(core)});
    table.rows.push_back({"one such device, online softmax", count_text(flash)});
    table.rows.push_back({fmt::format("{} of them, {}", ranks_, name_of(method_)),
                          count_text(longest(shared_run(), std::int64_t{2} * ranks_))});
    page.table(table);
    const auto times = [&](std::int64_t alone) {
        return static_cast<double>(task_->sizes.context) /
               static_cast<double>(std::max<std::int64_t>(alone, 1));
    };
    page.text(fmt::format(
        "The context of {} is {:.3g} times what one such device holds that keeps all "
        "weights of attention, and {:.3g} times what it holds with online softmax.",
        task_->sizes.context, times(core), times(flash)));
    if (times(flash) < 1)
        page.text(
            "The scores that Ring Self-Attention keeps weigh more than sharing out the "
            "rest saves.");
}

ContextRun RingLesson::shared_run() const {
    return {1, ranks_, method_, order_, AttentionKind::shared};
}

void RingLesson::train(Page& page) {
    const GptSizes& sizes = task_->sizes;
    const std::int64_t capacity =
        training_peak(*task_, shared_run(), sizes.context, options().dtype);
    page.text(
        fmt::format("Now a GPT on a text (layers: {}, hidden size: {}, heads: {}, "
                    "sequences a step: {}) with a context of {}. Let a device have {}: "
                    "just what each of {} needs to train it together, by the ledger, and "
                    "not a byte more. How long a context do such devices hold?",
                    sizes.layers, sizes.block.hidden, sizes.block.heads, task_->batch,
                    sizes.context, bytes_text(capacity), ranks_));
    show_contexts(page, capacity);
    page.quote("context-parallel");
    page.quote("context-training");
    record_gpt_inputs(record(), *task_);
    train_all(page, capacity);
    page.text(
        "To all but attention and the places, tokens of one sequence and tokens of "
        "another are alike: the gradients are added up over all devices, whether they "
        "share out sequences (dp) or the tokens of each (cp). On a mesh they do both.");
}

void RingLesson::train_all(Page& page, std::int64_t capacity) {
    Curves curves;
    curves.add("1 large device",
               train_on(page, ContextRun::alone(AttentionKind::core), "gpt_1"));
    const std::string all = fmt::format("gpt_{}", ranks_);
    curves.add(fmt::format("{} devices", ranks_), train_on(page, shared_run(), all));
    page.check(Check::at_most(
        fmt::format(
            "bytes that each of {} devices held at most, against what such a device has",
            ranks_),
        static_cast<double>(record().runs.back().second.most_held()),
        static_cast<double>(capacity)));
    if (auto mesh = ContextRun::mesh_of(ranks_)) {
        mesh->method = method_;
        mesh->order = order_;
        curves.add(fmt::format("2 x {}", mesh->parts),
                   train_on(page, *mesh, all + "_mesh"));
    }
    if (has_numbers()) curves.show(page);
    check_values(
        page, "largest difference of a loss from one device's, at any step",
        has_numbers() ? curves.widest_gap() : 0,
        loss_bound(options().dtype, stores_of(*task_, ranks_), curves.losses.front()));
}

}  // namespace lockstep::lessons
