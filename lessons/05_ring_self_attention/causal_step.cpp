#include <algorithm>

#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "src/device/flops.hpp"

namespace lockstep::lessons {

namespace {

/// Devices whose arithmetic alone takes time: launches, memory and links
/// are free.
ClusterSpec arithmetic_alone() {
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = 0;
    spec.memory_bytes_per_second = 0;
    spec.launch_seconds = 0;
    spec.inside = spec.between = {0, 0};
    return spec;
}

/// Pairs of tokens in what each rank computed of Ring Attention's forward.
std::vector<std::int64_t> pairs_of(const RunReport& report,
                                   const AttentionProblem& of) {
    const auto ranks = static_cast<std::int64_t>(report.ranks.size());
    const std::int64_t rows = of.tokens / ranks * of.batch * of.sizes.heads;
    const std::int64_t finish = rows * of.width + rows * flops::kLogSumExp;
    const std::int64_t a_pair =
        (4 * of.width + flops::kAttend) * of.batch * of.sizes.heads;
    std::vector<std::int64_t> pairs;
    for (const RankReport& rank : report.ranks)
        pairs.push_back((rank.flops - finish) / a_pair);
    return pairs;
}

/// Of contiguous tokens: all blocks before its own, and half of that.
double pairs_of_last(const AttentionProblem& of, int ranks) {
    const auto c = static_cast<double>(of.tokens / ranks);
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
                      problem, ContextMethod::ring_attention, order,
                      Passes::forward);
}

void RingLesson::causal(Page& page) {
    const AttentionProblem problem = large();
    const std::int64_t c = problem.tokens / ranks_;
    page.text(fmt::format(
        "A GPT's attention is causal: a token sees those up to itself. "
        "Deal tokens out in stretches, and the first device's queries see "
        "no block but its own, the last one's those of all N = {}: they "
        "work N to 1, counted in hops at which there is anything to do. "
        "By pairs of tokens, of which its own block has half:",
        ranks_));
    page.predict(
        fmt::format("Of s = {} tokens each of {} devices has c = {}. How "
                    "many pairs of a query and a key that it sees has the "
                    "last device?",
                    count_text(problem.tokens), ranks_, count_text(c)),
        pairs_of_last(problem, ranks_), "pairs",
        fmt::format("(N - 1) c² + c (c + 1)/2 = {} * {}² + {} * {}/2",
                    ranks_ - 1, count_text(c), count_text(c),
                    count_text(c + 1)));
    show_pairs(page);
    page.text(
        "Striped (Brandon et al. 2023) gives device r tokens r, r + N, r "
        "+ 2N, …; zigzag (as Llama 3 has it) cuts the sequence into 2N "
        "stretches and gives it number r and number 2N - 1 - r, an early "
        "one and a late one. On the clock, where arithmetic alone takes "
        "time, the first picture waits for its last device and the second "
        "for none:");
    const RunReport contiguous = run_causal(TokenOrder::contiguous);
    const RunReport zigzag = run_causal(TokenOrder::zigzag);
    page.timeline("contiguous", contiguous);
    page.timeline("zigzag", zigzag);
    page.check(Check::at_most(
        "time of contiguous over zigzag, against 2 - 1/N, off by",
        std::abs(static_cast<double>(contiguous.makespan()) /
                     static_cast<double>(zigzag.makespan()) -
                 (2 - 1.0 / ranks_)),
        0.01));
    page.text(
        "Nothing of the program changes but which tokens a device is "
        "dealt: the mask asks for each row's token. (A mask that asks for "
        "the row's number instead is a mistake that trains without a "
        "word.)");
    page.quote("token-rows");
}

void RingLesson::show_pairs(Page& page) {
    const AttentionProblem problem = large();
    Table table{{"device"}, {}};
    for (int rank = 0; rank < ranks_; ++rank)
        table.rows.push_back({std::to_string(rank)});
    std::vector<std::vector<std::int64_t>> pairs;
    for (const TokenOrder order :
         {TokenOrder::contiguous, TokenOrder::striped,
          TokenOrder::zigzag}) {
        const RunReport report = run_causal(order);
        record().runs.emplace_back(std::string("causal_") + name_of(order),
                                   report);
        table.head.push_back(name_of(order));
        pairs.push_back(pairs_of(report, problem));
        for (std::size_t rank = 0; rank < pairs.back().size(); ++rank)
            table.rows[rank].push_back(count_text(pairs.back()[rank]));
    }
    page.text("Pairs that each device computes, by order of tokens:");
    page.table(table);
    const auto c = static_cast<double>(problem.tokens / ranks_);
    page.check(Check::equal("pairs of the last device, contiguous",
                            static_cast<double>(pairs[0].back()),
                            pairs_of_last(problem, ranks_)));
    page.check(Check::at_most(
        "difference between devices, striped, in blocks of c² pairs",
        static_cast<double>(spread(pairs[1])) / (c * c), 1));
    page.check(Check::equal("difference between devices, zigzag",
                            static_cast<double>(spread(pairs[2])), 0));
}

}  // namespace lockstep::lessons
