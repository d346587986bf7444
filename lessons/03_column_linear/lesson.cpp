#include "lessons/runner/lesson.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lessons/runner/rounding.hpp"
#include "src/comm/expect.hpp"
#include "src/core/host_tensor.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/part.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/tensor_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/report/describe.hpp"
#include "src/report/safetensors.hpp"
#include "src/text/wrap.hpp"
#include "src/trial/outcome.hpp"
#include "src/trial/training.hpp"
#include "src/trial/values.hpp"

namespace lockstep::lessons {

namespace {

/// A model that is sharded over ranks, its input x, and the gradient dy of its output.
struct Task {
    std::function<std::unique_ptr<Module>(const ParameterInit&, TensorParallel&)> make;
    HostTensor x;
    HostTensor dy;
    bool own_columns_of_x = false;  ///< if false, each rank has all of x
    bool own_columns_of_dy = false;
    /// Whole parameters by name. Other parameters are drawn at random.
    NamedTensors weights;
    std::uint64_t seed = 0;
    bool keeps = true;  ///< whether pass() keeps tensors; it always keeps counts of bytes
    /// Makes the operators f and g at the borders of tensor-parallel regions.
    std::function<std::unique_ptr<TensorParallel>(Rank&)> regions = [](Rank& rank) {
        return std::make_unique<TensorParallel>(rank.device(), rank.world());
    };
};

/// Returns the matrix that has these numbers, row by row.
HostTensor matrix(std::int64_t columns, const std::vector<double>& values, DType dtype) {
    const auto count = static_cast<std::int64_t>(values.size());
    return HostTensor::of(Shape{count / columns, columns}, values).as(dtype);
}

/// Returns whole numbers from -2 to 2, small enough that every sum of their products is
/// exact. The same seed and name give the same numbers.
HostTensor whole_numbers(Shape shape, DType dtype, std::uint64_t seed,
                         const std::string& name) {
    constexpr double kLargest = 2;
    HostTensor tensor(shape, dtype);
    const RandomStream stream(seed, name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const double drawn = stream.uniform(static_cast<std::uint64_t>(i));
        tensor.set(i, std::floor(drawn * (2 * kLargest + 1)) - kLargest);
    }
    return tensor;
}

HostTensor transposed(const HostTensor& matrix) {
    const std::int64_t rows = matrix.shape().matrix_rows();
    const std::int64_t columns = matrix.shape().columns();
    HostTensor turned({columns, rows}, matrix.dtype());
    for (std::int64_t i = 0; i < matrix.elements(); ++i)
        turned.set(i % columns * rows + i / columns, matrix.at(i));
    return turned;
}

/// Returns the columns of rank `rank`, one of `ranks` equal parts.
HostTensor columns_of_rank(const HostTensor& matrix, int rank, int ranks) {
    const std::int64_t count = matrix.shape().columns() / ranks;
    return shard_of(matrix, column_part(matrix.shape(), rank * count, count));
}

/// Puts matrices with equal numbers of rows side by side.
HostTensor side_by_side(const std::vector<HostTensor>& matrices) {
    std::int64_t all = 0;
    for (const HostTensor& matrix : matrices)
        all += matrix.shape().columns();
    HostTensor whole(matrices.front().shape().with_last(all), matrices.front().dtype());
    std::int64_t from = 0;
    for (const HostTensor& matrix : matrices) {
        const std::int64_t count = matrix.shape().columns();
        put_shard(whole, matrix, column_part(whole.shape(), from, count));
        from += count;
    }
    return whole;
}

/// Returns the sum of matrices of one shape.
HostTensor sum_of(const std::vector<HostTensor>& matrices) {
    HostTensor sum(matrices.front().shape(), matrices.front().dtype());
    for (const HostTensor& matrix : matrices)
        for (std::int64_t i = 0; i < sum.elements(); ++i)
            sum.set(i, sum.at(i) + matrix.at(i));
    return sum;
}

/// Counts the numbers that differ between two tensors of one shape. NaN always differs.
std::int64_t differing(const HostTensor& a, const HostTensor& b) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < a.elements(); ++i)
        if (!(a.at(i) == b.at(i))) ++count;
    return count;
}

/// Writes a number as "-2" or "1.95", with at most two digits after the point.
std::string number(double value) {
    const double rounded = std::round(value * 100) / 100;
    return fmt::format("{:.6g}", rounded == 0 ? 0 : rounded);
}

constexpr std::int64_t kMostRows = 8;

constexpr std::int64_t kMostColumns = 5;

constexpr std::int64_t kColumnsOfWide = 4;

/// Returns lines of equal width: the name, the shape, and one line for each row.
std::vector<std::string> block(const std::string& name, const HostTensor& matrix) {
    const std::int64_t columns = matrix.shape().columns();
    const std::int64_t shown = columns > kMostColumns ? kColumnsOfWide : columns;
    std::vector<std::string> lines{name, matrix.shape().text()};
    for (std::int64_t row = 0; row < matrix.shape().matrix_rows(); ++row) {
        std::string line;
        for (std::int64_t column = 0; column < shown; ++column)
            line += fmt::format("{:>4}", number(matrix.at(row * columns + column)));
        if (shown < columns) line += " ...";
        lines.push_back(line);
        if (row + 1 < kMostRows) continue;
        if (row + 1 < matrix.shape().matrix_rows()) lines.emplace_back("  ...");
        break;
    }
    int width = 0;
    for (const std::string& line : lines)
        width = std::max(width, columns_of(line));
    for (std::string& line : lines)
        line = pad_right(line, width);
    return lines;
}

