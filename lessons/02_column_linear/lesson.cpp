#include "lessons/02_column_linear/lesson.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/runner/rounding.hpp"
#include "src/comm/rank.hpp"
#include "src/core/require.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/report/describe.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kDefaultRanks = 3;
constexpr int kMostRanks = 64;
constexpr std::int64_t kHidden = 192;

void require_shared_out(const char* setting, std::int64_t count, int ranks) {
    require(
        count % ranks == 0,
        "--set {}={}: {} columns cannot be shared out to {} ranks; each must get as many",
        setting, count, count, ranks);
}

}  // namespace

ColumnLinear::ColumnLinear(const LessonOptions& options, Record& record)
    : Lesson(options, record), ranks_(options.ranks.value_or(kDefaultRanks)) {
    const std::int64_t hidden = least_multiple(ranks_, kHidden);
    sizes_.rows = options.values.integer("rows");
    sizes_.hidden = options.values.integer("hidden", hidden);
    sizes_.inner = options.values.integer("inner", 4 * sizes_.hidden);
    require_shared_out("hidden", sizes_.hidden, ranks_);
    require_shared_out("inner", sizes_.inner, ranks_);
    // The MLP's y is a sum over the inner columns of sums over x's, its
    // gradients are sums over rows of these.
    record.options.sum_length = sizes_.rows + sizes_.hidden + sizes_.inner;
}

std::vector<Step> ColumnLinear::steps() {
    return {step("A column each", &ColumnLinear::multiply_by_columns),
            step("Columns of what?", &ColumnLinear::find_the_layer),
            step("Columns: forward or backward?", &ColumnLinear::split_columns),
            step("Rows instead", &ColumnLinear::split_rows),
            step("Columns, then rows", &ColumnLinear::pair),
            step("What it costs", &ColumnLinear::count_bytes)};
}

void ColumnLinear::check_equal(Page& page, const std::string& name, std::int64_t figure) {
    check_values(page, Check::equal(name, static_cast<double>(figure), 0));
}

void ColumnLinear::check_bound(Page& page, const std::string& name, double difference) {
    // Two layers and an activation between them, forward and backward, and a sum over the
    // devices on either way.
    const RoundingBound bound{1e-5, 1e-13};
    check_values(page, name, difference, bound.of(options().dtype, 6 + 2 * ranks_));
}

RunReport ColumnLinear::pass_alone(const Task& task, bool trace) const {
    return pass(*make_cluster(options(), 1, trace), task);
}

RunReport ColumnLinear::pass_together(const Task& task, bool trace) const {
    return pass(*make_cluster(options(), ranks_, trace), task);
}

RunReport ColumnLinear::pass_wrongly(const Task& task) const {
    return pass(*make_cluster(options().without_full_check(), ranks_), task);
}

std::int64_t ColumnLinear::sent(std::int64_t factor, std::int64_t bytes) const {
    const std::int64_t t = ranks_;
    return factor * (t - 1) * (bytes / t);
}

void ColumnLinear::show_rest(Page& page) const {
    if (ranks_ > kShownRanks)
        page.verbatim(fmt::format("   and so on, up to device {}", ranks_ - 1));
}

void ColumnLinear::check_all_reduce(Page& page, const RunReport& report,
                                    const std::string& half, const std::string& tensor) {
    const std::int64_t size = kept(report, 0, tensor).bytes();
    const std::int64_t bytes = sent(2, size);
    page.predict(fmt::format("{} has {} bytes. How many bytes does a device send {}?",
                             tensor, size, half),
                 static_cast<double>(bytes), "bytes",
                 fmt::format("2(t-1)/t * S = 2 * {}/{} * {}", ranks_ - 1, ranks_, size));
    page.check(Check::equal("bytes that device 0 sent " + half,
                            static_cast<double>(bytes_of_half(report, 0, half)),
                            static_cast<double>(bytes)));
}

