#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "src/parallel/ring_products.hpp"

namespace lockstep::lessons {

namespace {

/// Each rank keeps its row block of "scores", and as the series "from"
/// whose keys it had, hop by hop.
RunReport run_scores(Cluster& cluster, const AttentionProblem& problem) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const Ring ring(device, rank.world());
        const Tensor x = device.upload(dealt_rows(
            problem.x(),
            {TokenOrder::contiguous, rank.size(), rank.index()}));
        const AttentionHeads own = attention_heads(x, problem.sizes);
        const PhaseScope phase(device, Phase::forward);
        rank.keep("scores",
                  ring_products(device, ring, own.queries, own.keys,
                                score_factor(problem.width)));
        for (int hops = 0; hops < ring.size(); ++hops)
            rank.keep_value("from", ring.origin(hops));
    });
}

int from(const RunReport& report, int rank, int hops) {
    return static_cast<int>(report.ranks[rank].series.at("from").at(
        static_cast<std::size_t>(hops)));
}

std::string trimmed(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

/// What each rank has of its row block of scores, hop by hop.
std::string hop_by_hop(const RunReport& report) {
    const int n = static_cast<int>(report.ranks.size());
    constexpr int kWidth = 11;
    std::string head = "        ";
    for (int hops = 0; hops < n; ++hops)
        head += fmt::format(
            "{:<{}}", hops == 0 ? "own keys" : fmt::format("hop {}", hops),
            kWidth);
    std::string text = trimmed(head);
    for (int rank = 0; rank < n; ++rank) {
        std::string line = fmt::format("rank {:<2} ", rank);
        std::string block(static_cast<std::size_t>(n), '.');
        for (int hops = 0; hops < n; ++hops) {
            const auto column =
                static_cast<std::size_t>(from(report, rank, hops));
            std::string now = block;
            now[column] = '@';
            block[column] = '#';
            line += fmt::format("{:<{}}", "|" + now + "|", kWidth);
        }
        text += trimmed(line);
    }
    return text +
           "@ the block of scores made now   # made before   . not yet";
}

/// At which hop each rank makes each block, for more ranks than fit beside
/// one another.
std::string by_block(const RunReport& report) {
    const std::size_t n = report.ranks.size();
    std::string text = "keys of";
    for (std::size_t origin = 0; origin < n; ++origin)
        text += fmt::format("{:>4}", origin);
    for (std::size_t rank = 0; rank < n; ++rank) {
        std::vector<int> hop(n);
        for (std::size_t hops = 0; hops < n; ++hops)
            hop[from(report, static_cast<int>(rank),
                     static_cast<int>(hops))] = static_cast<int>(hops);
        text += fmt::format("\nrank {:<2}", rank);
        for (const int at : hop)
            text += fmt::format("{:>4}", at);
    }
    return text + "\nthe hop after which a block of scores is made";
}

std::string picture_of(const RunReport& report) {
    constexpr std::size_t kMostBeside = 6;
    return report.ranks.size() <= kMostBeside ? hop_by_hop(report)
                                              : by_block(report);
}

/// Rows of all ranks, (b, a, s/N, s) each, as (b, a, s, s).
HostTensor all_scores(const RunReport& report) {
    const HostTensor& first = report.ranks.front().kept.at("scores");
    const Shape& shape = first.shape();
    const auto n = static_cast<std::int64_t>(report.ranks.size());
    const std::int64_t share = shape[2], s = shape[3];
    HostTensor whole({shape[0], shape[1], n * share, s}, first.dtype());
    for (std::int64_t rank = 0; rank < n; ++rank) {
        const HostTensor& rows = report.ranks[rank].kept.at("scores");
        for (std::int64_t i = 0; i < rows.elements(); ++i) {
            const std::int64_t matrix = i / (share * s);
            const std::int64_t within = i % (share * s);
            whole.set((matrix * n + rank) * share * s + within, rows.at(i));
        }
    }
    return whole;
}

}  // namespace

void RingLesson::scores(Page& page) {
    const AttentionProblem problem = small(/*causal=*/false);
    page.text(fmt::format(
        "Deal the tokens out: of s = {} tokens each of N = {} devices "
        "gets s/N = {} in a row, and works out their queries, keys and "
        "values by itself. A device needs the scores of its own queries "
        "with all keys: s/N rows of the s x s scores. Ring Self-Attention "
        "(Li et al. 2021) keeps the queries where they are and sends the "
        "keys round: each device hands the keys it has to the next, and "
        "takes those of the previous, until all have seen all. N - 1 "
        "hops.",
        problem.tokens, ranks_, problem.tokens / ranks_));
    page.quote("ring");
    page.quote("ring-products");
    if (!has_numbers()) {
        page.text(
            "(This run computes shapes only: there is nothing to show.)");
        return;
    }
    show_hops(page, problem);
    page.text(
        "While a block is being multiplied the next is already on its "
        "way: ring.travel starts the hop before it visits the block, and "
        "waits after.");
}

void RingLesson::show_hops(Page& page, const AttentionProblem& problem) {
    const RunReport report =
        run_scores(*make_cluster(options(), ranks_), problem);
    page.text("Which block of its scores each device makes, hop by hop:");
    page.verbatim(picture_of(report));
    const RunReport alone =
        run_scores(*make_cluster(options(), 1), problem);
    const HostTensor together = all_scores(report);
    record_small();
    record().outputs.insert_or_assign("scores", together);
    page.check(Check::at_most(
        "the row blocks together against one device's scores, largest "
        "relative difference",
        relative_difference(together,
                            alone.ranks.front().kept.at("scores")),
        bound()));
}

void RingLesson::output(Page& page) {
    page.text(
        "A device now has whole rows of scores, so the softmax needs no "
        "message. The output is the weights times the values, so values "
        "go round once as well, and each device adds up what their blocks "
        "contribute.");
    page.quote("ring-sums");
    page.quote("ring-self-attention");
    page.text(
        "Backward is the same journey: values go round for the gradient "
        "of the weights, keys for that of the queries. The gradients of "
        "keys and values are sums over all queries, of which each device "
        "has its own: it works out what these contribute to all keys, and "
        "an all-reduce adds up.");
    page.quote("ring-self-attention-backward");
    check_method(page, ContextMethod::ring_self_attention);
}

}  // namespace lockstep::lessons