/// Writes matrices side by side, each under its name and shape. Shows only the first
/// columns and rows of a wide or long matrix.
std::string matrices_text(
    const std::vector<std::pair<std::string, HostTensor>>& matrices) {
    constexpr const char* kGap = "   ";
    std::vector<std::vector<std::string>> blocks;
    std::size_t height = 0;
    for (const auto& [name, matrix] : matrices) {
        blocks.push_back(block(name, matrix));
        height = std::max(height, blocks.back().size());
    }
    std::string text;
    for (std::size_t row = 0; row < height; ++row) {
        std::string line;
        for (const std::vector<std::string>& lines : blocks)
            line += kGap + (row < lines.size() ? lines[row]
                                               : pad_right("", columns_of(lines[0])));
        line.erase(line.find_last_not_of(' ') + 1);
        text += (text.empty() ? "" : "\n") + line;
    }
    return text;
}

HostTensor held_by(const Rank& rank, const HostTensor& whole, bool own_columns) {
    return own_columns ? columns_of_rank(whole, rank.index(), rank.size()) : whole;
}

/// Runs one forward and one backward pass on every rank. Each rank keeps "y", "dx", its
/// shards "initial/NAME" and "grad/NAME", and, in the series "forward" and "backward",
/// the bytes that it sent.
RunReport pass(Cluster& cluster, const Task& task) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = task.regions(rank);
        const auto model = task.make({device, task.x.dtype(), task.seed, ""}, *tp);
        load_parameters(model->parameters(), task.weights);
        const auto keep = [&](const std::string& name, const Tensor& tensor) {
            if (task.keeps) rank.keep(name, tensor);
        };
        const auto keep_all = [&](const std::string& prefix, Tensor Parameter::*tensor) {
            for (const Parameter* parameter : model->parameters())
                if (task.keeps)
                    rank.keep(prefix + parameter->name(), parameter->*tensor,
                              parameter->part());
        };
        keep_all("initial/", &Parameter::value);
        const Tensor x = device.upload(held_by(rank, task.x, task.own_columns_of_x));
        const Tensor dy = device.upload(held_by(rank, task.dy, task.own_columns_of_dy));

        Saved saved;
        {
            const PhaseScope phase(device, Phase::forward);
            const ByteCount sent(rank.world());
            keep("y", model->forward(x, saved));
            rank.keep_value("forward", static_cast<double>(sent.bytes()));
        }
        {
            const PhaseScope phase(device, Phase::backward);
            const ByteCount sent(rank.world());
            keep("dx", model->backward(dy, saved));
            rank.keep_value("backward", static_cast<double>(sent.bytes()));
        }
        keep_all("grad/", &Parameter::gradient);
    });
}

/// Returns the tensor that rank `rank` kept.
const HostTensor& kept(const RunReport& report, int rank, const std::string& name) {
    return report.ranks[rank].kept.at(name);
}

/// Returns the tensors that all ranks kept under the name.
std::vector<HostTensor> kept_by_all(const RunReport& report, const std::string& name) {
    std::vector<HostTensor> tensors;
    for (const RankReport& rank : report.ranks)
        tensors.push_back(rank.kept.at(name));
    return tensors;
}

/// Returns the bytes that a rank sent in one half of a pass, "forward" or "backward".
std::int64_t bytes_of_half(const RunReport& report, int rank, const std::string& half) {
    return static_cast<std::int64_t>(report.ranks[rank].series.at(half).at(0));
}

/// Returns the whole gradients of the parameters, put together as "grad/NAME".
NamedTensors whole_gradients(const RunReport& report) {
    NamedTensors whole;
    for (auto& [name, tensor] : kept_under(report, "grad/"))
        whole.emplace("grad/" + name, std::move(tensor));
    return whole;
}

/// Counts numbers that differ from one device's numbers. Each rank has its columns.
std::int64_t differing_side_by_side(const RunReport& together, const RunReport& alone,
                                    const std::string& name) {
    return differing(side_by_side(kept_by_all(together, name)), kept(alone, 0, name));
}

/// Counts, over all ranks, the numbers of whole tensors that differ from `expected`.
std::int64_t differing_on_any(const RunReport& together, const HostTensor& expected,
                              const std::string& name) {
    std::int64_t count = 0;
    for (const HostTensor& whole : kept_by_all(together, name))
        count += differing(whole, expected);
    return count;
}

/// Counts the numbers that differ in the whole gradients.
std::int64_t differing_gradients(const RunReport& together, const RunReport& alone) {
    std::int64_t count = 0;
    for (const auto& [name, whole] : whole_gradients(together))
        count += differing(whole, kept(alone, 0, name));
    return count;
}

struct MlpSizes {
    std::int64_t rows = 0;    ///< rows of the MLP's input
    std::int64_t hidden = 0;  ///< columns of the MLP's input and output
    std::int64_t inner = 0;   ///< columns between the two layers
};

constexpr int kExampleRanks = 3;
constexpr int kShownRanks = 4;

constexpr int kDefaultRanks = 3;
constexpr std::int64_t kHidden = 192;

void require_shared_out(const char* setting, std::int64_t count, int ranks) {
    require(count % ranks == 0,
            "--set {}={}: {} columns cannot be sharded over {} ranks; the ranks must "
            "divide them",
            setting, count, count, ranks);
}

/// The state that the lesson's experiments share.
struct ColumnLinear final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    ColumnLinear(const LessonOptions& options, Record& record)
        : Lesson(options, record), ranks(options.ranks.value_or(kDefaultRanks)) {
        const std::int64_t hidden = least_multiple(ranks, kHidden);
        sizes.rows = options.values.integer("rows");
        sizes.hidden = options.values.integer("hidden", hidden);
        sizes.inner = options.values.integer("inner", 4 * sizes.hidden);
        require_shared_out("hidden", sizes.hidden, ranks);
        require_shared_out("inner", sizes.inner, ranks);
        // A number of the MLP's y is a sum over the inner columns, whose terms are sums
        // over the columns of x. A number of a gradient sums such terms over the rows.
        record.options.sum_length = sizes.rows + sizes.hidden + sizes.inner;
    }

    /// The number of devices whose numbers are shown.
    int shown_ranks() const { return std::min(ranks, kShownRanks); }

    int ranks;
    MlpSizes sizes;
    RunReport mlp_alone;
    RunReport mlp_together;
};