LessonEntry column_linear_lesson() {
    LessonEntry entry;
    entry.slug = "column-linear";
    entry.title = "A linear layer by columns and by rows";
    entry.question =
        "How do several devices compute one linear layer, and what must they tell each "
        "other?";
    entry.default_ranks = kDefaultRanks;
    entry.most_ranks = kMostRanks;
    entry.settings = {
        {"rows", "of the MLP's input", Whole{1, 1 << 12, 256}},
        {"hidden", "columns of the MLP's input and output", Whole{1, 1 << 12},
         "192, or the next number that the ranks divide", false},
        {"inner", "columns between the MLP's two layers", Whole{1, 1 << 14},
         "4 times hidden", false},
    };
    entry.make = make_lesson<ColumnLinear>;
    return entry;
}

namespace {

struct Example {
    HostTensor x;  ///< (2, 4)
    HostTensor w;  ///< (4, 3): in, out
};

Example example(DType dtype) {
    return {matrix(4, {1, 2, 0, 1, 3, 0, 1, 2}, dtype),
            matrix(3, {1, 0, 2, 2, 1, 0, 0, 3, 1, 1, 1, 1}, dtype)};
}

/// A layer with as many inputs as outputs, so that no shape tells its
/// weight from the transposed one.
struct Square {
    HostTensor x;       ///< (2, 3)
    HostTensor weight;  ///< (3, 3): out, in
};

Square square(DType dtype) {
    return {matrix(3, {1, 2, 3, 0, 1, 2}, dtype),
            matrix(3, {1, 2, 0, 0, 1, 1, 3, 0, 1}, dtype)};
}

// lesson: a-column-each
// Y_r (2, 1) = X (2, 4) W_r (4, 1), and all Y_r side by side
void multiply_by_own_columns(Rank& rank, const HostTensor& x, const HostTensor& w) {
    Device& device = rank.device();
    TensorParallel tp(device, rank.world());
    const Tensor own_w = own_columns(tp, device.upload(w));
    const Tensor own_y = device.matmul(device.upload(x), own_w);
    rank.keep("own w", own_w);
    rank.keep("own y", own_y);
    rank.keep("y", gather_columns(tp, own_y));
}
// lesson: end

std::string shards_text(const RunReport& report) {
    std::vector<std::pair<std::string, HostTensor>> shown;
    for (int rank = 0; rank < static_cast<int>(report.ranks.size()); ++rank) {
        shown.emplace_back(fmt::format("W_{}", rank), kept(report, rank, "own w"));
        shown.emplace_back(fmt::format("Y_{}", rank), kept(report, rank, "own y"));
    }
    shown.emplace_back("Y", kept(report, 0, "y"));
    return matrices_text(shown);
}

/// Makes y = x W^T, + b, on one device.
decltype(Task::make) linear_on_one_device(std::int64_t in, std::int64_t out, bool bias) {
    return [=](const ParameterInit& init, TensorParallel&) {
        return std::make_unique<Linear>(init.child("linear"), in, out, bias);
    };
}

Task column_parallel_task(const HostTensor& x, const HostTensor& weight) {
    Task task;
    const std::int64_t out = weight.shape()[0];
    const std::int64_t in = weight.shape()[1];
    task.make = [=](const ParameterInit& init, TensorParallel& tp) {
        return std::make_unique<ColumnParallelLinear>(
            init.child("linear"), tp, in, out,
            ColumnParallelOptions{.bias = false, .gather_output = true});
    };
    task.x = x;
    task.dy = HostTensor({x.shape()[0], out}, x.dtype());
    task.weights = {{"linear.weight", weight}};
    return task;
}

}  // namespace

/// With --backend nccl there may be fewer processes than the example needs.
bool ColumnLinear::lacks_example_ranks() const {
    return options().process != nullptr && ranks_ < kExampleRanks;
}

std::unique_ptr<Cluster> ColumnLinear::example_cluster() const {
    LessonOptions options = this->options();
    if (lacks_example_ranks()) {
        options.backend = "sim";
        options.process = nullptr;
    }
    return make_cluster(options, kExampleRanks);
}

