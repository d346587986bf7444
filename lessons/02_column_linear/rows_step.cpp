#include <algorithm>

#include <fmt/format.h>

#include "lessons/02_column_linear/column_linear.hpp"
#include "lessons/02_column_linear/silent.hpp"
#include "src/parallel/row_parallel_linear.hpp"

namespace lockstep::lessons {

Task rows_task(const LessonOptions& options, int ranks) {
    const auto drawn = [&](Shape shape, const char* name) {
        return whole_numbers(shape, options.dtype, options.seed, name);
    };
    constexpr std::int64_t kRows = 2;
    const std::int64_t out = ranks;
    const std::int64_t in = 2 * out;
    Task task;
    task.make = [=](const ParameterInit& init, TensorParallel& tp) {
        return std::make_unique<RowParallelLinear>(init.child("linear"), tp,
                                                   in, out);
    };
    task.x = drawn({kRows, in}, "rows/x");
    task.dy = drawn({kRows, out}, "rows/dy");
    task.own_columns_of_x = true;
    task.weights = {{"linear.weight", drawn({out, in}, "rows/weight")},
                    {"linear.bias", drawn({out}, "rows/bias")}};
    return task;
}

void ColumnLinear::split_rows(Page& page) {
    const Task task = rows_task(options(), ranks_);
    const std::int64_t out = task.dy.shape().columns();
    Task whole = task;
    whole.make = linear_on_one_device(2 * out, out, true);
    whole.own_columns_of_x = false;
    const RunReport alone = pass_alone(whole);
    page.text(fmt::format(
        "What if the columns of x are shared out already, as those of y "
        "are now? Then a device takes the rows of W that its columns of x "
        "meet. They are columns of weight. In a layer from {} to {}, with "
        "two columns of x on each device, it has some terms of every "
        "number of y:",
        2 * out, out));
    show_partial_outputs(page, task, alone);

    page.text(
        "What leads out of the layer, g, is f turned round: an all-reduce "
        "forward, and nothing backward, since every device has dy and "
        "needs only its own columns of dx.");
    page.quote("row-parallel");
    const RunReport together = pass_together(task);
    check_equal(
        page,
        "with g, numbers of y on any device that differ from one device's",
        differing_on_any(together, kept(alone, 0, "y"), "y"));
    check_equal(
        page, "numbers of dx, side by side, that differ from one device's",
        differing_side_by_side(together, alone, "dx"));
    check_equal(page,
                "numbers of the parameters' gradients that differ from one "
                "device's",
                differing_gradients(together, alone, task));
    check_all_reduce(page, together, "forward", "y");
    page.check(Check::equal(
        "bytes that device 0 sent backward",
        static_cast<double>(bytes_of_half(together, 0, "backward")), 0));

    record_rows(task, together);
}

void ColumnLinear::record_rows(const Task& task,
                               const RunReport& together) {
    record().inputs.insert_or_assign("rows/x", task.x);
    record().inputs.insert_or_assign("rows/dy", task.dy);
    for (const auto& [name, weight] : task.weights)
        record().inputs.insert_or_assign("rows/initial/" + name, weight);
    record().outputs.insert_or_assign("rows/y", kept(together, 0, "y"));
    record().outputs.insert_or_assign(
        "rows/dx", side_by_side(kept_by_all(together, "dx")));
    for (auto& [name, gradient] : whole_gradients(together, task))
        record().outputs.insert_or_assign("rows/" + name, gradient);
    record().runs.emplace_back("rows", together);
}

void ColumnLinear::show_partial_outputs(Page& page, const Task& task,
                                        const RunReport& alone) {
    const RunReport biased = pass_wrongly(silent(task));
    Task unbiased = silent(task);
    unbiased.weights["linear.bias"] =
        HostTensor(task.weights.at("linear.bias").shape(), task.x.dtype());
    const RunReport without = pass_wrongly(unbiased);
    const HostTensor& bias = task.weights.at("linear.bias");
    const HostTensor& y = kept(alone, 0, "y");
    const HostTensor terms = sum_of(kept_by_all(without, "y"));
    record().outputs.insert_or_assign(
        "rows/partial", side_by_side(kept_by_all(without, "y")));
    if (!has_numbers()) return;
    for (int rank = 0; rank < std::min(ranks_, kShownRanks); ++rank)
        page.verbatim(
            matrices_text({{fmt::format("x_{}", rank),
                            columns_of_rank(task.x, rank, ranks_)},
                           {fmt::format("W_{}", rank),
                            kept(without, rank, "initial/linear.weight")},
                           {fmt::format("x_{0} W_{0}^T", rank),
                            kept(without, rank, "y")}}));
    show_rest(page);
    page.verbatim(matrices_text(
        {{"their sum", terms}, {"bias", bias}, {"one device's y", y}}));

    // Every device that adds the bias to its terms adds it to the sum.
    HostTensor expected = y;
    for (std::int64_t i = 0; i < y.elements(); ++i)
        expected.set(i,
                     y.at(i) + (ranks_ - 1) * bias.at(i % bias.elements()));
    page.text(
        "The bias goes onto the sum, once. Where each device adds it to "
        "its terms, the sum has it once a device:");
    page.predict(
        fmt::format("The first number of y is {}, that of the bias {}. "
                    "What does y begin with if all {} add the bias?",
                    number(y.at(0)), number(bias.at(0)), ranks_),
        expected.at(0), "",
        fmt::format("{} + {} * {}", number(y.at(0)), ranks_ - 1,
                    number(bias.at(0))));
    check_equal(page,
                "numbers of such a sum that differ from y + (t-1) bias",
                differing(sum_of(kept_by_all(biased, "y")), expected));
}

}  // namespace lockstep::lessons