double bound(const ColumnLinear& lesson) {
    // Counts how often two layers and the activation between them store a number, forward
    // and backward, and how often a sum over the devices does, in each direction.
    return RoundingBound{1e-5, 1e-13}.value(lesson.dtype(), 6 + 2 * lesson.ranks);
}

/// Run the task: on one device; on all ranks; or on all ranks without the full check, for
/// a deliberate mistake.
RunReport pass_alone(const ColumnLinear& lesson, const Task& task, bool trace = false) {
    return pass(*lesson.devices(1, trace), task);
}

RunReport pass_together(const ColumnLinear& lesson, const Task& task,
                        bool trace = false) {
    return pass(*lesson.devices(lesson.ranks, trace), task);
}

RunReport pass_wrongly(const ColumnLinear& lesson, const Task& task) {
    return pass(*make_cluster(lesson.options().without_full_check(), lesson.ranks), task);
}

/// Returns bytes · factor (t-1)/t. The number of elements is a multiple of t.
std::int64_t sent(const ColumnLinear& lesson, std::int64_t factor, std::int64_t bytes) {
    const std::int64_t t = lesson.ranks;
    return factor * (t - 1) * (bytes / t);
}

/// Gives the bytes of the all-reduce of `tensor` in one half of a pass, under names that
/// begin with `name`.
void give_all_reduce(ColumnLinear& lesson, Findings& found, const std::string& name,
                     const RunReport& report, const std::string& half,
                     const std::string& tensor) {
    const HostTensor& reduced = kept(report, 0, tensor);
    const std::int64_t size = reduced.bytes();
    const std::int64_t bytes = sent(lesson, 2, size);
    found.give(name + "_size", Figure::bytes(size));
    found.give(name + "_bytes", Figure::bytes(bytes));
    found.give(name + "_bytes_without_t", Figure::bytes(2 * size));
    found.give(name + "_numbers", Figure::bytes(sent(lesson, 2, reduced.elements())));
    found.equal(name + "_sent_" + half, Figure::bytes(bytes_of_half(report, 0, half)),
                bytes);
}

struct Example {
    HostTensor x;  ///< (2, 4)
    HostTensor a;  ///< (4, 3): in, out
    HostTensor y;  ///< (2, 3): x a
};

Example example(DType dtype) {
    return {matrix(4, {1, 2, 0, 1, 3, 0, 1, 2}, dtype),
            matrix(3, {1, 0, 2, 2, 1, 0, 0, 3, 1, 1, 1, 1}, dtype),
            matrix(3, {6, 3, 3, 5, 5, 9}, dtype)};
}

/// A layer with the same number of inputs and outputs, so that the shape does not show
/// whether its weight is transposed.
struct Square {
    HostTensor x;       ///< (2, 3)
    HostTensor weight;  ///< (3, 3): out, in
};

Square square(DType dtype) {
    return {matrix(3, {1, 2, 3, 0, 1, 2}, dtype),
            matrix(3, {1, 2, 0, 0, 1, 1, 3, 0, 1}, dtype)};
}

// lesson: a-column-each
// Y_r (2, 1) = X (2, 4) A_r (4, 1), and all Y_r side by side
void multiply_by_own_columns(Rank& rank, const HostTensor& x, const HostTensor& a) {
    Device& device = rank.device();
    TensorParallel tp(device, rank.world());
    const Tensor own_a = own_columns(tp, device.upload(a));
    const Tensor own_y = device.matmul(device.upload(x), own_a);
    rank.keep("own a", own_a);
    rank.keep("own y", own_y);
    rank.keep("y", gather_columns(tp, own_y));
}
// lesson: end

/// Writes the parts of all ranks and the gathered result, side by side.
std::string shards_text(const RunReport& report) {
    std::vector<std::pair<std::string, HostTensor>> shown;
    for (int rank = 0; rank < static_cast<int>(report.ranks.size()); ++rank) {
        shown.emplace_back(fmt::format("A_{}", rank), kept(report, rank, "own a"));
        shown.emplace_back(fmt::format("Y_{}", rank), kept(report, rank, "own y"));
    }
    shown.emplace_back("Y", kept(report, 0, "y"));
    return matrices_text(shown);
}

/// Makes the layer y = x W^T, or y = x W^T + b, on one device.
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

/// Returns whether --backend nccl has fewer processes than the example needs.
bool lacks_example_ranks(const ColumnLinear& lesson) {
    return lesson.options().process != nullptr && lesson.ranks < kExampleRanks;
}

/// Makes the example's three devices, whatever the number of ranks.
std::unique_ptr<Cluster> example_cluster(const ColumnLinear& lesson) {
    LessonOptions options = lesson.options();
    if (lacks_example_ranks(lesson)) {
        options.backend = "sim";
        options.process = nullptr;
    }
    return make_cluster(options, kExampleRanks);
}

