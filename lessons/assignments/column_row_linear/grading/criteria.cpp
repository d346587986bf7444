#include <cmath>
#include <functional>
#include <numbers>
#include <optional>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/cost_of.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"
#include "src/core/host_tensor.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"

namespace lockstep::lessons {

namespace {

namespace one_device {

// One device would compute this; here in plain loops over f64.

HostTensor transposed(const HostTensor& a) {
    const std::int64_t rows = a.shape()[0], columns = a.shape()[1];
    HostTensor b({columns, rows}, DType::f64);
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
            b.set(j * rows + i, a.at(i * columns + j));
    return b;
}

/// a (m, k) times b (k, n).
HostTensor product(const HostTensor& a, const HostTensor& b) {
    const std::int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
    HostTensor c({m, n}, DType::f64);
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::int64_t term = 0; term < k; ++term)
                sum += a.at(i * k + term) * b.at(term * n + j);
            c.set(i * n + j, sum);
        }
    return c;
}

HostTensor sum_of_rows(const HostTensor& a) {
    const std::int64_t columns = a.shape()[1];
    HostTensor sum({columns}, DType::f64);
    for (std::int64_t i = 0; i < a.elements(); ++i)
        sum.set(i % columns, sum.at(i % columns) + a.at(i));
    return sum;
}

HostTensor columns(const HostTensor& a, const Chunk& own) {
    return transposed(transposed(a).rows(own.begin, own.count));
}

/// A linear layer's x, parameters and gradient of y, and what comes of them.
struct Linear {
    HostTensor x, weight, bias, dy;

    HostTensor y() const {
        HostTensor y = product(x, transposed(weight));
        for (std::int64_t i = 0; i < y.elements(); ++i)
            y.set(i, y.at(i) + bias.at(i % bias.elements()));
        return y;
    }
    HostTensor dx() const { return product(dy, weight); }
    HostTensor d_weight() const { return product(transposed(dy), x); }
    HostTensor d_bias() const { return sum_of_rows(dy); }
};

/// u Φ(u), with Φ the normal distribution function.
HostTensor gelu(HostTensor u) {
    for (std::int64_t i = 0; i < u.elements(); ++i)
        u.set(i, u.at(i) * std::erfc(-u.at(i) / std::numbers::sqrt2) / 2);
    return u;
}

/// dy (Φ(u) + u φ(u)), with φ the normal density.
HostTensor gelu_backward(const HostTensor& u, HostTensor dy) {
    for (std::int64_t i = 0; i < u.elements(); ++i) {
        const double at = u.at(i);
        const double density =
            std::exp(-at * at / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
        dy.set(i, dy.at(i) * (std::erfc(-at / std::numbers::sqrt2) / 2 + at * density));
    }
    return dy;
}

/// Both layers of an MLP, with all their x and dy, of which the second's x and the
/// first's dy are made.
struct Mlp {
    Linear first, second;

    Mlp(Linear one, Linear two) : first(std::move(one)), second(std::move(two)) {
        const HostTensor between = first.y();
        second.x = gelu(between);
        first.dy = gelu_backward(between, second.dx());
    }
};

}  // namespace one_device

// The grader's cases, and what ranks are given of them.

using one_device::columns;
using Given = std::map<std::string, TaskTensor>;

/// A layer from `in` to `out` columns; of an MLP the first, and the second leads back.
struct Sizes {
    int ranks = 1;
    std::int64_t rows = 0, in = 0, out = 0;

