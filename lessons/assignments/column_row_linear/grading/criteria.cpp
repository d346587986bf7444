#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"
#include "src/core/host_tensor.hpp"

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
/// what nobody has seen.
std::vector<Sizes> layers(const Judge& judge) {
    return {{2, 8, 6, 10},
            {3, 9, 7, 11},
            {1, 6, 5, 7},
            {5, 12, 4, 3},
            {static_cast<int>(judge.draw("ranks", 6, 8)), judge.draw("rows", 10, 14),
             judge.draw("in", 9, 23), judge.draw("out", 9, 29)}};
}

/// A product takes about as long as an all-reduce of its result.
constexpr Sizes kSlow{3, 128, 192, 800};
/// Weights are all that takes memory.
constexpr Sizes kLarge{4, 4, 150, 650};

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

/// Rank by rank, what a run left against what it must.
class Comparison {
  public:
    Comparison(Judge& judge, const Ran& ran) : judge_(judge), ran_(ran) {}

    /// `expected(rank)`.
    void close(const std::string& name, const std::function<HostTensor(int)>& expected) {
        for (int rank = 0; rank < ran_.sizes.ranks; ++rank)
            judge_.close(fmt::format("{}: {} on rank {}", ran_.name, name, rank),
                         left(rank, name), expected(rank));
    }
    void whole(const std::string& name, const HostTensor& expected) {
        close(name, [&](int) { return expected; });
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
    Comparison(judge, ran).whole("y", linear_of(judge, sizes).y());
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
    Comparison(judge, ran).whole("y", mlp_of(judge, sizes).second.y());
    return ran;
}

Ran mlp_both_ways(Judge& judge, const Sizes& sizes, Dx dx) {
    const one_device::Mlp whole = mlp_of(judge, sizes);
    Ran ran = run_mlp(judge, "mlp", sizes, dx);
    Comparison left(judge, ran);
    left.whole("y", whole.second.y());
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

/// Judges what each rank sends. Another ring may hand other chunks on, and other
/// all-reduces need fewer messages.
void judge_sent(Judge& judge, const std::string& exercise, const std::string& what,
                const Ran& ran) {
    for (std::size_t rank = 0; rank < ran.left.report.ranks.size(); ++rank) {
        const RankReport& left = ran.left.report.ranks[rank];
        const std::string name =
            fmt::format("{}: {}: {}: rank {}", exercise, ran.sizes.name(), what, rank);
        judge.as_reference(name + ": sent", "bytes", left.bytes_sent(), {4, 4});
        judge.as_reference(name + ": messages", "messages", left.messages_sent(),
                           {100, 0});
    }
}

void judge_unwanted(Judge& judge, const std::string& exercise, const std::string& what,
                    const Ran& ran) {
    Comparison(judge, ran).none("dx");
    judge_sent(judge, exercise, what, ran);
}

void judge_column_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_sent(judge, "a3.1", "forward", column_forward(judge, sizes));
        judge_sent(judge, "a3.1", "backward", column_backward(judge, sizes, Dx::wanted));
        judge_unwanted(judge, "a3.1", "backward, dx unwanted",
                       column_backward(judge, sizes, Dx::unwanted));
    }
}

void judge_row_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_sent(judge, "a3.2", "forward", row_forward(judge, sizes));
        judge_sent(judge, "a3.2", "backward", row_backward(judge, sizes));
    }
}

void judge_mlp_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_sent(judge, "a3.3", "forward", mlp_forward(judge, sizes));
        judge_sent(judge, "a3.3", "both ways", mlp_both_ways(judge, sizes, Dx::wanted));
        judge_unwanted(judge, "a3.3", "both ways, dx unwanted",
                       mlp_both_ways(judge, sizes, Dx::unwanted));
    }
}

void judge_time(Judge& judge, const std::string& what, const Ran& ran, int percent_more) {
    judge.as_reference(fmt::format("{}: {}: time", what, ran.sizes.name()), kPicoseconds,
                       ran.left.report.makespan(), {100, percent_more});
}

void judge_column_time(Judge& judge) {
    judge_time(judge, "a3.1: backward", column_backward(judge, kSlow, Dx::wanted), 25);
    judge_time(judge, "a3.1: backward, dx unwanted",
               column_backward(judge, kSlow, Dx::unwanted), 25);
}

/// A product more, or a dx that is waited for at once, takes 13 % more.
void judge_mlp_time(Judge& judge) {
    judge_time(judge, "a3.3: both ways", mlp_both_ways(judge, kSlow, Dx::wanted), 10);
}

void judge_mlp_memory(Judge& judge) {
    const Ran ran = mlp_both_ways(judge, kLarge, Dx::wanted);
    for (std::size_t rank = 0; rank < ran.left.report.ranks.size(); ++rank)
        judge.as_reference(fmt::format("a3.3: {}: rank {}: peak", kLarge.name(), rank),
                           "bytes of memory", ran.left.report.ranks[rank].memory.peak,
                           {100, 30});
}

}  // namespace

Assignment column_row_linear_assignment() {
    return {
        "column-row-linear",
        "A linear layer by columns and by rows",
        "Forward and backward of a layer shared out to any number of ranks, by columns "
        "and by rows, and of an MLP with one all-reduce each way.",
        {"layers.hpp", "layers.cpp", "adapters.cpp"},
        {{"a3.1-values", "by columns: each rank's y and gradients, and dx on all", 15,
          "column-linear, step 3", judge_column},
         {"a3.1-bytes", "by columns: one all-reduce backward, none forward", 10,
          "column-linear, step 3", judge_column_bytes},
         {"a3.1-time", "by columns: dx is on its way while the weight's gradient is made",
          10, "column-linear, step 3", judge_column_time},
         {"a3.2-values", "by rows: y on all ranks, and each rank's gradients", 15,
          "column-linear, step 4", judge_row},
         {"a3.2-bytes", "by rows: one all-reduce forward, none backward", 10,
          "column-linear, step 4", judge_row_bytes},
         {"a3.3-values", "the MLP's y, dx and gradients are one device's", 15,
          "column-linear, step 5", judge_mlp},
         {"a3.3-bytes", "the MLP makes one all-reduce each way, and sends nothing else",
          10, "column-linear, step 5", judge_mlp_bytes},
         {"a3.3-time", "the MLP takes no rank longer than its share of the work", 5,
          "column-linear, step 6", judge_mlp_time},
         {"a3.3-memory", "no rank of the MLP has room for a whole weight", 10,
          "column-linear, step 6", judge_mlp_memory}}};
}

}  // namespace lockstep::lessons