void multiply_by_columns(ColumnLinear& lesson, Findings& found) {
    found.give({"numbers"_is = lesson.has_numbers(), "several"_is = lesson.ranks > 1,
                "more_devices"_is = lesson.ranks > kShownRanks,
                "last_device"_is = lesson.ranks - 1,
                "lacks_devices"_is = lacks_example_ranks(lesson), "t"_is = lesson.ranks,
                "t_less_1"_is = lesson.ranks - 1});

    const auto [x, a, y] = example(lesson.dtype());
    found.give({"example"_is = matrices_text({{"X", x}, {"A", a}}),
                "example_number"_is = Figure::count(y.at(5)),
                "example_first"_is = Figure::count(y.at(2)),
                "example_other_column"_is = Figure::count(y.at(4))});

    const RunReport together = example_cluster(lesson)->run(
        [&x = x, &a = a](Rank& rank) { multiply_by_own_columns(rank, x, a); });
    const RunReport alone = lesson.devices(1)->run([&x = x, &a = a](Rank& rank) {
        Device& device = rank.device();
        rank.keep("y", device.matmul(device.upload(x), device.upload(a)));
    });
    lesson.record_input("example/x", x);
    lesson.record_input("example/w", a);
    lesson.record_output("example/y", kept(together, 0, "y"));
    if (lesson.has_numbers()) {
        found.give("example_shards", shards_text(together));
        found.equal("example_computed", kept(together, 2, "own y").at(1), y.at(5));
    }
    lesson.values_equal(found, "example_same",
                        differing_on_any(together, kept(alone, 0, "y"), "y"), 0);
}

/// Returns the error of nn.Linear(3, 4) for an input of four columns.
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

void cut_square_layer(ColumnLinear& lesson, Findings& found) {
    const Square numbers = square(lesson.dtype());
    const RunReport by_columns = example_cluster(lesson)->run(
        [&](Rank& rank) { multiply_by_own_columns(rank, numbers.x, numbers.weight); });
    Task task = column_parallel_task(numbers.x, numbers.weight);
    const RunReport by_rows = pass(*example_cluster(lesson), task);
    task.make = linear_on_one_device(3, 3, false);
    const RunReport alone = pass_alone(lesson, task);
    const HostTensor& y = kept(alone, 0, "y");
    const HostTensor& wrong = kept(by_columns, 0, "y");

    found.give({"square"_is = matrices_text({{"x", numbers.x}, {"W", numbers.weight}}),
                "square_right"_is = 5, "square_wrong"_is = 10});
    const std::int64_t unlike = differing_on_any(by_rows, y, "y");
    found.give("layout_part", unlike == 0 || !lesson.has_numbers() ? "rows" : "columns");
    if (lesson.has_numbers()) {
        found.give({"square_results"_is = matrices_text(
                        {{"x W", wrong}, {"x W^T", kept(by_rows, 0, "y")}, {"y", y}}),
                    "square_wrong_numbers"_is = differing(wrong, y),
                    "square_all"_is = y.elements()});
    }
    lesson.values_equal(found, "square_rows", unlike, 0);
}

void find_the_layer(ColumnLinear& lesson, Findings& found) {
    const Example numbers = example(lesson.dtype());
    found.give("refusal", refusal(*lesson.devices(1), numbers.x));
    cut_square_layer(lesson, found);
    const RunReport meant = pass(*example_cluster(lesson),
                                 column_parallel_task(numbers.x, transposed(numbers.a)));
    lesson.values_equal(found, "layout_example", differing_on_any(meant, numbers.y, "y"),
                        0);
}

/// Regions without communication at their borders. This deliberate mistake shows what
/// each rank computes on its own.
class Silent final : public TensorParallel {
  public:
    using TensorParallel::TensorParallel;
    Arriving enter_backward(const Tensor& dx) override { return {dx, dx, {}}; }
    Tensor leave(const Tensor& partial) override { return partial; }
};

Task silent(Task task) {
    task.regions = [](Rank& rank) {
        return std::make_unique<Silent>(rank.device(), rank.world());
    };
    return task;
}

/// Returns a column-parallel layer of whole numbers on t ranks: t inputs, 2t outputs.
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

/// Returns the halves of a pass in which devices send messages, as a choice's key.
const char* halves_with_messages(const RunReport& report) {
    const bool forward = bytes_of_all(report, "forward") > 0;
    const bool backward = bytes_of_all(report, "backward") > 0;
    if (forward && backward) return "both";
    return forward ? "forward" : backward ? "backward" : "neither";
}

using NamedMatrices = std::vector<std::pair<std::string, HostTensor>>;

/// Writes the matrices of the first ranks, one group for each rank.
std::string groups_text(int ranks,
                        const std::function<NamedMatrices(int rank)>& matrices_of) {
    std::string text;
    for (int rank = 0; rank < ranks; ++rank)
        text += (rank > 0 ? "\n\n" : "") + matrices_text(matrices_of(rank));
    return text;
}

void give_terms_of_dx(ColumnLinear& lesson, Findings& found, const Task& task,
                      const RunReport& silenced, const HostTensor& dx) {
    const auto of_rank = [&](int rank) -> NamedMatrices {
        return {
            {fmt::format("dy_{}", rank), columns_of_rank(task.dy, rank, lesson.ranks)},
            {fmt::format("W_{}", rank), kept(silenced, rank, "initial/linear.weight")},
            {fmt::format("dx_{}", rank), kept(silenced, rank, "dx")}};
    };
    const HostTensor sum = sum_of(kept_by_all(silenced, "dx"));
    found.give({"terms_of_dx"_is = groups_text(lesson.shown_ranks(), of_rank),
                "sum_of_dx"_is = matrices_text({{"Σ dx_r", sum}, {"dx", dx}}),
                "columns_wrong"_is = differing(kept(silenced, 0, "dx"), dx),
                "columns_all"_is = dx.elements()});
    lesson.values_equal(found, "columns_sum", differing(sum, dx), 0);
}