    std::string name() const {
        return fmt::format("{} rank{}, {} rows, {} to {} columns", ranks,
                           ranks == 1 ? "" : "s", rows, in, out);
    }
    Chunk in_of(int rank) const { return chunk(in, ranks, rank); }
    Chunk out_of(int rank) const { return chunk(out, ranks, rank); }
};

/// Columns that ranks divide and do not divide, one rank, fewer columns than ranks, and
/// more ranks; drawn anew for each grading.
std::vector<Sizes> layers(const Judge& judge) {
    const auto draw = [&](const char* name, std::int64_t low, std::int64_t high) {
        return judge.draw(name, low, high);
    };
    return {{2, draw("rows of 2", 7, 11), 2 * draw("in of 2", 2, 4),
             2 * draw("out of 2", 5, 7)},
            {3, draw("rows of 3", 8, 12), 3 * draw("in of 3", 2, 4) + 1,
             3 * draw("out of 3", 2, 4) + 2},
            {1, draw("rows of 1", 4, 9), draw("in of 1", 4, 6), draw("out of 1", 7, 9)},
            {5, draw("rows of 5", 11, 15), draw("in of 5", 3, 4), 3},
            {static_cast<int>(draw("ranks", 6, 8)), draw("rows", 10, 14),
             draw("in", 9, 23), draw("out", 9, 29)}};
}

/// A product takes about as long as an all-reduce of its result.
Sizes slow(const Judge& judge) {
    return {3, 8 * judge.draw("rows, slow", 15, 17), 48 * judge.draw("in, slow", 3, 4),
            48 * judge.draw("out, slow", 16, 17)};
}

/// Weights are all that takes memory.
Sizes large(const Judge& judge) {
    return {4, 4, judge.draw("in, large", 140, 180), judge.draw("out, large", 600, 700)};
}

one_device::Linear linear_of(const Judge& judge, const Sizes& sizes,
                             const std::string& layer = "") {
    const auto [ranks, rows, in, out] = sizes;
    const auto drawn = [&](const char* what, const Shape& shape) {
        return judge.normal(fmt::format("{}{}, {}", layer, what, sizes.name()), shape);
    };
    return {drawn("x", {rows, in}), drawn("weight", {out, in}), drawn("bias", {out}),
            drawn("dy", {rows, out})};
}

one_device::Mlp mlp_of(const Judge& judge, const Sizes& sizes) {
    return {linear_of(judge, sizes, "first "),
            linear_of(judge, {sizes.ranks, sizes.rows, sizes.out, sizes.in}, "second ")};
}

TaskTensor parameter(HostTensor values) {
    return {std::move(values), MemoryCategory::parameters};
}

enum class Dx : std::uint8_t { wanted, unwanted };

/// A run, with what each rank was given and what it left.
struct Ran {
    std::string name;
    Sizes sizes;
    std::vector<RankTask> given;
    const TaskResult& left;
};

/// A rank is given `given(rank)`.
Ran run(Judge& judge, const std::string& task, const Sizes& sizes, Dx dx,
        const std::function<Given(int)>& given) {
    TaskRun asked{sizes.name() + (dx == Dx::wanted ? "" : ", dx unwanted"), {}};
    for (int rank = 0; rank < sizes.ranks; ++rank)
        asked.ranks.push_back({task, given(rank), {{"wants_dx", dx == Dx::wanted}}});
    const TaskResult& left = judge.run(asked);
    return {std::move(asked.name), sizes, std::move(asked.ranks), left};
}

Ran run_column(Judge& judge, const std::string& task, const Sizes& sizes,
               Dx dx = Dx::wanted) {
    const one_device::Linear whole = linear_of(judge, sizes);
    return run(judge, task, sizes, dx, [&](int rank) {
        const Chunk own = sizes.out_of(rank);
        return Given{{"x", {whole.x}},
                     {"weight", parameter(whole.weight.rows(own.begin, own.count))},
                     {"bias", parameter(whole.bias.rows(own.begin, own.count))},
                     {"dy", {columns(whole.dy, own)}}};
    });
}

Ran run_row(Judge& judge, const std::string& task, const Sizes& sizes) {
    const one_device::Linear whole = linear_of(judge, sizes);
    return run(judge, task, sizes, Dx::wanted, [&](int rank) {
        const Chunk own = sizes.in_of(rank);
        return Given{{"x", {columns(whole.x, own)}},
                     {"weight", parameter(columns(whole.weight, own))},
                     {"bias", parameter(whole.bias)},
                     {"dy", {whole.dy}}};
    });
}

Ran run_mlp(Judge& judge, const std::string& task, const Sizes& sizes,
            Dx dx = Dx::wanted) {
    const auto first = linear_of(judge, sizes, "first ");
    const auto second =
        linear_of(judge, {sizes.ranks, sizes.rows, sizes.out, sizes.in}, "second ");
    return run(judge, task, sizes, dx, [&](int rank) {
        const Chunk own = sizes.out_of(rank);
        return Given{{"x", {first.x}},
                     {"weight1", parameter(first.weight.rows(own.begin, own.count))},
                     {"bias1", parameter(first.bias.rows(own.begin, own.count))},
                     {"weight2", parameter(columns(second.weight, own))},
                     {"bias2", parameter(second.bias)},
                     {"dy", {second.dy}}};
    });
}

HostTensor sum_of(const HostTensor& a, const HostTensor& b, double factor) {
    HostTensor sum = a;
    for (std::int64_t i = 0; i < sum.elements(); ++i)
        sum.set(i, sum.at(i) + factor * b.at(i % b.elements()));
    return sum;
}

/// Says what tensors are that should be the same whole one on every rank, as far as that
/// can be seen; `bias`, if it is not empty, belongs to each row once.
std::string cause_of_whole(const OfRanks& left, const HostTensor& expected,
                           const HostTensor& bias) {
    std::string said = suspected_sum(left, expected);
    if (!said.empty() || bias.elements() == 0) return said;
    const auto ranks = static_cast<double>(left.size());
    const auto on_all = [&](const HostTensor& values) {
        return OfRanks(left.size(), values);
    };
    const HostTensor without = sum_of(expected, bias, -1);
    OfRanks terms;
    terms.reserve(left.size());
    for (const HostTensor& own : left)
        terms.push_back(own.shape() == expected.shape() ? sum_of(own, bias, -1) : own);
    said = suspected_sum(terms, without);
    if (!said.empty()) return "without the bias, " + said;
    return suspected(
        left,
        {{"the bias is missing", on_all(without)},
         {fmt::format("the bias is in it {} times: each rank added it before the sum "
                      "over the ranks",
                      left.size()),
          on_all(sum_of(expected, bias, ranks - 1))}});
}

/// Compares, rank by rank, what a run left with what it must.
class Comparison {
  public:
    Comparison(Judge& judge, const Ran& ran) : judge_(judge), ran_(ran) {}

