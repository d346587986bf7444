#include <cmath>

#include <fmt/format.h>

#include "lessons/03_tensor_parallel_block/activations.hpp"
#include "lessons/03_tensor_parallel_block/tensor_parallel_lesson.hpp"
#include "src/core/units.hpp"

namespace lockstep::lessons {

namespace {

/// A block of a size that is trained in earnest: that of GPT-3's 2.7 B
/// model.
constexpr std::int64_t kLength = 2048;
constexpr std::int64_t kBatch = 1;

BlockSizes large_block(int ranks) {
    BlockSizes sizes;
    sizes.heads = (32 + ranks - 1) / ranks * ranks;
    sizes.hidden = 80 * sizes.heads;
    return sizes;
}

std::int64_t large_length(int ranks) {
    return (kLength + ranks - 1) / ranks * ranks;
}

std::int64_t sum_of(const std::vector<Term>& terms,
                    std::int64_t Term::*what) {
    std::int64_t sum = 0;
    for (const Term& term : terms)
        sum += term.*what;
    return sum;
}

void show_terms(Page& page, const std::vector<Term>& terms,
                std::int64_t held) {
    Table table{{"kept for backward", "formula", "the paper's", "here"},
                {}};
    for (const Term& term : terms)
        table.rows.push_back({term.what, term.formula,
                              bytes_text(term.paper),
                              bytes_text(term.ours)});
    table.rows.push_back({"together", "",
                          bytes_text(sum_of(terms, &Term::paper)),
                          bytes_text(sum_of(terms, &Term::ours))});
    page.table(table);
    page.check(Check::equal(
        "bytes that the ledger holds after forward, against the sum here",
        static_cast<double>(held),
        static_cast<double>(sum_of(terms, &Term::ours))));
}

void show_peak(Page& page, const BlockSizes& sizes, std::int64_t length,
               std::int64_t peak, int ranks) {
    // Shared out further, the scores are no longer what counts.
    constexpr int kScoresCount = 8;
    if (ranks > kScoresCount) return;
    const std::vector<Term> terms =
        peak_terms(sizes, length, kBatch, ranks);
    page.text(
        "While backward runs, a device needs more for a moment. The peak "
        "comes when it works out the gradient of the scores; the MLP's "
        "activations are gone by then.");
    Table table{{"held at the peak", "formula", "bytes"}, {}};
    for (const Term& term : terms)
        table.rows.push_back(
            {term.what, term.formula, bytes_text(term.ours)});
    page.table(table);
    page.check(
        Check::equal("bytes at the ledger's peak, against the sum",
                     static_cast<double>(peak),
                     static_cast<double>(sum_of(terms, &Term::ours))));
}

/// Against tensor parallelism without it.
void compare_with_replicas(Page& page, const BlockSizes& sizes,
                           std::int64_t length, const Activations& split,
                           int ranks) {
    const Activations whole = measure_activations(
        sizes, length, kBatch, ranks, Regions::replicated);
    Table table{{"of one block, each device", "kept for backward", "peak",
                 "sent", "time"},
                {}};
    const auto row = [&](const char* name, const Activations& of) {
        table.rows.push_back({name, bytes_text(of.held),
                              bytes_text(of.peak), bytes_text(of.sent),
                              time_text(of.time)});
    };
    row("tensor parallel", whole);
    row("with sequence parallelism", split);
    page.table(table);
    const double bsh =
        2.0 * static_cast<double>(length * kBatch * sizes.hidden);
    page.predict(
        "An all-reduce is a reduce-scatter and an all-gather, so four of "
        "the one are four of each of the others: the same bytes. But a "
        "layer keeps only its part of what enters a region, and gathers it "
        "again for the weight's gradient. How many bytes does that add?",
        std::round(2 * bsh * (ranks - 1) / ranks), "bytes",
        fmt::format("2 regions * b s h (t-1)/t * 2 bytes = 2 * {} * {} * "
                    "{} * {}/{} * 2",
                    kBatch, length, sizes.hidden, ranks - 1, ranks));
    page.check(Check::equal(
        "bytes sent with sequence parallelism less those without",
        static_cast<double>(split.sent - whole.sent),
        std::round(2 * bsh * (ranks - 1) / ranks)));
}

}  // namespace

void TensorParallelLesson::memory(Page& page) {
    const BlockSizes sizes = large_block(ranks_);
    const std::int64_t length = large_length(ranks_);
    page.text(fmt::format(
        "What does a device keep of a block's forward for its backward? "
        "Take a block as large as it is in earnest, with s = {} tokens, b "
        "= {}, h = {}, a = {} heads, 16 bits a number; the simulator does "
        "it with shapes only, and the ledger counts. Korthikanti et al. "
        "(2022) count s b h (34 + 5 a s/h) bytes on one device, and with "
        "tensor parallelism over t",
        length, kBatch, sizes.hidden, sizes.heads));
    page.verbatim("  s b h (10 + 24/t + 5 a s/(h t))");
    const std::vector<Term> terms = activation_terms(
        sizes, length, kBatch, ranks_, Regions::replicated);
    const Activations measured = measure_activations(
        sizes, length, kBatch, ranks_, Regions::replicated);
    show_terms(page, terms, measured.held);
    page.text(
        "Term by term the ledger agrees, but for what this GPT does not "
        "have, dropout, and for the norms' two numbers a token, which the "
        "paper leaves out as small. (The GELU's input and result count 8 "
        "bytes each, four times as many columns.) What is divided by t "
        "lies inside the two regions. The 10 is not divided: outside, "
        "every device keeps the same activations as all others.");
    const std::int64_t sbh = length * kBatch * sizes.hidden;
    page.predict(
        fmt::format("Of the paper's bytes, how many does each of {} "
                    "devices hold only because all the others do?",
                    ranks_),
        std::round(10.0 * static_cast<double>(sbh) * (ranks_ - 1) / ranks_),
        "bytes",
        fmt::format("10 s b h (t-1)/t = 10 * {} * {} * {} * {}/{}", length,
                    kBatch, sizes.hidden, ranks_ - 1, ranks_));
    show_peak(page, sizes, length, measured.peak, ranks_);
}

void TensorParallelLesson::sequence(Page& page) {
    const BlockSizes sizes = large_block(ranks_);
    const std::int64_t length = large_length(ranks_);
    page.text(
        "Norms, residual sums and dropout work token by token. So let "
        "each device do them for s/t of the tokens only. Then what leaves "
        "a region need not be summed for all on every device, only for "
        "each device's own tokens: a reduce-scatter, the first half of an "
        "all-reduce. And what enters the next region must be brought "
        "together: an all-gather, its second half.");
    page.quote("sequence-parallel");
    page.text(
        "This is Megatron's sequence parallelism, one of three things of "
        "that name: attention itself still sees all tokens of its heads. "
        "(Ring self-attention and context parallelism split the sequence "
        "within attention.)");
    const std::vector<Term> terms = activation_terms(
        sizes, length, kBatch, ranks_, Regions::sequence_parallel);
    const Activations split = measure_activations(
        sizes, length, kBatch, ranks_, Regions::sequence_parallel);
    page.verbatim("  s b h/t (34 + 5 a s/h)");
    show_terms(page, terms, split.held);

    compare_with_replicas(page, sizes, length, split, ranks_);
    page.text(
        "Parameters outside of regions (norms, biases after a row split, "
        "the table of places) now see s/t of the tokens on each device, so "
        "their gradients are parts of a sum. complete_gradients() adds "
        "them up; without it, each device's norms go their own way, and "
        "since they start alike, nobody sees it at first. lockstep's "
        "checker finds it with --check full (lessons/faults/F23.md).");
}

}  // namespace lockstep::lessons