void split_columns(ColumnLinear& lesson, Findings& found) {
    const Task task = columns_task(lesson.options(), lesson.ranks);
    const std::int64_t in = task.x.shape().columns();
    Task whole = task;
    whole.make = linear_on_one_device(in, 2 * in, false);
    whole.own_columns_of_dy = false;
    const RunReport alone = pass_alone(lesson, whole);
    const RunReport silenced = pass_wrongly(lesson, silent(task));
    const RunReport together = pass_together(lesson, task);
    found.give({"columns_in"_is = in, "columns_out"_is = 2 * in,
                "columns_half"_is = halves_with_messages(together)});
    found.equal("columns_silent", bytes_of_all(silenced, "forward"), 0);
    lesson.values_equal(found, "columns_y", differing_side_by_side(silenced, alone, "y"),
                        0);
    if (lesson.has_numbers())
        give_terms_of_dx(lesson, found, task, silenced, kept(alone, 0, "dx"));

    lesson.values_equal(found, "columns_f",
                        differing_on_any(together, kept(alone, 0, "dx"), "dx"), 0);
    lesson.values_equal(found, "columns_gradient", differing_gradients(together, alone),
                        0);
    give_all_reduce(lesson, found, "columns", together, "backward", "dx");
}

/// Returns a row-parallel layer on t ranks, with 2t inputs and t outputs. Its whole
/// numbers are small enough to compute by hand.
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

void give_terms_of_y(ColumnLinear& lesson, Findings& found, const Task& task,
                     const HostTensor& y) {
    const RunReport biased = pass_wrongly(lesson, silent(task));
    Task unbiased = silent(task);
    unbiased.weights["linear.bias"] =
        HostTensor(task.weights.at("linear.bias").shape(), task.x.dtype());
    const RunReport unbiased_run = pass_wrongly(lesson, unbiased);
    const std::vector<HostTensor> terms = kept_by_all(unbiased_run, "y");
    lesson.record_output("rows/partial", side_by_side(terms));
    if (!lesson.has_numbers()) return;

    const HostTensor& bias = task.weights.at("linear.bias");
    const auto of_rank = [&](int rank) -> NamedMatrices {
        return {{fmt::format("x_{}", rank), columns_of_rank(task.x, rank, lesson.ranks)},
                {fmt::format("W_{}", rank),
                 kept(unbiased_run, rank, "initial/linear.weight")},
                {fmt::format("x_{0} W_{0}^T", rank), terms[rank]}};
    };
    found.give({"terms_of_y"_is = groups_text(lesson.shown_ranks(), of_rank),
                "sum_of_y"_is = matrices_text(
                    {{"Σ x_r W_r^T", sum_of(terms)}, {"b", bias}, {"y", y}})});

    // If every device adds the bias to its terms, the sum contains it t times.
    HostTensor expected = y;
    for (std::int64_t i = 0; i < y.elements(); ++i)
        expected.set(i, y.at(i) + (lesson.ranks - 1) * bias.at(i % bias.elements()));
    found.give({"y_first"_is = Figure::count(y.at(0)),
                "bias_first"_is = Figure::count(bias.at(0)),
                "bias_too_often"_is = Figure::count(expected.at(0)),
                "bias_once_more"_is = Figure::count(expected.at(0) + bias.at(0))});
    lesson.values_equal(found, "rows_bias",
                        differing(sum_of(kept_by_all(biased, "y")), expected), 0);
}

void record_rows(ColumnLinear& lesson, const Task& task, const RunReport& together) {
    lesson.record_input("rows/x", task.x);
    lesson.record_input("rows/dy", task.dy);
    lesson.record().models["rows"] =
        describe_linear(task.x.shape()[1], task.dy.shape()[1]);
    lesson.record().models["rows"]["backward_from"] = "dy";
    for (const auto& [name, weight] : task.weights)
        lesson.record_input("rows/initial/" + name, weight);
    lesson.record_output("rows/y", kept(together, 0, "y"));
    lesson.record_output("rows/dx", side_by_side(kept_by_all(together, "dx")));
    for (auto& [name, gradient] : whole_gradients(together))
        lesson.record_output("rows/" + name, gradient);
    lesson.record_run("rows", together);
}

void split_rows(ColumnLinear& lesson, Findings& found) {
    const Task task = rows_task(lesson.options(), lesson.ranks);
    const std::int64_t out = task.dy.shape().columns();
    Task whole = task;
    whole.make = linear_on_one_device(2 * out, out, true);
    whole.own_columns_of_x = false;
    const RunReport alone = pass_alone(lesson, whole);
    const RunReport together = pass_together(lesson, task);
    found.give({"rows_in"_is = 2 * out, "rows_out"_is = out,
                "rows_half"_is = halves_with_messages(together)});
    give_terms_of_y(lesson, found, task, kept(alone, 0, "y"));

    lesson.values_equal(found, "rows_g",
                        differing_on_any(together, kept(alone, 0, "y"), "y"), 0);
    lesson.values_equal(found, "rows_dx", differing_side_by_side(together, alone, "dx"),
                        0);
    lesson.values_equal(found, "rows_gradient", differing_gradients(together, alone), 0);
    give_all_reduce(lesson, found, "rows", together, "forward", "y");
    found.equal("rows_sent_backward", bytes_of_half(together, 0, "backward"), 0);
    record_rows(lesson, task, together);
}

/// Applies GELU to each rank's terms before g (wrong), and to their sum (right).
void apply_gelu(Rank& rank, const HostTensor& own_x, const HostTensor& own_weight) {
    Device& device = rank.device();
    const Tensor terms = device.matmul(device.upload(own_x), device.upload(own_weight),
                                       {.transpose_b = true});
    rank.keep("terms", terms);

    const Tensor early = device.gelu(terms);
    rank.keep("early", early);
    rank.world().all_reduce(early).wait();
    rank.keep("early sum", early);

    rank.world().all_reduce(terms).wait();
    rank.keep("sum", terms);
    rank.keep("late", device.gelu(terms));
}