    /// `expected(rank)`.
    void close(const std::string& name, const std::function<HostTensor(int)>& expected) {
        for (int rank = 0; rank < ran_.sizes.ranks; ++rank)
            judge_.close(fmt::format("{}: {} on rank {}", ran_.name, name, rank),
                         left(rank, name), expected(rank));
    }
    /// A `bias` belongs to each row of it once.
    void whole(const std::string& name, const HostTensor& expected,
               const HostTensor& bias = {}) {
        OfRanks all;
        all.reserve(static_cast<std::size_t>(ran_.sizes.ranks));
        for (int rank = 0; rank < ran_.sizes.ranks; ++rank)
            all.push_back(left(rank, name));
        for (std::size_t rank = 0; rank < all.size(); ++rank)
            try {
                judge_.close(fmt::format("{}: {} on rank {}", ran_.name, name, rank),
                             all[rank], expected);
            } catch (Judge::No& no) {
                no.explain(cause_of_whole(all, expected, bias));
                throw;
            }
    }
    /// The rows that belong to each rank's share of `count`.
    void rows(const std::string& name, std::int64_t count, const HostTensor& expected) {
        close(name, [&](int rank) {
            const Chunk own = chunk(count, ran_.sizes.ranks, rank);
            return expected.rows(own.begin, own.count);
        });
    }
    void columns(const std::string& name, std::int64_t count,
                 const HostTensor& expected) {
        close(name, [&](int rank) {
            return one_device::columns(expected, chunk(count, ran_.sizes.ranks, rank));
        });
    }
    /// All that ranks were given is as it was.
    void given() {
        for (int rank = 0; rank < ran_.sizes.ranks; ++rank)
            for (const auto& [name, tensor] : ran_.given[at(rank)].tensors)
                judge_.close(fmt::format("{}: {} of rank {} after {}", ran_.name, name,
                                         rank, ran_.given[at(rank)].task),
                             left(rank, "given " + name), tensor.values, 0);
    }
    void none(const std::string& name) {
        for (int rank = 0; rank < ran_.sizes.ranks; ++rank)
            judge_.ask(!ran_.left.ranks[at(rank)].tensors.contains(name),
                       fmt::format("{}: no {} on rank {}", ran_.name, name, rank),
                       "a tensor");
    }

  private:
    static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
    const HostTensor& left(int rank, const std::string& name) {
        return judge_.left(ran_.left.ranks[at(rank)], name);
    }

