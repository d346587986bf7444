#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "src/parallel/tensor_parallel_block.hpp"

namespace lockstep::lessons {

namespace {

/// What a rank sent in both passes, and in the first.
struct Counted {
    Sent forward;
    Sent both;
};

Counted count(const AttentionProblem& problem, ContextMethod method,
              int ranks) {
    const auto sent = [&](Passes passes) {
        const RunReport report =
            run_method(*make_shapes_only_cluster(ranks), problem, method,
                       TokenOrder::contiguous, passes);
        const RankReport& rank = report.ranks.front();
        return Sent{rank.bytes_sent() / bytes_of(problem.dtype),
                    rank.messages_sent()};
    };
    return {sent(Passes::forward), sent(Passes::both)};
}

/// B Z (s/N) A.
std::int64_t block_of(const ContextShape& of) {
    return of.batch * of.heads * (of.tokens / of.ranks) * of.width;
}

std::string blocks_text(std::int64_t elements, const ContextShape& shape) {
    return fmt::format("{:.4g}", static_cast<double>(elements) /
                                     static_cast<double>(block_of(shape)));
}

Sent sum(const Sent& a, const Sent& b) {
    return {a.elements + b.elements, a.messages + b.messages};
}

/// Elements that a rank sends for a whole block whose weights are shared
/// out.
std::int64_t count_tensor_parallel(const AttentionProblem& problem,
                                   int ranks) {
    const std::int64_t hidden = problem.sizes.heads * problem.width;
    const RunReport report =
        make_shapes_only_cluster(ranks)->run([&](Rank& rank) {
            Device& device = rank.device();
            TensorParallel tp(device, rank.world());
            BlockSizes sizes;
            sizes.hidden = hidden;
            sizes.heads = problem.sizes.heads;
            const auto block = make_parallel_block(
                {device, problem.dtype, 1, "h.0"}, tp, sizes);
            const Shape shape{problem.tokens, problem.batch, hidden};
            Saved saved;
            block->forward(device.empty(shape, problem.dtype), saved);
            block->backward(device.empty(shape, problem.dtype), saved);
        });
    return report.ranks.front().bytes_sent() / bytes_of(problem.dtype);
}

/// What each method sends, and the checks of it.
void show_methods(Page& page, const AttentionProblem& problem, int ranks) {
    const ContextShape shape = problem.shared_out_to(ranks);
    const auto in_blocks = [&](std::int64_t elements) {
        return blocks_text(elements, shape);
    };
    Table table{{"a device sends, in B Z (s/N) A", "forward", "both passes",
                 "messages"},
                {}};
    std::vector<Check> checks;
    const auto hold = [&](const std::string& what, std::int64_t counted,
                          std::int64_t formula) {
        checks.push_back(Check::equal(what + ", against its formula",
                                      static_cast<double>(counted),
                                      static_cast<double>(formula)));
    };
    for (const ContextMethod method : all_context_methods()) {
        const Counted counted = count(problem, method, ranks);
        const Sent forward = sent_forward(method, shape);
        const Sent both = sum(forward, sent_backward(method, shape));
        const std::string name = name_of(method);
        table.rows.push_back({name, in_blocks(counted.forward.elements),
                              in_blocks(counted.both.elements),
                              count_text(counted.both.messages)});
        hold("numbers that " + name + " sends forward",
             counted.forward.elements, forward.elements);
        hold("numbers that " + name + " sends in both passes",
             counted.both.elements, both.elements);
        hold("messages that " + name + " sends", counted.both.messages,
             both.messages);
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

}  // namespace

void RingLesson::bytes(Page& page) {
    const AttentionProblem problem = large();
    const ContextShape shape = problem.shared_out_to(ranks_);
    page.text(fmt::format(
        "Take a size that is trained in earnest: s = {} tokens, batch B = "
        "{}, Z = {} heads of A = {} columns, on N = {} devices. Shapes "
        "are enough to count.",
        count_text(problem.tokens), problem.batch, shape.heads, shape.width,
        ranks_));
    page.predict(
        "Forward, keys make N - 1 hops and values as many. How many "
        "numbers does each device send?",
        static_cast<double>(2 * (ranks_ - 1) * block_of(shape)), "",
        fmt::format("2 (N-1) B Z (s/N) A = 2 * {} * {} * {} * {} * {}",
                    ranks_ - 1, problem.batch, shape.heads,
                    count_text(problem.tokens / ranks_), shape.width));
    page.text(
        "Backward: values and keys once more round, 2 (N-1) B Z (s/N) A, "
        "and two all-reduces over the gradients of all keys and all "
        "values, each 2 (N-1)/N of N blocks: 6 (N-1) B Z (s/N) A; 8 (N-1) "
        "B Z (s/N) A in all (Li et al. 2021, section 3.2.2). Counted, "
        "beside Ring Attention of the next step, and two others that "
        "people weigh it against: gathered keys and values (Llama 3), and "
        "Ulysses (Jacobs et al. 2023), which shares out heads instead of "
        "tokens for as long as it attends:");
    page.quote("gather-attention");
    page.quote("ulysses-attention");
    show_methods(page, problem, ranks_);
    show_shared_weights(page);
}

void RingLesson::show_shared_weights(Page& page) {
    const AttentionProblem problem = large();
    const ContextShape shape = problem.shared_out_to(ranks_);
    const std::int64_t counted = count_tensor_parallel(problem, ranks_);
    page.check(Check::equal(
        "numbers that a block sends whose weights are shared out, against "
        "8 b s h (N-1)/N",
        static_cast<double>(counted),
        static_cast<double>(tensor_parallel_elements(shape))));
    page.text(fmt::format(
        "Those are {} of the same units: as many as Ring "
        "Self-Attention's, for attention and MLP. Where weights are "
        "shared out, every device works on all tokens. Where tokens are, "
        "every device has all weights, and once a step their gradients "
        "are added up, 2 (N-1)/N of them, as in data parallelism: that is "
        "not counted here. Ulysses sends 2/N of what a ring does forward, "
        "but N must divide the heads. With g heads of keys and values for "
        "a of queries, rings and all-gather send g/a of this, Ulysses (a "
        "+ g)/(2a).",
        blocks_text(counted, shape)));
}

}  // namespace lockstep::lessons