/// Returns the index at which the two differ most.
std::int64_t widest_gap(const HostTensor& a, const HostTensor& b) {
    std::int64_t at = 0;
    for (std::int64_t i = 1; i < a.elements(); ++i)
        if (std::abs(a.at(i) - b.at(i)) > std::abs(a.at(at) - b.at(at))) at = i;
    return at;
}

/// Shows one number of a row-parallel layer: terms, and GELU before and after the sum.
void give_gelu_of_a_sum(ColumnLinear& lesson, Findings& found) {
    const Task task = rows_task(lesson.options(), lesson.ranks);
    const HostTensor& weight = task.weights.at("linear.weight");
    const RunReport report =
        make_cluster(lesson.options().without_full_check(), lesson.ranks)
            ->run([&](Rank& rank) {
                apply_gelu(rank, columns_of_rank(task.x, rank.index(), lesson.ranks),
                           columns_of_rank(weight, rank.index(), lesson.ranks));
            });
    if (!lesson.has_numbers()) return;
    const std::int64_t at =
        widest_gap(kept(report, 0, "early sum"), kept(report, 0, "late"));
    const auto cell = [&](int rank, const char* name) {
        return number(kept(report, rank, name).at(at));
    };
    const auto give_row = [&](std::string device, std::string terms, std::string gelu) {
        found.row("gelu_terms",
                  {"device"_is = std::move(device), "term"_is = std::move(terms),
                   "gelu"_is = std::move(gelu)});
    };
    for (int rank = 0; rank < lesson.shown_ranks(); ++rank)
        give_row(std::to_string(rank), cell(rank, "terms"), cell(rank, "early"));
    if (lesson.ranks > kShownRanks) give_row("…", "–", "–");
    found.give({"sum_of_terms"_is = cell(0, "sum"),
                "sum_of_gelus"_is = cell(0, "early sum"),
                "gelu_of_sum"_is = cell(0, "late")});
}

/// How an MLP is sharded over the ranks.
enum class MlpSplit {
    none,               ///< one device has all
    columns_then_rows,  ///< Megatron-LM's
    gathered,           ///< both layers by columns; outputs are gathered
};

/// The collectives of the two halves of a pass, by the formulas.
struct MlpCalls {
    std::vector<CollectiveCall> forward, backward;
};

/// The time of all calls one after another, and the part of it that is latency.
struct CallTimes {
    Picoseconds all = 0;
    Picoseconds latency = 0;
};

// lesson: gathered-mlp
// x (N, hidden) -> c_fc (N, inner) -> GELU -> c_proj (N, hidden). Every rank gets the
// whole output of each layer.
std::unique_ptr<Sequential> make_gathered_mlp(const ParameterInit& init,
                                              TensorParallel& tp, std::int64_t hidden,
                                              std::int64_t inner) {
    const ColumnParallelOptions gather{.gather_output = true};
    auto mlp = std::make_unique<Sequential>();
    mlp->add<ColumnParallelLinear>(init.child("c_fc"), tp, hidden, inner, gather);
    mlp->add<Gelu>(init.device);
    mlp->add<ColumnParallelLinear>(init.child("c_proj"), tp, inner, hidden, gather);
    return mlp;
}
// lesson: end

/// Returns a task that computes only shapes. Its run keeps no tensors; it shows costs.
Task mlp_shapes(const MlpSizes& sizes, MlpSplit split, DType dtype) {
    Task task;
    task.make = [sizes, split](const ParameterInit& init, TensorParallel& tp) {
        if (split == MlpSplit::none) return make_mlp(init, sizes.hidden, sizes.inner);
        if (split == MlpSplit::gathered)
            return make_gathered_mlp(init, tp, sizes.hidden, sizes.inner);
        return make_mlp(init, sizes.hidden, sizes.inner, tensor_parallel({}, tp));
    };
    task.x = task.dy = HostTensor({sizes.rows, sizes.hidden}, dtype);
    task.keeps = false;
    return task;
}

/// Returns an MLP with normal values for x and dy. The same seed gives the same values.
Task mlp_task(const MlpSizes& sizes, MlpSplit split, DType dtype, std::uint64_t seed) {
    Task task = mlp_shapes(sizes, split, dtype);
    const Shape shape = task.x.shape();
    task.x = normal_values(shape, "mlp/x", dtype, seed);
    task.dy = normal_values(shape, "mlp/dy", dtype, seed);
    task.seed = seed;
    task.keeps = true;
    return task;
}

/// Returns y, dx and the parameters' gradients, all whole.
NamedTensors results(const RunReport& report) {
    NamedTensors whole = whole_gradients(report);
    for (const char* name : {"y", "dx"})
        whole.emplace(name, kept(report, 0, name));
    return whole;
}

/// Returns the number of collectives that a rank took part in.
std::int64_t collectives(const RunReport& report, int rank) {
    std::int64_t calls = 0;
    for (const Traffic& traffic : report.ranks[rank].traffic)
        calls += traffic.calls;
    return calls;
}

/// Returns the time from the begin of forward to the end of backward, over all
/// ranks of a traced run.
Picoseconds pass_time(const RunReport& report) {
    Picoseconds begin = report.makespan();
    Picoseconds end = 0;
    for (const TraceEvent& event : report.trace) {
        if (event.kind != "phase") continue;
        begin = std::min(begin, event.start);
        end = std::max(end, event.end);
    }
    return std::max<Picoseconds>(end - begin, 0);
}