void ColumnLinear::multiply_by_columns(Page& page) {
    const Example numbers = example(options().dtype);
    const HostTensor &x = numbers.x, &w = numbers.w;
    page.text(
        "How can three devices share one product Y = X W? A column of Y needs all of X, "
        "but a single column of W. So each device takes a column of W, multiplies X by "
        "it, and has a column of Y. Put side by side these are Y: nothing is added up.");
    page.verbatim(matrices_text({{"X", x}, {"W", w}}));
    page.predict(
        "Device 2 takes the last column of W. What is the second number of its column of "
        "Y?",
        9, "", "3*2 + 0*0 + 1*1 + 2*1");
    page.quote("a-column-each");
    if (lacks_example_ranks())
        page.text(fmt::format(
            "(This run has {} of its own, so the example's three are virtual ones.)",
            ranks_ == 1 ? "one device" : "two devices"));

    const RunReport together =
        example_cluster()->run([&](Rank& rank) { multiply_by_own_columns(rank, x, w); });
    const RunReport alone = make_cluster(options(), 1)->run([&](Rank& rank) {
        Device& device = rank.device();
        rank.keep("y", device.matmul(device.upload(x), device.upload(w)));
    });
    const HostTensor& y = kept(alone, 0, "y");
    record().inputs.insert_or_assign("example/x", x);
    record().inputs.insert_or_assign("example/w", w);
    record().outputs.insert_or_assign("example/y", kept(together, 0, "y"));

    if (has_numbers()) {
        page.verbatim(shards_text(together));
        page.check(Check::equal("second number of device 2's column",
                                kept(together, 2, "own y").at(1), 9));
    }
    check_equal(page, "numbers on any device that differ from one device's Y",
                differing_on_any(together, y, "y"));
}

namespace {

/// Returns the complaint of nn.Linear(3, 4) about an input of four columns.
std::string refusal(Cluster& cluster, const HostTensor& x) {
    std::string sentence;
    cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        Linear layer({device, x.dtype(), 0, "linear"}, 3, 4, false);
        const Tensor input = device.upload(x);
        Saved saved;
        try {
            layer.forward(input, saved);
        } catch (const UsageError& error) {
            sentence = error.what();
        }
    });
    return sentence;
}

}  // namespace

void ColumnLinear::find_the_layer(Page& page) {
    const Example numbers = example(options().dtype);
    page.text(
        "Which columns are they in PyTorch? nn.Linear(in, out) stores its weight as "
        "(out, in) and computes y = x weight^T + bias. A widespread example makes "
        "nn.Linear(3, 4), whose weight is (4, 3), cuts that into weight[:, 0:1], "
        "weight[:, 1:2] and weight[:, 2:3], and multiplies an x of four columns by each. "
        "The shapes fit, as they did in step 1. The layer does not. Given that x, "
        "nn.Linear(3, 4) says:");
    page.verbatim("  " + refusal(*make_cluster(options(), 1), numbers.x));
    page.text(
        "It takes three columns and gives four; the example takes four and gives three. "
        "It computes x weight, which is another layer: the one with the transposed "
        "weight. Where in and out are equal, no shape says so. Take nn.Linear(3, 3):");
    show_square_layer(page);
    page.text(
        "So: in Y = X W, with W (in, out), the devices share out columns of W. PyTorch's "
        "weight is W^T, (out, in): there they are its rows. Device r holds rows r and "
        "multiplies by their transpose.");
    page.quote("column-parallel");
    const RunReport meant =
        pass(*example_cluster(), column_parallel_task(numbers.x, transposed(numbers.w)));
    const HostTensor product = matrix(3, {6, 3, 3, 5, 5, 9}, options().dtype);
    check_equal(page,
                "step 1 as nn.Linear(4, 3) by rows of weight: numbers on any device that "
                "differ from X W",
                differing_on_any(meant, product, "y"));
}

void ColumnLinear::show_square_layer(Page& page) {
    const Square numbers = square(options().dtype);
    page.verbatim(matrices_text({{"x", numbers.x}, {"weight", numbers.weight}}));
    page.predict(
        "nn.Linear(3, 3) gives 1*1 + 2*2 + 3*0 = 5 as its first number. What does x "
        "weight[:, 0:1] give?",
        10, "", "1*1 + 2*0 + 3*3");

    const RunReport by_columns = example_cluster()->run(
        [&](Rank& rank) { multiply_by_own_columns(rank, numbers.x, numbers.weight); });
    Task task = column_parallel_task(numbers.x, numbers.weight);
    const RunReport by_rows = pass(*example_cluster(), task);
    task.make = linear_on_one_device(3, 3, false);
    const RunReport alone = pass_alone(task);
    const HostTensor& y = kept(alone, 0, "y");
    if (has_numbers()) {
        const HostTensor& wrong = kept(by_columns, 0, "y");
        page.verbatim(matrices_text({{"columns of weight", wrong},
                                     {"rows of weight", kept(by_rows, 0, "y")},
                                     {"nn.Linear(3, 3)", y}}));
        page.text(fmt::format(
            "With columns of weight {} of {} numbers are wrong, and nothing complains.",
            differing(wrong, y), y.elements()));
    }
    check_equal(
        page, "rows of weight: numbers on any device that differ from nn.Linear(3, 3)'s",
        differing_on_any(by_rows, y, "y"));
}

