#include "lessons/03_tensor_parallel_block/lesson.hpp"

#include <cmath>

#include <fmt/format.h>

#include "lessons/03_tensor_parallel_block/block_runs.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/report/timeline.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kMostRanks = 64;

}  // namespace

TensorParallelLesson::TensorParallelLesson(const LessonOptions& options, Record& record)
    : Lesson(options, record), ranks_(options.ranks.value_or(4)) {
    task_ = make_shared_gpt_task(options, ranks_);
    note("heads", task_->sizes.block.heads);
    note("hidden", task_->sizes.block.hidden);
    note("context", task_->sizes.context);
    // A weight is a sum of a term for each token of each step.
    record.options.sum_length = task_->tokens() * task_->steps;
}

std::vector<Step> TensorParallelLesson::steps() {
    return {step("Attention, head by head", &TensorParallelLesson::attention),
            step("A whole block, and its messages", &TensorParallelLesson::block),
            step("Where activations are duplicated", &TensorParallelLesson::memory),
            step("Sequence parallelism", &TensorParallelLesson::sequence),
            step("A vocabulary that no device holds", &TensorParallelLesson::vocabulary),
            step("A GPT on real text", &TensorParallelLesson::train),
            step("A hidden size of 20,480", &TensorParallelLesson::size)};
}