MlpCalls mlp_calls(const MlpSizes& sizes, MlpSplit split, DType dtype, int ranks) {
    const auto call = [&](Verb verb, std::int64_t columns) {
        // An all-gather's count is the number of elements of one rank's part.
        const int parts = verb == Verb::all_gather ? ranks : 1;
        return CollectiveCall{verb, sizes.rows * columns / parts, bytes_of(dtype), ranks};
    };
    if (split == MlpSplit::columns_then_rows)
        return {{call(Verb::all_reduce, sizes.hidden)},
                {call(Verb::all_reduce, sizes.hidden)}};
    return {{call(Verb::all_gather, sizes.inner), call(Verb::all_gather, sizes.hidden)},
            {call(Verb::all_reduce, sizes.inner), call(Verb::all_reduce, sizes.hidden)}};
}

std::int64_t bytes_of_calls(const std::vector<CollectiveCall>& calls, int rank) {
    std::int64_t bytes = 0;
    for (const CollectiveCall& call : calls)
        bytes += collective_traffic(call, rank).bytes_sent;
    return bytes;
}

/// Returns by how much counted bytes differ from the formula, over all ranks and halves.
std::int64_t byte_gap(const RunReport& report, const MlpCalls& calls) {
    std::int64_t gap = 0;
    for (int rank = 0; rank < static_cast<int>(report.ranks.size()); ++rank) {
        const std::int64_t forward = bytes_of_half(report, rank, "forward");
        const std::int64_t backward = bytes_of_half(report, rank, "backward");
        gap += std::abs(forward - bytes_of_calls(calls.forward, rank)) +
               std::abs(backward - bytes_of_calls(calls.backward, rank)) +
               std::abs(report.ranks[rank].bytes_sent() - forward - backward);
    }
    return gap;
}

CallTimes times_of(const MlpCalls& calls, const ClusterSpec& spec) {
    CallTimes times;
    for (const auto& half : {calls.forward, calls.backward})
        for (const CollectiveCall& call : half) {
            std::vector<int> members(static_cast<std::size_t>(call.ranks));
            std::iota(members.begin(), members.end(), 0);
            times.all += collective_time(call, spec, members);
            times.latency += collective_latency(call, spec, members);
        }
    return times;
}

void record_mlp(ColumnLinear& lesson, const Task& alone) {
    lesson.record_input("mlp/x", alone.x);
    lesson.record_input("mlp/dy", alone.dy);
    lesson.record().models["mlp"] = {{"kind", "mlp"},
                                     {"hidden", lesson.sizes.hidden},
                                     {"inner", lesson.sizes.inner},
                                     {"gelu", "exact"},
                                     {"bias", true},
                                     {"backward_from", "dy"}};
    for (const auto& [name, tensor] : lesson.mlp_alone.ranks[0].kept)
        if (name.starts_with("initial/")) lesson.record_input("mlp/" + name, tensor);
    for (const auto& [name, tensor] : results(lesson.mlp_alone))
        lesson.record_output("mlp_alone/" + name, tensor);
    for (const auto& [name, tensor] : results(lesson.mlp_together))
        lesson.record_output("mlp_columns_rows/" + name, tensor);
    lesson.record_run("mlp_alone", lesson.mlp_alone);
    lesson.record_run("mlp_columns_rows", lesson.mlp_together);
}

void pair(ColumnLinear& lesson, Findings& found) {
    give_gelu_of_a_sum(lesson, found);
    const auto task_of = [&](MlpSplit split) {
        return mlp_task(lesson.sizes, split, lesson.dtype(), lesson.options().seed);
    };
    const Task alone = task_of(MlpSplit::none);
    lesson.mlp_alone = pass_alone(lesson, alone, true);
    lesson.mlp_together =
        pass_together(lesson, task_of(MlpSplit::columns_then_rows), true);
    record_mlp(lesson, alone);
    found.give({"hidden"_is = std::to_string(lesson.sizes.hidden),
                "inner"_is = std::to_string(lesson.sizes.inner),
                "mlp_rows"_is = std::to_string(lesson.sizes.rows),
                "pair_order"_is = "columns_rows",
                "pair_reductions"_is = collectives(lesson.mlp_together, 0)});
    found.equal("pair_calls", collectives(lesson.mlp_together, 0), 2);
    lesson.values_at_most(
        found, "pair_values",
        difference(results(lesson.mlp_together), results(lesson.mlp_alone)).relative,
        bound(lesson));
    std::int64_t unlike = 0;
    for (const char* name : {"y", "dx"})
        unlike += differing_on_any(lesson.mlp_together,
                                   kept(lesson.mlp_together, 0, name), name);
    lesson.values_equal(found, "pair_same", unlike, 0);
}

void give_costs(Findings& found, const std::string& run, const RunReport& report) {
    found.give(run, {"forward"_is = Figure::memory(bytes_of_half(report, 0, "forward")),
                     "backward"_is = Figure::memory(bytes_of_half(report, 0, "backward")),
                     "time"_is = Figure::time(pass_time(report)),
                     "activations"_is = Figure::memory(
                         report.ranks[0].memory.peak_of(MemoryCategory::activations))});
}

