#include <algorithm>

#include <fmt/format.h>

#include "lessons/02_column_linear/column_linear.hpp"
#include "lessons/02_column_linear/silent.hpp"
#include "src/parallel/column_parallel_linear.hpp"

namespace lockstep::lessons {

namespace {

/// A layer by columns from t to 2t, t the ranks, of whole numbers.
Task columns_task(const LessonOptions& options, int ranks) {
    const auto drawn = [&](Shape shape, const char* name) {
        return whole_numbers(shape, options.dtype, options.seed, name);
    };
    constexpr std::int64_t kRows = 2;
    const std::int64_t in = ranks;
    const std::int64_t out = 2 * in;
    Task task;
    task.make = [=](const ParameterInit& init, TensorParallel& tp) {
        return std::make_unique<ColumnParallelLinear>(
            init.child("linear"), tp, in, out,
            ColumnParallelOptions{.bias = false});
    };
    task.x = drawn({kRows, in}, "columns/x");
    task.dy = drawn({kRows, out}, "columns/dy");
    task.own_columns_of_dy = true;
    task.weights = {{"linear.weight", drawn({out, in}, "columns/weight")}};
    return task;
}

std::int64_t bytes_of_all(const RunReport& report,
                          const std::string& half) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < static_cast<int>(report.ranks.size()); ++rank)
        sum += bytes_of_half(report, rank, half);
    return sum;
}

}  // namespace

void ColumnLinear::split_columns(Page& page) {
    const Task task = columns_task(options(), ranks_);
    const std::int64_t in = task.x.shape().columns();
    Task whole = task;
    whole.make = linear_on_one_device(in, 2 * in, false);
    whole.own_columns_of_dy = false;
    const RunReport alone = pass_alone(whole);
    const RunReport without = pass_wrongly(silent(task));
    page.text(fmt::format(
        "When must devices that keep their own columns of y tell each "
        "other anything: forward or backward? Here is a layer from {} to "
        "{} columns, two on each device, of whole numbers that a pencil "
        "can follow.",
        in, 2 * in));
    page.predict("How many bytes does a device send forward?", 0, "bytes",
                 "a column of y takes all of x, which every device has");
    page.check(Check::equal(
        "bytes that all devices sent forward",
        static_cast<double>(bytes_of_all(without, "forward")), 0));
    check_equal(page,
                "numbers of y, side by side, that differ from one device's",
                differing_side_by_side(without, alone, "y"));
    show_partial_gradients(page, task, without, alone);

    page.text(
        "So what leads into the layer, Megatron-LM's f, does nothing "
        "forward and an all-reduce backward. The weight's gradient, dW_r = "
        "dy_r^T x, needs no message. It is made while the all-reduce is "
        "under way.");
    page.quote("f-and-g");
    const RunReport together = pass_together(task);
    check_equal(
        page,
        "with f, numbers of dx on any device that differ from one device's",
        differing_on_any(together, kept(alone, 0, "dx"), "dx"));
    check_equal(page,
                "numbers of the weight's gradient that differ from one "
                "device's",
                differing_gradients(together, alone, task));
    check_all_reduce(page, together, "backward", "dx");
}

void ColumnLinear::show_partial_gradients(Page& page, const Task& task,
                                          const RunReport& without,
                                          const RunReport& alone) {
    page.text(
        "Backward, each number of x went into all columns of y. So its "
        "gradient is a sum over all columns, dx = dy weight, and a device "
        "has the terms of its own: dx_r = dy_r W_r, where W_r are its rows "
        "of weight. This is what each has if none tells the others:");
    page.quote("without-f-or-g");
    if (!has_numbers()) return;
    for (int rank = 0; rank < std::min(ranks_, kShownRanks); ++rank)
        page.verbatim(matrices_text(
            {{fmt::format("dy_{}", rank),
              columns_of_rank(task.dy, rank, ranks_)},
             {fmt::format("W_{}", rank),
              kept(without, rank, "initial/linear.weight")},
             {fmt::format("dx_{}", rank), kept(without, rank, "dx")}}));
    show_rest(page);
    const HostTensor& dx = kept(alone, 0, "dx");
    const HostTensor sum = sum_of(kept_by_all(without, "dx"));
    page.verbatim(
        matrices_text({{"sum of all dx_r", sum}, {"one device's dx", dx}}));
    check_equal(page,
                "numbers of that sum that differ from one device's dx",
                differing(sum, dx));
    if (ranks_ > 1)
        page.text(fmt::format(
            "Device 0's own dx is wrong in {} of {} numbers. Nothing "
            "hangs, and the layers before this one learn from it.",
            differing(kept(without, 0, "dx"), dx), dx.elements()));
}

}  // namespace lockstep::lessons
