#include <cmath>

#include <fmt/format.h>

#include "lessons/03_tensor_parallel_block/tensor_parallel_lesson.hpp"
#include "lessons/03_tensor_parallel_block/twins.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/attention.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/tensor_parallel_block.hpp"

namespace lockstep::lessons {

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
        return make_parallel_attention(init, tp, sizes.hidden, sizes.heads,
                                       true);
    };
    return twins;
}

/// Attention that cuts c_attn as if it were one layer.
Twins badly_cut(Twins twins, const BlockSizes& sizes) {
    twins.shared = [sizes](const ParameterInit& init, TensorParallel& tp) {
        auto attention = std::make_unique<Sequential>();
        attention->add<ColumnParallelLinear>(
            init.child("c_attn"), tp, sizes.hidden, 3 * sizes.hidden,
            ColumnParallelOptions{.stacked = 1});
        attention->add<CoreAttention>(
            init.device, AttentionSizes{sizes.heads / tp.size(), true});
        attention->add<RowParallelLinear>(init.child("c_proj"), tp,
                                          sizes.hidden, sizes.hidden);
        return attention;
    };
    return twins;
}

/// What device 0 of `ranks` sends in all-reduces of `elements` numbers.
std::int64_t all_reduce_bytes(std::int64_t elements, DType dtype, int ranks,
                              int calls) {
    return calls *
           collective_traffic(
               {Verb::all_reduce, elements, bytes_of(dtype), ranks}, 0)
               .bytes_sent;
}

}  // namespace

void TensorParallelLesson::attention(Page& page) {
    const BlockSizes& sizes = task_->sizes.block;
    page.text(fmt::format(
        "Heads know nothing of each other: each takes its own queries, "
        "keys and values from x, and only c_proj brings their results "
        "together. So give each of {} devices {} of the {} heads: their "
        "columns of c_attn, their attention, their columns of c_proj's "
        "weight. That is a column-parallel layer and a row-parallel one, "
        "with attention itself between them instead of a GELU.",
        ranks_, sizes.heads / ranks_, sizes.heads));
    page.quote("parallel-attention");
    page.text(fmt::format(
        "c_attn's weight holds three layers one below the other, {} rows "
        "of queries, then of keys, then of values, as GPT-2 has it. Each "
        "of the three is shared out: a device needs the queries, keys and "
        "values of the same heads.",
        sizes.hidden));

    const Twins twins = attention_twins(*task_, options());
    const RunReport alone = run_alone(*make_cluster(options(), 1), twins);
    const RunReport shared =
        run_shared(*make_cluster(options(), ranks_), twins, Pass::both);
    check_values(page,
                 fmt::format("attention on {} devices against one: output "
                             "and every gradient, largest relative "
                             "difference",
                             ranks_),
                 has_numbers() ? twin_difference(twins, shared, alone) : 0,
                 bound());
    if (ranks_ > 1 && has_numbers())
        show_bad_cut(page, badly_cut(twins, sizes),
                     alone.ranks.front().kept.at("y"));
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
        "Cut into {} plain shares instead, as any other weight would be, "
        "device 0 gets nothing but queries: a third of its columns count "
        "as queries, a third as keys, a third as values, and shapes fit. "
        "The result is {:.0f} % of the largest output away. Nothing hangs, "
        "and training would even learn something; only a comparison with "
        "one device tells.",
        ranks_, 100 * worst / largest));
}

void TensorParallelLesson::block(Page& page) {
    const BlockSizes& sizes = task_->sizes.block;
    page.text(
        "The MLP is the lesson column-linear's: columns, GELU, rows. Norms "
        "and residual sums stand outside of the two regions, and every "
        "device does all of them, on the same values.");
    page.quote("parallel-block");
    Twins twins = twins_of(*task_, options());
    twins.alone = [sizes](const ParameterInit& init) {
        return make_block(init, sizes);
    };
    twins.shared = [sizes](const ParameterInit& init, TensorParallel& tp) {
        return make_parallel_block(init, tp, sizes);
    };
    const RunReport alone = run_alone(*make_cluster(options(), 1), twins);
    const RunReport shared = run_shared(
        *make_cluster(options(), ranks_, true), twins, Pass::both);
    record().runs.emplace_back("block", shared);
    check_values(page,
                 fmt::format("a block on {} devices against one: output "
                             "and every gradient, largest relative "
                             "difference",
                             ranks_),
                 has_numbers() ? twin_difference(twins, shared, alone) : 0,
                 bound());
    page.timeline("a block, forward and backward", shared);
    page.text(
        "Backward, the gradient of the weights of c_attn and of c_fc is "
        "computed while the all-reduce of f is under way: it needs no "
        "message.");
    const RunReport forward =
        run_shared(*make_cluster(options(), ranks_), twins, Pass::forward);
    show_block_bytes(page, forward, shared);
}

void TensorParallelLesson::show_block_bytes(Page& page,
                                            const RunReport& forward,
                                            const RunReport& both) {
    const std::int64_t hidden = task_->sizes.block.hidden;
    const std::int64_t elements = task_->tokens() * hidden;
    const double predicted = std::round(
        8.0 * static_cast<double>(elements * bytes_of(options().dtype)) *
        (ranks_ - 1) / ranks_);
    page.predict(
        fmt::format("How many bytes does a device send for this block, "
                    "forward and backward? b = {}, s = {}, h = {}, t = {}, "
                    "{} bytes a number",
                    task_->batch, task_->length(), hidden, ranks_,
                    bytes_of(options().dtype)),
        predicted, "bytes",
        fmt::format("8 b s h (t-1)/t = 8 * {} * {} * {} * {}/{} * {}: four "
                    "all-reduces of 2 b s h (t-1)/t",
                    task_->batch, task_->length(), hidden, ranks_ - 1,
                    ranks_, bytes_of(options().dtype)));
    const auto sent = [](const RunReport& report) {
        return static_cast<double>(report.ranks.front().bytes_sent());
    };
    const auto expected = [&](int calls) {
        return static_cast<double>(
            all_reduce_bytes(elements, options().dtype, ranks_, calls));
    };
    page.check(Check::equal("bytes that device 0 sent forward, two g",
                            sent(forward), expected(2)));
    page.check(Check::equal(
        "bytes that device 0 sent forward and backward, two g and two f",
        sent(both), expected(4)));
}

}  // namespace lockstep::lessons