    Judge& judge_;
    const Ran& ran_;
};

// Runs whose values are right. Bytes, time and memory count of no others: doing nothing
// is fast.

Ran column_forward(Judge& judge, const Sizes& sizes) {
    Ran ran = run_column(judge, "column_forward", sizes);
    Comparison(judge, ran).columns("y", sizes.out, linear_of(judge, sizes).y());
    return ran;
}

Ran column_backward(Judge& judge, const Sizes& sizes, Dx dx) {
    const one_device::Linear whole = linear_of(judge, sizes);
    Ran ran = run_column(judge, "column_backward", sizes, dx);
    Comparison left(judge, ran);
    if (dx == Dx::wanted) left.whole("dx", whole.dx());
    left.rows("d_weight", sizes.out, whole.d_weight());
    left.rows("d_bias", sizes.out, whole.d_bias());
    return ran;
}

Ran row_forward(Judge& judge, const Sizes& sizes) {
    Ran ran = run_row(judge, "row_forward", sizes);
    const one_device::Linear whole = linear_of(judge, sizes);
    Comparison(judge, ran).whole("y", whole.y(), whole.bias);
    return ran;
}

Ran row_backward(Judge& judge, const Sizes& sizes) {
    const one_device::Linear whole = linear_of(judge, sizes);
    Ran ran = run_row(judge, "row_backward", sizes);
    Comparison left(judge, ran);
    left.columns("dx", sizes.in, whole.dx());
    left.columns("d_weight", sizes.in, whole.d_weight());
    left.whole("d_bias", whole.d_bias());
    return ran;
}

Ran mlp_forward(Judge& judge, const Sizes& sizes) {
    Ran ran = run_mlp(judge, "mlp_forward", sizes);
    const one_device::Mlp whole = mlp_of(judge, sizes);
    Comparison(judge, ran).whole("y", whole.second.y(), whole.second.bias);
    return ran;
}

Ran mlp_both_ways(Judge& judge, const Sizes& sizes, Dx dx) {
    const one_device::Mlp whole = mlp_of(judge, sizes);
    Ran ran = run_mlp(judge, "mlp", sizes, dx);
    Comparison left(judge, ran);
    left.whole("y", whole.second.y(), whole.second.bias);
    if (dx == Dx::wanted) left.whole("dx", whole.first.dx());
    left.rows("d_weight1", sizes.out, whole.first.d_weight());
    left.rows("d_bias1", sizes.out, whole.first.d_bias());
    left.columns("d_weight2", sizes.out, whole.second.d_weight());
    left.whole("d_bias2", whole.second.d_bias());
    return ran;
}

void judge_given(Judge& judge, const Ran& ran) {
    Comparison(judge, ran).given();
}

void judge_column(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_given(judge, column_forward(judge, sizes));
        judge_given(judge, column_backward(judge, sizes, Dx::wanted));
        judge_given(judge, column_backward(judge, sizes, Dx::unwanted));
    }
}

void judge_row(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_given(judge, row_forward(judge, sizes));
        judge_given(judge, row_backward(judge, sizes));
    }
}

void judge_mlp(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_given(judge, mlp_forward(judge, sizes));
        judge_given(judge, mlp_both_ways(judge, sizes, Dx::wanted));
        judge_given(judge, mlp_both_ways(judge, sizes, Dx::unwanted));
    }
}

/// Returns a run for what it cost; if its values are wrong, `id` has said so.
Ran right(const Judge& judge, const std::string& id,
          const std::function<Ran(Judge&)>& run) {
    std::optional<Ran> ran;
    needs(judge, id, [&](Judge& asking) { ran.emplace(run(asking)); });
    return *std::move(ran);
}