namespace {

// lesson: without-f-or-g
/// Regions on whose edges nobody tells anybody anything: a mistake, to see
/// what each rank has by itself.
class Silent final : public TensorParallel {
  public:
    using TensorParallel::TensorParallel;
    Arriving enter_backward(const Tensor& dx) override { return {dx, dx, {}}; }
    Tensor leave(const Tensor& partial) override { return partial; }
};
// lesson: end

Task silent(Task task) {
    task.regions = [](Rank& rank) {
        return std::make_unique<Silent>(rank.device(), rank.world());
    };
    return task;
}

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
            init.child("linear"), tp, in, out, ColumnParallelOptions{.bias = false});
    };
    task.x = drawn({kRows, in}, "columns/x");
    task.dy = drawn({kRows, out}, "columns/dy");
    task.own_columns_of_dy = true;
    task.weights = {{"linear.weight", drawn({out, in}, "columns/weight")}};
    return task;
}

std::int64_t bytes_of_all(const RunReport& report, const std::string& half) {
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
        "When must devices that keep their own columns of y tell each other anything: "
        "forward or backward? Here is a layer from {} to {} columns, two on each device, "
        "of whole numbers that a pencil can follow.",
        in, 2 * in));
    page.predict("How many bytes does a device send forward?", 0, "bytes",
                 "a column of y takes all of x, which every device has");
    page.check(Check::equal("bytes that all devices sent forward",
                            static_cast<double>(bytes_of_all(without, "forward")), 0));
    check_equal(page, "numbers of y, side by side, that differ from one device's",
                differing_side_by_side(without, alone, "y"));
    show_partial_gradients(page, task, without, alone);

    page.text(
        "So what leads into the layer, Megatron-LM's f, does nothing forward and an "
        "all-reduce backward. The weight's gradient, dW_r = dy_r^T x, needs no message. "
        "It is made while the all-reduce is under way.");
    page.quote("f-and-g");
    const RunReport together = pass_together(task);
    check_equal(page, "with f, numbers of dx on any device that differ from one device's",
                differing_on_any(together, kept(alone, 0, "dx"), "dx"));
    check_equal(page, "numbers of the weight's gradient that differ from one device's",
                differing_gradients(together, alone));
    check_all_reduce(page, together, "backward", "dx");
}

void ColumnLinear::show_partial_gradients(Page& page, const Task& task,
                                          const RunReport& without,
                                          const RunReport& alone) {
    page.text(
        "Backward, each number of x went into all columns of y. So its gradient is a sum "
        "over all columns, dx = dy weight, and a device has the terms of its own: dx_r = "
        "dy_r W_r, where W_r are its rows of weight. This is what each has if none tells "
        "the others:");
    page.quote("without-f-or-g");
    if (!has_numbers()) return;
    for (int rank = 0; rank < std::min(ranks_, kShownRanks); ++rank)
        page.verbatim(matrices_text(
            {{fmt::format("dy_{}", rank), columns_of_rank(task.dy, rank, ranks_)},
             {fmt::format("W_{}", rank), kept(without, rank, "initial/linear.weight")},
             {fmt::format("dx_{}", rank), kept(without, rank, "dx")}}));
    show_rest(page);
    const HostTensor& dx = kept(alone, 0, "dx");
    const HostTensor sum = sum_of(kept_by_all(without, "dx"));
    page.verbatim(matrices_text({{"sum of all dx_r", sum}, {"one device's dx", dx}}));
    check_equal(page, "numbers of that sum that differ from one device's dx",
                differing(sum, dx));
    if (ranks_ > 1)
        page.text(
            fmt::format("Device 0's own dx is wrong in {} of {} numbers. Nothing hangs, "
                        "and the layers before this one learn from it.",
                        differing(kept(without, 0, "dx"), dx), dx.elements()));
}

