#include <algorithm>

#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "src/core/units.hpp"
#include "src/device/flops.hpp"

namespace lockstep::lessons {

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

RunReport run_ring(const AttentionProblem& problem, int ranks,
                   double bytes_per_second) {
    return run_method(
        *make_shapes_only_cluster(ranks, with_link(bytes_per_second), true),
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

BlockTimes times_of(const AttentionProblem& of, int ranks,
                    const ClusterSpec& spec) {
    const std::int64_t c = of.tokens / ranks;
    const std::int64_t rows = c * of.batch * of.sizes.heads;
    const auto time = [&](std::int64_t flops) {
        return operation_time(spec, flops, 0, of.dtype);
    };
    return {
        time(rows * c * (4 * of.width + flops::kAttend)),
        message_time(spec.inside, 2 * rows * of.width * bytes_of(of.dtype)),
        time(rows * of.width + rows * flops::kLogSumExp)};
}

/// F/B.
double least_tokens(const AttentionProblem& problem) {
    return with_link(kLink).flops(problem.dtype) / kLink;
}

}  // namespace

void RingLesson::overlap(Page& page) {
    AttentionProblem problem = large();
    page.text(fmt::format(
        "A hop costs nothing as long as it hides behind the block that is "
        "attended to meanwhile. With c tokens a device and h = {} "
        "columns, a block takes 4 c² h operations, and a hop moves c keys "
        "and c values, 4 c h bytes in 16 bits. At F operations and B "
        "bytes a second the hop hides where 4 c h/B <= 4 c² h/F: c >= "
        "F/B, and neither h nor N matters.",
        count_text(problem.sizes.heads * problem.width)));
    page.predict(
        "A device of 2 TFLOP/s and links of 10 GB/s: how many tokens does "
        "a device need?",
        least_tokens(problem), "tokens", "F/B = 2e12/10e9");
    show_blocks(page);
    page.text(
        "(The softmax between the products counts too, so that it hides a "
        "little earlier than F/B.) Change the link instead: the same 400 "
        "tokens a device, at 10 GB/s and at a quarter of it.");
    problem.tokens = 400 * ranks_;
    for (const auto& [bandwidth, name] :
         {std::pair{kLink, "10 GB/s"}, std::pair{kLink / 4, "2.5 GB/s"}}) {
        const RunReport report = run_ring(problem, ranks_, bandwidth);
        record().runs.emplace_back(
            bandwidth == kLink ? "link" : "slow_link", report);
        page.timeline(name, report);
    }
    page.text(
        "Causal attention in zigzag order computes half of it, so that it "
        "needs twice as many tokens; grouped queries send g/a of it, and "
        "need fewer. Backward works two and a half times as much a pair "
        "and sends twice as much a hop; and the gradients make one hop "
        "more, home, which hides behind nothing.");
}

void RingLesson::show_blocks(Page& page) {
    AttentionProblem problem = large();
    const ClusterSpec spec = with_link(kLink);
    Table table{{"tokens a device", "a block", "a hop", "forward takes",
                 "of it, arithmetic"},
                {}};
    std::vector<Check> checks;
    for (const double part : {0.25, 0.5, 1.0, 2.0, 4.0}) {
        const auto c =
            static_cast<std::int64_t>(part * least_tokens(problem));
        problem.tokens = c * ranks_;
        const BlockTimes times = times_of(problem, ranks_, spec);
        const Picoseconds took =
            run_ring(problem, ranks_, kLink).makespan();
        const Picoseconds work = ranks_ * times.attend + times.finish;
        table.rows.push_back(
            {count_text(c), time_text(times.attend), time_text(times.hop),
             time_text(took),
             fmt::format("{:.3g} %", 100.0 * static_cast<double>(work) /
                                         static_cast<double>(took))});
        checks.push_back(Check::equal(
            fmt::format("picoseconds with {} tokens a device, against "
                        "block + (N-1) max(block, hop) + finish",
                        c),
            static_cast<double>(took),
            static_cast<double>(times.formula(ranks_))));
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

}  // namespace lockstep::lessons