/// Judges what each rank sends: what all-reduces of tensors with so many columns must,
/// 2(n - 1)/n of each. Chunks differ by an element, and which a ring hands on is up to
/// it; other all-reduces need fewer messages.
void judge_sent(Judge& judge, const std::string& exercise, const std::string& what,
                const Ran& ran, const std::vector<std::int64_t>& columns_reduced) {
    const std::int64_t hops = 2 * (std::int64_t{ran.sizes.ranks} - 1);
    std::int64_t bytes = 0;
    for (const std::int64_t columns : columns_reduced)
        bytes += hops * ran.sizes.rows * columns * bytes_of(DType::f64) / ran.sizes.ranks;
    for (std::size_t rank = 0; rank < ran.left.report.ranks.size(); ++rank) {
        const RankReport& left = ran.left.report.ranks[rank];
        const std::string name =
            fmt::format("{}: {}: {}: rank {}", exercise, ran.sizes.name(), what, rank);
        judge.figure(name + ": sent", "bytes", bytes, left.bytes_sent(), {5, 5});
        judge.figure(name + ": messages", "messages",
                     hops * static_cast<std::int64_t>(columns_reduced.size()),
                     left.messages_sent(), {100, 0});
    }
}

void judge_unwanted(Judge& judge, const std::string& exercise, const std::string& what,
                    const Ran& ran, const std::vector<std::int64_t>& columns_reduced) {
    Comparison(judge, ran).none("dx");
    judge_sent(judge, exercise, what, ran, columns_reduced);
}

Ran column_gradients(Judge& judge, const Sizes& sizes, Dx dx) {
    return right(judge, "a3.1-values",
                 [&](Judge& asking) { return column_backward(asking, sizes, dx); });
}

Ran mlp_gradients(Judge& judge, const Sizes& sizes, Dx dx) {
    return right(judge, "a3.3-values",
                 [&](Judge& asking) { return mlp_both_ways(asking, sizes, dx); });
}

void judge_column_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        const auto forward = right(judge, "a3.1-values", [&](Judge& asking) {
            return column_forward(asking, sizes);
        });
        judge_sent(judge, "a3.1", "forward", forward, {});
        judge_sent(judge, "a3.1", "backward", column_gradients(judge, sizes, Dx::wanted),
                   {sizes.in});
        judge_unwanted(judge, "a3.1", "backward, dx unwanted",
                       column_gradients(judge, sizes, Dx::unwanted), {});
    }
}

void judge_row_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        const auto forward = right(judge, "a3.2-values", [&](Judge& asking) {
            return row_forward(asking, sizes);
        });
        const auto backward = right(judge, "a3.2-values", [&](Judge& asking) {
            return row_backward(asking, sizes);
        });
        judge_sent(judge, "a3.2", "forward", forward, {sizes.out});
        judge_sent(judge, "a3.2", "backward", backward, {});
    }
}

void judge_mlp_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        const auto forward = right(judge, "a3.3-values", [&](Judge& asking) {
            return mlp_forward(asking, sizes);
        });
        judge_sent(judge, "a3.3", "forward", forward, {sizes.in});
        judge_sent(judge, "a3.3", "both ways", mlp_gradients(judge, sizes, Dx::wanted),
                   {sizes.in, sizes.in});
        judge_unwanted(judge, "a3.3", "both ways, dx unwanted",
                       mlp_gradients(judge, sizes, Dx::unwanted), {sizes.in});
    }
}

void judge_time(Judge& judge, const std::string& what, const Ran& ran,
                Picoseconds expected, int percent_more) {
    judge.figure(fmt::format("{}: {}: time", what, ran.sizes.name()), kPicoseconds,
                 expected, ran.left.report.makespan(), {100, percent_more},
                 "no product is made twice, and the all-reduce of dx runs while the "
                 "weight's and the bias's gradients are made: it is launched before, and "
                 "waited for behind");
}

/// Returns what a program takes on empty tensors, but for what it takes to make its
/// modules: `program(rank, false)` ends when they are made.
template <typename Program>
Picoseconds time_of(const Sizes& sizes, Program program) {
    const auto time = [&](bool runs) {
        return cost_of(sizes.ranks, [&](Rank& rank) { program(rank, runs); }).makespan();
    };
    return time(true) - time(false);
}

Tensor numbers(Rank& rank, std::int64_t rows, std::int64_t columns) {
    return rank.device().empty({rows, columns}, DType::f64);
}

/// Returns what the library's layer takes for backward.
Picoseconds column_time(const Sizes& sizes, Dx dx) {
    return time_of(sizes, [&](Rank& rank, bool runs) {
        TensorParallel tp(rank.device(), rank.world());
        ColumnParallelLinear layer({rank.device(), DType::f64, 0, "layer"}, tp, sizes.in,
                                   sizes.out);
        layer.set_input_gradient(dx == Dx::wanted);
        Saved saved;
        layer.forward(numbers(rank, sizes.rows, sizes.in), saved);
        if (runs)
            layer.backward(numbers(rank, sizes.rows, sizes.out / sizes.ranks), saved);
    });
}