LessonEntry tensor_parallel_block_lesson() {
    LessonEntry entry;
    entry.slug = "tensor-parallel-block";
    entry.title = "A transformer block whose weights are shared out";
    entry.question =
        "How do several devices compute one transformer together, what do they tell each "
        "other, and what does each have to hold?";
    entry.default_ranks = 4;
    entry.most_ranks = kMostRanks;
    entry.settings = {
        {"layers", "transformer blocks of the GPT", Whole{1, 64, 2}},
        {"heads", "of attention; the least multiple of the ranks from 4 on", Whole{1, 64},
         "4"},
        {"hidden", "columns between layers; 16 a head", Whole{1, 1024}, "64"},
        {"context", "tokens of a sequence; the least multiple of the ranks from 32 on",
         Whole{1, 1024}, "32"},
        {"batch", "sequences of a step", Whole{1, 1024, 8}},
        {"steps", "of training", Whole{1, 100'000, 100}},
        {"learning_rate", "of SGD with momentum 0.9", Real{0, 1e6, 0.2}},
    };
    entry.takes_text = true;
    entry.make = make_lesson<TensorParallelLesson>;
    return entry;
}

namespace {

Twins twins_of(const GptTask& task, const LessonOptions& options) {
    Twins twins;
    twins.length = task.length();
    twins.batch = task.batch;
    twins.hidden = task.sizes.block.hidden;
    twins.dtype = options.dtype;
    twins.seed = options.seed;
    return twins;
}

Twins attention_twins(const GptTask& task, const LessonOptions& options) {
    Twins twins = twins_of(task, options);
    const BlockSizes sizes = task.sizes.block;
    twins.alone = [sizes](const ParameterInit& init) {
        return make_attention(init, sizes.hidden, {sizes.heads, true});
    };
    twins.shared = [sizes](const ParameterInit& init, TensorParallel& tp) {
        return make_attention(init, sizes.hidden, {sizes.heads, true},
                              tensor_parallel({}, tp));
    };
    return twins;
}

/// Attention that cuts c_attn as if it were one layer.
Twins badly_cut(Twins twins, const BlockSizes& sizes) {
    twins.shared = [sizes](const ParameterInit& init, TensorParallel& tp) {
        auto attention = std::make_unique<Sequential>();
        attention->add<ColumnParallelLinear>(init.child("c_attn"), tp, sizes.hidden,
                                             3 * sizes.hidden);
        attention->add<CoreAttention>(init.device,
                                      AttentionSizes{sizes.heads / tp.size(), true});
        attention->add<RowParallelLinear>(init.child("c_proj"), tp, sizes.hidden,
                                          sizes.hidden);
        return attention;
    };
    return twins;
}

/// Returns the bytes that device 0 of `ranks` sends in all-reduces of `elements` numbers.
std::int64_t all_reduce_bytes(std::int64_t elements, DType dtype, int ranks, int calls) {
    return calls *
           collective_traffic({Verb::all_reduce, elements, bytes_of(dtype), ranks}, 0)
               .bytes_sent;
}

}  // namespace

void TensorParallelLesson::attention(Page& page) {
    const BlockSizes& sizes = task_->sizes.block;
    page.text(fmt::format(
        "Heads know nothing of each other: each takes its own queries, keys and values "
        "from x, and only c_proj brings their results together. So give each of {} "
        "devices {} of the {} heads: their columns of c_attn, their attention, their "
        "columns of c_proj's weight. That is a column-parallel layer and a row-parallel "
        "one, with attention itself between them instead of a GELU.",
        ranks_, sizes.heads / ranks_, sizes.heads));
    page.quote("attention");
    page.quote("parallel-layers");
    page.text(fmt::format(
        "c_attn's weight holds three layers one below the other, {} rows of queries, "
        "then of keys, then of values, as GPT-2 has it. Each of the three is shared out: "
        "a device needs the queries, keys and values of the same heads.",
        sizes.hidden));

    const Twins twins = attention_twins(*task_, options());
    const RunReport alone = run_alone(*make_cluster(options(), 1), twins);
    const RunReport shared =
        run_shared(*make_cluster(options(), ranks_), twins, Pass::both);
    check_values(page,
                 fmt::format("attention on {} devices against one: output and every "
                             "gradient, largest relative difference",
                             ranks_),
                 has_numbers() ? twin_difference(shared, alone) : 0, bound());
    if (ranks_ > 1 && has_numbers())
        show_bad_cut(page, badly_cut(twins, sizes), alone.ranks.front().kept.at("y"));
}

void TensorParallelLesson::show_bad_cut(Page& page, const Twins& cut,
                                        const HostTensor& right) {
    const LessonOptions unwatched = options().without_full_check();
    const RunReport report =
        run_shared(*make_cluster(unwatched, ranks_), cut, Pass::forward);
    const HostTensor& wrong = report.ranks.front().kept.at("y");
    double worst = 0, largest = 0;
    for (std::int64_t i = 0; i < right.elements(); ++i) {
        worst = std::max(worst, std::abs(right.at(i) - wrong.at(i)));
        largest = std::max(largest, std::abs(right.at(i)));
    }
    page.text(fmt::format(
        "Cut into {} plain shares instead, as any other weight would be, device 0 gets "
        "nothing but queries: a third of its columns count as queries, a third as keys, "
        "a third as values, and shapes fit. The result is {:.0f} % of the largest output "
        "away. Nothing hangs, and training would even learn something; only a comparison "
        "with one device tells.",
        ranks_, 100 * worst / largest));
}

void TensorParallelLesson::block(Page& page) {
    const BlockSizes& sizes = task_->sizes.block;
    page.text(
        "The MLP is the lesson column-linear's: columns, GELU, rows. Norms and residual "
        "sums stand outside of the two regions, and every device does all of them, on "
        "the same values.");
    page.quote("block");
    page.quote("parallel-gpt");
    Twins twins = twins_of(*task_, options());
    twins.alone = [sizes](const ParameterInit& init) { return make_block(init, sizes); };
    twins.shared = [sizes](const ParameterInit& init, TensorParallel& tp) {
        return make_block(init, sizes, tensor_parallel({}, tp));
    };
    const RunReport alone = run_alone(*make_cluster(options(), 1), twins);
    const RunReport shared =
        run_shared(*make_cluster(options(), ranks_, true), twins, Pass::both);
    const std::string title = "a block, forward and backward";
    record().runs.emplace_back("block", shared);
    record().titles["block"] = title;
    check_values(page,
                 fmt::format("a block on {} devices against one: output and every "
                             "gradient, largest relative difference",
                             ranks_),
                 has_numbers() ? twin_difference(shared, alone) : 0, bound());
    page.chart(timeline_chart(shared, title));
    page.text(
        "Backward, the gradient of the weights of c_attn and of c_fc is computed while "
        "the all-reduce of f is under way: it needs no message.");
    const RunReport forward =
        run_shared(*make_cluster(options(), ranks_), twins, Pass::forward);
    show_block_bytes(page, forward, shared);
}

void TensorParallelLesson::show_block_bytes(Page& page, const RunReport& forward,
                                            const RunReport& both) {
    const std::int64_t hidden = task_->sizes.block.hidden;
    const std::int64_t elements = task_->tokens() * hidden;
    const double predicted =
        std::round(8.0 * static_cast<double>(elements * bytes_of(options().dtype)) *
                   (ranks_ - 1) / ranks_);
    page.predict(
        fmt::format("How many bytes does a device send for this block, forward and "
                    "backward? b = {}, s = {}, h = {}, t = {}, {} bytes a number",
                    task_->batch, task_->length(), hidden, ranks_,
                    bytes_of(options().dtype)),
        predicted, "bytes",
        fmt::format("8 b s h (t-1)/t = 8 * {} * {} * {} * {}/{} * {}: four all-reduces "
                    "of 2 b s h (t-1)/t",
                    task_->batch, task_->length(), hidden, ranks_ - 1, ranks_,
                    bytes_of(options().dtype)));
    const auto sent = [](const RunReport& report) {
        return static_cast<double>(report.ranks.front().bytes_sent());
    };
    const auto expected = [&](int calls) {
        return static_cast<double>(
            all_reduce_bytes(elements, options().dtype, ranks_, calls));
    };
    page.check(Check::equal("bytes that device 0 sent forward, two g", sent(forward),
                            expected(2)));
    page.check(
        Check::equal("bytes that device 0 sent forward and backward, two g and two f",
                     sent(both), expected(4)));
}

namespace {

/// A block of a size that is trained in earnest: that of GPT-3's 2.7 B model.
constexpr std::int64_t kLength = 2048;
constexpr std::int64_t kBatch = 1;

BlockSizes large_block(int ranks) {
    BlockSizes sizes;
    sizes.heads = least_multiple(ranks, 32);
    sizes.hidden = 80 * sizes.heads;
    return sizes;
}

std::int64_t large_length(int ranks) {
    return least_multiple(ranks, kLength);
}

std::int64_t sum_of(const std::vector<Term>& terms, std::int64_t Term::*what) {
    std::int64_t sum = 0;
    for (const Term& term : terms)
        sum += term.*what;
    return sum;
}

void show_terms(Page& page, const std::vector<Term>& terms, std::int64_t held) {
    Table table{{"kept for backward", "formula", "the paper's", "here"}, {}};
    for (const Term& term : terms)
        table.rows.push_back(
            {term.what, term.formula, bytes_text(term.paper), bytes_text(term.ours)});
    table.rows.push_back({"together", "", bytes_text(sum_of(terms, &Term::paper)),
                          bytes_text(sum_of(terms, &Term::ours))});
    page.table(table);
    page.check(Check::equal(
        "bytes that the ledger holds after forward, against the sum here",
        static_cast<double>(held), static_cast<double>(sum_of(terms, &Term::ours))));
}

void show_peak(Page& page, const BlockSizes& sizes, std::int64_t length,
               std::int64_t peak, int ranks) {
    // Shared out further, the scores are no longer what counts.
    constexpr int kScoresCount = 8;
    if (ranks > kScoresCount) return;
    const std::vector<Term> terms = peak_terms(sizes, length, kBatch, ranks);
    page.text(
        "While backward runs, a device needs more for a moment. The peak comes when it "
        "works out the gradient of the scores; the MLP's activations are gone by then.");
    Table table{{"held at the peak", "formula", "bytes"}, {}};
    for (const Term& term : terms)
        table.rows.push_back({term.what, term.formula, bytes_text(term.ours)});
    page.table(table);
    page.check(Check::equal("bytes at the ledger's peak, against the sum",
                            static_cast<double>(peak),
                            static_cast<double>(sum_of(terms, &Term::ours))));
}

/// Against tensor parallelism without it.
void compare_with_replicas(Page& page, const BlockSizes& sizes, std::int64_t length,
                           const Activations& split, int ranks) {
    const Activations whole =
        measure_activations(sizes, length, kBatch, ranks, Regions::replicated);
    Table table{
        {"of one block, each device", "kept for backward", "peak", "sent", "time"}, {}};
    const auto row = [&](const char* name, const Activations& of) {
        table.rows.push_back({name, bytes_text(of.held), bytes_text(of.peak),
                              bytes_text(of.sent), time_text(of.time)});
    };
    row("tensor parallel", whole);
    row("with sequence parallelism", split);
    page.table(table);
    const double bsh = 2.0 * static_cast<double>(length * kBatch * sizes.hidden);
    page.predict(
        "An all-reduce is a reduce-scatter and an all-gather, so four of the one are "
        "four of each of the others: the same bytes. But a layer keeps only its part of "
        "what enters a region, and gathers it again for the weight's gradient. How many "
        "bytes does that add?",
        std::round(2 * bsh * (ranks - 1) / ranks), "bytes",
        fmt::format("2 regions * b s h (t-1)/t * 2 bytes = 2 * {} * {} * {} * {}/{} * 2",
                    kBatch, length, sizes.hidden, ranks - 1, ranks));
    page.check(Check::equal("bytes sent with sequence parallelism less those without",
                            static_cast<double>(split.sent - whole.sent),
                            std::round(2 * bsh * (ranks - 1) / ranks)));
}

}  // namespace

void TensorParallelLesson::memory(Page& page) {
    const BlockSizes sizes = large_block(ranks_);
    const std::int64_t length = large_length(ranks_);
    page.text(fmt::format(
        "What does a device keep of a block's forward for its backward? Take a block as "
        "large as it is in earnest, with s = {} tokens, b = {}, h = {}, a = {} heads, 16 "
        "bits a number; the simulator does it with shapes only, and the ledger counts. "
        "Korthikanti et al. (2022) count s b h (34 + 5 a s/h) bytes on one device, and "
        "with tensor parallelism over t",
        length, kBatch, sizes.hidden, sizes.heads));
    page.verbatim("  s b h (10 + 24/t + 5 a s/(h t))");
    const std::vector<Term> terms =
        activation_terms(sizes, length, kBatch, ranks_, Regions::replicated);
    const Activations measured =
        measure_activations(sizes, length, kBatch, ranks_, Regions::replicated);
    show_terms(page, terms, measured.held);
    page.text(
        "Term by term the ledger agrees, but for what this GPT does not have, dropout, "
        "and for the norms' two numbers a token, which the paper leaves out as small. "
        "(The GELU's input and result count 8 bytes each, four times as many columns.) "
        "What is divided by t lies inside the two regions. The 10 is not divided: "
        "outside, every device keeps the same activations as all others.");
    const std::int64_t sbh = length * kBatch * sizes.hidden;
    page.predict(fmt::format("Of the paper's bytes, how many does each of {} devices "
                             "hold only because all the others do?",
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
        "Norms, residual sums and dropout work token by token. So let each device do "
        "them for s/t of the tokens only. Then what leaves a region need not be summed "
        "for all on every device, only for each device's own tokens: a reduce-scatter, "
        "the first half of an all-reduce. And what enters the next region must be "
        "brought together: an all-gather, its second half.");
    page.quote("sequence-parallel");
    page.text(
        "This is Megatron's sequence parallelism, one of three things of that name: "
        "attention itself still sees all tokens of its heads. (Ring self-attention and "
        "context parallelism split the sequence within attention.)");
    const std::vector<Term> terms =
        activation_terms(sizes, length, kBatch, ranks_, Regions::sequence_parallel);
    const Activations split =
        measure_activations(sizes, length, kBatch, ranks_, Regions::sequence_parallel);
    page.verbatim("  s b h/t (34 + 5 a s/h)");
    show_terms(page, terms, split.held);

    compare_with_replicas(page, sizes, length, split, ranks_);
    page.text(
        "Parameters outside of regions (norms, biases after a row split, the table of "
        "places) now see s/t of the tokens on each device, so their gradients are parts "
        "of a sum. complete_gradients() adds them up; without it, each device's norms go "
        "their own way, and since they start alike, nobody sees it at first. lockstep's "
        "checker finds it with --check full (lessons/faults/F23.md).");
    page.quote("complete-gradients");
}

}  // namespace lockstep::lessons