Task rows_task(const LessonOptions& options, int ranks) {
    const auto drawn = [&](Shape shape, const char* name) {
        return whole_numbers(shape, options.dtype, options.seed, name);
    };
    constexpr std::int64_t kRows = 2;
    const std::int64_t out = ranks;
    const std::int64_t in = 2 * out;
    Task task;
    task.make = [=](const ParameterInit& init, TensorParallel& tp) {
        return std::make_unique<RowParallelLinear>(init.child("linear"), tp, in, out);
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
        "What if the columns of x are shared out already, as those of y are now? Then a "
        "device takes the rows of W that its columns of x meet. They are columns of "
        "weight. In a layer from {} to {}, with two columns of x on each device, it has "
        "some terms of every number of y:",
        2 * out, out));
    show_partial_outputs(page, task, alone);

    page.text(
        "What leads out of the layer, g, is f turned round: an all-reduce forward, and "
        "nothing backward, since every device has dy and needs only its own columns of "
        "dx.");
    page.quote("row-parallel");
    const RunReport together = pass_together(task);
    check_equal(page, "with g, numbers of y on any device that differ from one device's",
                differing_on_any(together, kept(alone, 0, "y"), "y"));
    check_equal(page, "numbers of dx, side by side, that differ from one device's",
                differing_side_by_side(together, alone, "dx"));
    check_equal(page,
                "numbers of the parameters' gradients that differ from one device's",
                differing_gradients(together, alone));
    check_all_reduce(page, together, "forward", "y");
    page.check(Check::equal("bytes that device 0 sent backward",
                            static_cast<double>(bytes_of_half(together, 0, "backward")),
                            0));

    record_rows(task, together);
}

void ColumnLinear::record_rows(const Task& task, const RunReport& together) {
    record().inputs.insert_or_assign("rows/x", task.x);
    record().inputs.insert_or_assign("rows/dy", task.dy);
    record().models["rows"] = describe_linear(task.x.shape()[1], task.dy.shape()[1]);
    record().models["rows"]["backward_from"] = "dy";
    for (const auto& [name, weight] : task.weights)
        record().inputs.insert_or_assign("rows/initial/" + name, weight);
    record().outputs.insert_or_assign("rows/y", kept(together, 0, "y"));
    record().outputs.insert_or_assign("rows/dx",
                                      side_by_side(kept_by_all(together, "dx")));
    for (auto& [name, gradient] : whole_gradients(together))
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
    record().outputs.insert_or_assign("rows/partial",
                                      side_by_side(kept_by_all(without, "y")));
    if (!has_numbers()) return;
    for (int rank = 0; rank < std::min(ranks_, kShownRanks); ++rank)
        page.verbatim(matrices_text(
            {{fmt::format("x_{}", rank), columns_of_rank(task.x, rank, ranks_)},
             {fmt::format("W_{}", rank), kept(without, rank, "initial/linear.weight")},
             {fmt::format("x_{0} W_{0}^T", rank), kept(without, rank, "y")}}));
    show_rest(page);
    page.verbatim(
        matrices_text({{"their sum", terms}, {"bias", bias}, {"one device's y", y}}));

    // Every device that adds the bias to its terms adds it to the sum.
    HostTensor expected = y;
    for (std::int64_t i = 0; i < y.elements(); ++i)
        expected.set(i, y.at(i) + (ranks_ - 1) * bias.at(i % bias.elements()));
    page.text(
        "The bias goes onto the sum, once. Where each device adds it to its terms, the "
        "sum has it once a device:");
    page.predict(
        fmt::format("The first number of y is {}, that of the bias {}. What does y begin "
                    "with if all {} add the bias?",
                    number(y.at(0)), number(bias.at(0)), ranks_),
        expected.at(0), "",
        fmt::format("{} + {} * {}", number(y.at(0)), ranks_ - 1, number(bias.at(0))));
    check_equal(page, "numbers of such a sum that differ from y + (t-1) bias",
                differing(sum_of(kept_by_all(biased, "y")), expected));
}

}  // namespace lockstep::lessons