void judge_column_time(Judge& judge) {
    const Sizes sizes = slow(judge);
    for (const Dx dx : {Dx::wanted, Dx::unwanted})
        judge_time(judge,
                   dx == Dx::wanted ? "a3.1: backward" : "a3.1: backward, dx unwanted",
                   column_gradients(judge, sizes, dx), column_time(sizes, dx), 25);
}

/// Returns what the library's layers take for an MLP both ways.
Picoseconds mlp_time(const Sizes& sizes) {
    return time_of(sizes, [&](Rank& rank, bool runs) {
        TensorParallel tp(rank.device(), rank.world());
        const ParameterInit init{rank.device(), DType::f64, 0, "mlp"};
        Sequential mlp;
        mlp.add<ColumnParallelLinear>(init.child("first"), tp, sizes.in, sizes.out);
        mlp.add<Gelu>(rank.device());
        mlp.add<RowParallelLinear>(init.child("second"), tp, sizes.out, sizes.in);
        if (!runs) return;
        Saved saved;
        mlp.forward(numbers(rank, sizes.rows, sizes.in), saved);
        mlp.backward(numbers(rank, sizes.rows, sizes.in), saved);
    });
}

/// A product more, or a dx that is waited for at once, takes 13 % more.
void judge_mlp_time(Judge& judge) {
    const Sizes sizes = slow(judge);
    judge_time(judge, "a3.3: both ways", mlp_gradients(judge, sizes, Dx::wanted),
               mlp_time(sizes), 10);
}

/// Asks for no more room than a rank's weights and gradients take, and a third: its
/// activations take a twentieth.
void judge_mlp_memory(Judge& judge) {
    const Sizes sizes = large(judge);
    const Ran ran = mlp_gradients(judge, sizes, Dx::wanted);
    for (int rank = 0; rank < sizes.ranks; ++rank) {
        const std::int64_t weights = 2 * sizes.in * sizes.out_of(rank).count;
        judge.figure(fmt::format("a3.3: {}: rank {}: peak", sizes.name(), rank),
                     "bytes of memory", 2 * weights * bytes_of(DType::f64),
                     ran.left.report.ranks[static_cast<std::size_t>(rank)].memory.peak,
                     {100, 35});
    }
}

}  // namespace

Assignment column_row_linear_assignment() {
    return {
        "column-row-linear",
        "A linear layer by columns and by rows",
        "Forward and backward of a layer shared out to any number of ranks, by columns "
        "and by rows, and of an MLP with one all-reduce each way.",
        {"layers.hpp", "layers.cpp", "adapters.cpp"},
        {{"a3.1-values", "by columns: each rank's y and gradients, and dx on all", 20,
          lesson_step("column-linear", "split_columns"), judge_column},
         {"a3.1-bytes", "by columns: one all-reduce backward, none forward", 5,
          lesson_step("column-linear", "split_columns"), judge_column_bytes},
         {"a3.1-time", "by columns: dx is on its way while the weight's gradient is made",
          10, lesson_step("column-linear", "split_columns"), judge_column_time},
         {"a3.2-values", "by rows: y on all ranks, and each rank's gradients", 25,
          lesson_step("column-linear", "split_rows"), judge_row},
         {"a3.2-bytes", "by rows: one all-reduce forward, none backward", 10,
          lesson_step("column-linear", "split_rows"), judge_row_bytes},
         {"a3.3-values", "the MLP's y, dx and gradients are one device's", 10,
          lesson_step("column-linear", "pair"), judge_mlp},
         {"a3.3-bytes", "the MLP makes one all-reduce each way, and sends nothing else",
          5, lesson_step("column-linear", "pair"), judge_mlp_bytes},
         {"a3.3-time", "the MLP takes no rank longer than its share of the work", 5,
          lesson_step("column-linear", "count_costs"), judge_mlp_time},
         {"a3.3-memory", "no rank of the MLP has room for a whole weight", 10,
          lesson_step("column-linear", "count_costs"), judge_mlp_memory}},
        column_row_linear_solutions};
}

}  // namespace lockstep::lessons