void give_bytes(ColumnLinear& lesson, Findings& found, const RunReport& gathered) {
    const std::int64_t size = bytes_of(lesson.dtype());
    const std::int64_t s = lesson.sizes.rows * lesson.sizes.hidden * size;
    const std::int64_t i = lesson.sizes.rows * lesson.sizes.inner * size;
    found.give({"number_bytes"_is = size, "input_bytes"_is = Figure::bytes(s),
                "inner_bytes"_is = Figure::bytes(i),
                "pair_bytes"_is = Figure::bytes(sent(lesson, 4, s)),
                "pair_bytes_without_t"_is = Figure::bytes(4 * s),
                "gathering_bytes"_is = Figure::bytes(sent(lesson, 3, i + s)),
                "gathering_bytes_reduced"_is = Figure::bytes(sent(lesson, 4, i + s)),
                "gathering_bytes_gathered"_is = Figure::bytes(sent(lesson, 2, i + s)),
                "gathering_bytes_forward"_is = Figure::bytes(sent(lesson, 1, i + s))});
    found.equal("pair_sent", Figure::bytes(lesson.mlp_together.ranks[0].bytes_sent()),
                sent(lesson, 4, s));
    found.equal("gathering_sent", Figure::bytes(gathered.ranks[0].bytes_sent()),
                sent(lesson, 3, i + s));
    const auto calls = [&](MlpSplit split) {
        return mlp_calls(lesson.sizes, split, lesson.dtype(), lesson.ranks);
    };
    found.equal("byte_gap",
                byte_gap(lesson.mlp_together, calls(MlpSplit::columns_then_rows)) +
                    byte_gap(gathered, calls(MlpSplit::gathered)),
                0);
}

void give_time(ColumnLinear& lesson, Findings& found, const RunReport& gathered) {
    give_costs(found, "alone", lesson.mlp_alone);
    give_costs(found, "pair", lesson.mlp_together);
    give_costs(found, "gathered", gathered);
    found.timeline("pair", lesson.mlp_together);
    found.timeline("gathered", gathered);
    const ClusterSpec spec = load_cluster(lesson.options().cluster);
    // Elsewhere a step is not one message of a ring.
    const bool has_formula = lesson.has_virtual_time() && spec.algorithms.empty() &&
                             lesson.ranks <= spec.devices_per_node;
    found.give({"cluster"_is = lesson.options().cluster, "has_formula"_is = has_formula});
    if (!has_formula) return;
    const LinkSpec& link = spec.inside;
    const CallTimes times = times_of(mlp_calls(lesson.sizes, MlpSplit::columns_then_rows,
                                               lesson.dtype(), lesson.ranks),
                                     spec);
    found.give({"alpha"_is = Figure::time(picoseconds(link.alpha_seconds)),
                "beta"_is = link.bytes_per_second > 0
                                ? fmt::format("{:.4g} GB/s", link.bytes_per_second / 1e9)
                                : "∞",
                "messages"_is = Figure::time(times.all),
                "messages_bare"_is = Figure::time(times.all - times.latency)});
    found.equal("messages_time",
                Figure::time(lesson.mlp_together.ranks[0].time.communication), times.all);
}

/// Measures the same pass with wider MLPs.
void widen(ColumnLinear& lesson, Findings& found) {
    ClusterSpec spec = load_cluster(lesson.options().cluster);
    spec.memory_bytes = 0;
    const auto time_of = [&](const MlpSizes& sizes, MlpSplit split, int ranks) {
        return pass_time(pass(*make_shapes_only_cluster(ranks, spec, true),
                              mlp_shapes(sizes, split, lesson.dtype())));
    };
    std::vector<double> gains;
    for (const std::int64_t factor : {1, 4, 16}) {
        const MlpSizes sizes{lesson.sizes.rows, factor * lesson.sizes.hidden,
                             factor * lesson.sizes.inner};
        const Picoseconds alone = time_of(sizes, MlpSplit::none, 1);
        Findings& row = found.row(
            "widths", {"width"_is = sizes.hidden, "alone"_is = Figure::time(alone)});
        const auto give_way = [&](const std::string& name, MlpSplit split) {
            const Picoseconds time = time_of(sizes, split, lesson.ranks);
            const double gain = time > 0 ? ratio(alone, time) : 1;
            row.give(name, Figure::time(time));
            row.give(name + "_gain", Figure::decimals(gain, 2));
            return gain;
        };
        gains.push_back(give_way("pair", MlpSplit::columns_then_rows));
        give_way("gathered", MlpSplit::gathered);
    }
    constexpr double kAlike = 1.01;
    found.give("wider", gains[1] > kAlike * gains[0]   ? "grows"
                        : gains[0] > kAlike * gains[1] ? "shrinks"
                                                       : "stays");
}

void count_costs(ColumnLinear& lesson, Findings& found) {
    const Task task =
        mlp_task(lesson.sizes, MlpSplit::gathered, lesson.dtype(), lesson.options().seed);
    const RunReport gathered = pass_together(lesson, task, true);
    lesson.record_run("mlp_gathered", gathered);
    for (const auto& [name, tensor] : results(gathered))
        lesson.record_output("mlp_gathered/" + name, tensor);
    lesson.values_at_most(
        found, "gathered_values",
        difference(results(gathered), results(lesson.mlp_alone)).relative, bound(lesson));
    give_bytes(lesson, found, gathered);
    give_time(lesson, found, gathered);
    widen(lesson, found);
}

}  // namespace

LessonEntry column_linear_lesson() {
    LessonEntry entry;
    entry.slug = "column-linear";
    entry.folder = "03_column_linear";
    entry.default_ranks = kDefaultRanks;
    entry.most_ranks = 64;
    entry.settings = {
        {"rows", "of the MLP's input", Whole{1, 1 << 12, 256}},
        {"hidden", "columns of the MLP's input and output", Whole{1, 1 << 12},
         "192, or the next multiple of the ranks", false},
        {"inner", "columns between the MLP's two layers", Whole{1, 1 << 14},
         "4 times hidden", false},
    };
    entry.make = lesson_of<ColumnLinear>({{"multiply_by_columns", multiply_by_columns},
                                          {"find_the_layer", find_the_layer},
                                          {"split_columns", split_columns},
                                          {"split_rows", split_rows},
                                          {"pair", pair},
                                          {"count_costs", count_costs}});
    return entry;
}

}  // namespace lockstep::lessons
