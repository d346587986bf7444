// Operations on bf16 are f32's, of the same numbers, rounded once.

#include <bit>
#include <cmath>
#include <limits>

#include "tests/device/support.hpp"

namespace lockstep::test {

namespace {

/// One run of an operation, in one type: its inputs, by name, and what it gave.
class Trial {
  public:
    explicit Trial(DType dtype) : dtype_(dtype) {}

    Device* operator->() const { return bench_.device.get(); }

    /// Numbers that bf16 holds exactly, the same for the same name.
    Tensor in(const std::string& name, Shape shape, double low = -1, double high = 1) {
        const HostTensor values = random_values(shape, DType::bf16, name, low, high);
        return bench_->upload(values.as(dtype_));
    }
    /// Of the type in which rows' statistics are kept.
    Tensor statistic(const std::string& name, Shape shape, double low = -1,
                     double high = 1) {
        return bench_->upload(random_values(shape, DType::f32, name, low, high));
    }
    Tensor indices(const std::string& name, Shape shape, std::int64_t bound) {
        return bench_->upload(random_indices(shape, bound, name));
    }
    Tensor empty(Shape shape) { return bench_->empty(shape, dtype_); }

    void gives(const Tensor& result) { results_.push_back(bench_->download(result)); }
    void gives(const Normalized& results) {
        for (const Tensor* result : {&results.y, &results.mean, &results.rstd})
            if (*result) gives(*result);
    }
    const std::vector<HostTensor>& results() const { return results_; }

  private:
    DType dtype_;
    Bench bench_;
    std::vector<HostTensor> results_;
};

/// Results in bf16 are f32's, rounded; statistics are f32's.
template <typename Program>
void rounds_once(const char* name, Program&& program) {
    CAPTURE(name);
    Trial narrow(DType::bf16), wide(DType::f32);
    program(narrow);
    program(wide);
    REQUIRE(narrow.results().size() == wide.results().size());
    REQUIRE_FALSE(narrow.results().empty());
    for (std::size_t i = 0; i < wide.results().size(); ++i) {
        const HostTensor& got = narrow.results()[i];
        const HostTensor& expected = wide.results()[i];
        CHECK(got == expected.as(got.dtype()));
        CHECK((got.dtype() == DType::bf16 || expected.dtype() != DType::f64));
    }
}

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kColumns = 8;
const Shape kMatrix{kRows, kColumns};

AttentionHeads heads_of(const Tensor& packed) {
    return {{packed, 2, 2, 0}, {packed, 2, 2, 4}, {packed, 2, 2, 8}};
}

/// Nearest to `value`, by trying all: what Bf16 should be.
std::uint16_t nearest(double value) {
    std::uint16_t best = 0;
    double distance = std::numeric_limits<double>::infinity();
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        Bf16 number;
        number.bits = static_cast<std::uint16_t>(bits);
        const double apart = std::abs(static_cast<double>(float{number}) - value);
        if (std::isnan(apart) || std::signbit(float{number}) != std::signbit(value))
            continue;
        if (apart < distance || (apart == distance && bits % 2 == 0)) {
            distance = apart;
            best = number.bits;
        }
    }
    return best;
}

}  // namespace

TEST_CASE("A bf16 is the nearest one, and even of two", "[device][bf16]") {
    const double values[] = {0.0,
                             -0.0,
                             1,
                             1 + 0x1p-8,  // between two
                             1 + 3 * 0x1p-8,
                             1 + 0x1p-8 + 0x1p-40,  // an f32 would lie between two
                             1 + 0x1p-8 - 0x1p-40,
                             -(1 + 0x1p-8 + 0x1p-40),
                             3.14159265358979,
                             -1e-3,
                             1e38,
                             0x1p-126,
                             0x1p-133,
                             0x1.8p-134,
                             -0x1p-150,
                             1.0 / 3};
    for (const double value : values) {
        CAPTURE(value);
        CHECK(Bf16(value).bits == nearest(value));
        CHECK(Bf16(static_cast<float>(value)).bits ==
              nearest(static_cast<double>(static_cast<float>(value))));
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    CHECK(float{Bf16(kInfinity)} == static_cast<float>(kInfinity));
    CHECK(float{Bf16(3.4e38)} == static_cast<float>(kInfinity));
    CHECK(float{Bf16(-1e300)} == -static_cast<float>(kInfinity));
    CHECK(std::isnan(float{Bf16(std::numeric_limits<double>::quiet_NaN())}));
    CHECK(std::isnan(float{Bf16(std::numeric_limits<float>::quiet_NaN())}));
    CHECK(std::isnan(float{Bf16(std::bit_cast<float>(0x7f800001U))}));
}

TEST_CASE("Every operation on bf16 is f32's, rounded once", "[device][bf16]") {
    using T = Trial;
    rounds_once("fill", [](T& t) {
        const Tensor x = t.empty(kMatrix);
        t->fill(x, 0.3);
        t.gives(x);
    });
    rounds_once("copy_columns", [](T& t) {
        const Tensor x = t.in("x", kMatrix);
        t->copy_columns(x, 1, t.in("y", kMatrix), 3, 4);
        t.gives(x);
    });
    rounds_once("add", [](T& t) {
        const Tensor x = t.in("x", kMatrix);
        t->add(x, t.in("y", kMatrix), 0.3);
        t.gives(x);
    });
    rounds_once("add in place", [](T& t) {
        const Tensor x = t.in("x", kMatrix);
        t->add(x, x, 0.3);
        t.gives(x);
    });
    rounds_once("scale", [](T& t) {
        const Tensor x = t.in("x", kMatrix);
        t->scale(x.rows(1, 2), 0.3);
        t.gives(x);
    });
    rounds_once("scale_by_tensor", [](T& t) {
        const Tensor x = t.in("x", kMatrix);
        t->scale(x, t.statistic("factor", {1}));
        t.gives(x);
    });
    rounds_once("multiply", [](T& t) {
        const Tensor x = t.in("x", kMatrix);
        t->multiply(x, t.in("y", kMatrix));
        t.gives(x);
    });
    for (const Reduction reduction :
         {Reduction::sum, Reduction::maximum, Reduction::minimum})
        rounds_once("combine", [&](T& t) {
            const Tensor x = t.in("x", kMatrix);
            t->combine(x, t.in("y", kMatrix), reduction);
            t.gives(x);
        });
    rounds_once("sum", [](T& t) {
        const Tensor sum = t.statistic("sum", {1});
        t->sum(sum, t.in("x", kMatrix), true);
        t.gives(sum);
        t->sum_of_squares(sum, t.in("x", kMatrix));
        t.gives(sum);
    });
    rounds_once("cast", [](T& t) {
        const Tensor x = t.empty(kMatrix);
        t->cast(x, t.statistic("y", kMatrix));
        t.gives(x);
        const Tensor wide = t.statistic("z", kMatrix);
        t->cast(wide, x);
        if (x.dtype() == DType::bf16)
            CHECK(t->download(wide) == t->download(x).as(DType::f32));
    });
    for (const bool transposed : {false, true})
        rounds_once("matmul", [&](T& t) {
            const Shape inner = transposed ? Shape{5, kColumns} : Shape{kColumns, 5};
            const Tensor b = t.in("b", inner), c = t.in("c", {kRows, 5});
            t.gives(t->matmul(t.in("a", kMatrix), b, {.transpose_b = transposed}));
            t->matmul_into(c, t.in("a", kMatrix), b,
                           {.transpose_b = transposed, .accumulate = true});
            t.gives(c);
        });
    rounds_once("rows and columns", [](T& t) {
        const Tensor y = t.in("y", kMatrix), row = t.in("row", {kColumns});
        t->add_bias(y, t.in("bias", {kColumns}));
        t.gives(y);
        t->accumulate_rows(row, t.in("x", kMatrix));
        t.gives(row);
        const Tensor z = t.in("z", kMatrix), products = t.in("p", {kRows});
        t->scale_rows(z, t.in("factors", {kRows}));
        t.gives(z);
        t->row_products(products, t.in("x", kMatrix), t.in("w", kMatrix));
        t.gives(products);
    });
    rounds_once("activations", [](T& t) {
        const Tensor x = t.in("x", kMatrix, -3, 3), dy = t.in("dy", kMatrix);
        t.gives(t->tanh(x));
        t.gives(t->tanh_backward(x, dy));
        for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
            t.gives(t->gelu(x, form));
            t.gives(t->gelu_backward(x, dy, form));
        }
        t.gives(t->swiglu(x));
        t.gives(t->swiglu_backward(x, t.in("half", {kRows, kColumns / 2})));
    });
    rounds_once("norms", [](T& t) {
        const Tensor x = t.in("x", kMatrix), dy = t.in("dy", kMatrix);
        const Tensor weight = t.in("weight", {kColumns}), bias = t.in("bias", {kColumns});
        const Normalized seen{
            {}, t.statistic("mean", {kRows}), t.statistic("rstd", {kRows})};
        const Tensor d_weight = t.in("dw", {kColumns}), d_bias = t.in("db", {kColumns});
        t.gives(t->layer_norm(x, weight, bias));
        t.gives(t->layer_norm_backward_input(dy, x, weight, seen));
        t->layer_norm_backward_weight(d_weight, d_bias, dy, x, seen);
        t.gives(d_weight);
        t.gives(d_bias);
        t.gives(t->rms_norm(x, weight));
        t.gives(t->rms_norm_backward_input(dy, x, weight, seen.rstd));
        t->rms_norm_backward_weight(d_weight, dy, x, seen.rstd);
    });
    rounds_once("attention with weights", [](T& t) {
        const AttentionHeads x = heads_of(t.in("x", {5, 2, 12}));
        const Tensor weights = t.in("weights", {2, 2, 5, 5}, 0, 1);
        t.gives(t->head_products(x.queries, x.keys, 0.3));
        t.gives(t->head_sums(weights, x.values));
        // Columns that no head of the destination has stay as they are.
        const AttentionHeads into = heads_of(t.in("into", {5, 2, 12}));
        t->add_head_sums(into.keys, weights, x.values,
                         {.transpose = true, .factor = 0.3});
        t.gives(into.keys.tensor);
        t->rotate(into.queries, x.keys);
        t.gives(into.queries.tensor);
    });
    rounds_once("attention without weights", [](T& t) {
        const AttentionHeads x = heads_of(t.in("x", {5, 2, 12}));
        const AttentionHeads dx = heads_of(t.in("dx", {5, 2, 12}));
        const OnlineAttention state = t->begin_attention(x.queries);
        t->attend(state, x, {.factor = 0.5, .causal = true});
        t.gives(t->finish_attention(state));
        t.gives(state.y);
        const Tensor dy = t.in("dy", {5, 2, 4});
        t.gives(t->head_row_products({dy, 2, 2, 0}, x.values));
        t->attend_backward(
            dx, x, {dy, t.statistic("lse", {2, 2, 5}), t.statistic("D", {2, 2, 5})},
            {.factor = 0.5, .causal = true});
        t.gives(dx.queries.tensor);
    });
    rounds_once("losses", [](T& t) {
        const Tensor x = t.in("x", kMatrix, -4, 4), y = t.in("y", kMatrix, 0, 1);
        const Tensor targets = t.indices("targets", {kRows}, kColumns);
        t.gives(t->softmax(x));
        t.gives(t->softmax_backward(y, x));
        t.gives(t->cross_entropy(x, targets));
        t.gives(t->cross_entropy_backward(x, targets, 0.3));
        const Tensor maximum = t->row_maximum(x);
        t.gives(maximum);
        const Tensor parts = t->cross_entropy_parts(x, targets, maximum);
        t.gives(parts);
        t.gives(t->cross_entropy_of_parts(maximum, parts));
        t.gives(t->cross_entropy_backward_of_parts(x, targets, maximum, parts, 0.3));
        t.gives(t->squared_error(x, y));
        t.gives(t->squared_error_backward(x, y, 0.3));
    });
    rounds_once("lookups", [](T& t) {
        const Tensor table = t.in("table", {9, kColumns});
        const Tensor ids = t.indices("ids", {kRows}, 9), rows = t.in("rows", kMatrix);
        t.gives(t->embedding(table, ids));
        t->take_rows(rows, table, ids);
        t.gives(rows);
        t->embedding_backward(table, ids, t.in("dy", kMatrix));
        t.gives(table);
        t->add_rows(table, t.in("dz", kMatrix), t.indices("others", {kRows}, 9));
        const Tensor best = t.empty({kRows, 2}),
                     which = t.indices("which", {kRows, 2}, 1);
        t->top_k(best, which, t.in("x", kMatrix), 2);
        t.gives(best);
        t.gives(which);
    });
    rounds_once("sgd", [](T& t) {
        const Tensor p = t.in("p", kMatrix), v = t.in("v", kMatrix);
        t->sgd(p, t.in("g", kMatrix), v, {0.1, 0.9, 0.01});
        t.gives(p);
        t.gives(v);
    });
    rounds_once("adamw, and of a master copy", [](T& t) {
        const Tensor p = t.in("p", kMatrix), g = t.in("g", kMatrix);
        const Tensor m = t.in("m", kMatrix), v = t.in("v", kMatrix, 0, 1);
        t->adamw(p, g, m, v, 3, {});
        for (const Tensor* each : {&p, &m, &v})
            t.gives(*each);
        const Tensor master = t.statistic("master", kMatrix);
        const Tensor mm = t.statistic("mm", kMatrix),
                     vv = t.statistic("vv", kMatrix, 0, 1);
        t->adamw(master, g, mm, vv, 3, {});
        for (const Tensor* each : {&master, &mm, &vv})
            t.gives(*each);
    });
    rounds_once("random numbers", [](T& t) {
        const Tensor x = t.empty(kMatrix);
        t->random_uniform(x, RandomStream(7, "u"), -1, 1);
        t.gives(x);
        t->random_normal(x, RandomStream(7, "n"), 0, 1);
        t.gives(x);
    });
}

TEST_CASE("Memory around operands in bf16 stays as it is", "[device][bf16]") {
    Trial t(DType::bf16);
    const Tensor flat = t.in("flat", {24});
    const HostTensor before = t->download(flat);
    // Two operands in one storage, side by side, and one that overlaps itself.
    t->add(flat.slice(8, 4), flat.slice(12, 4));
    t->add(flat.slice(16, 4), flat.slice(16, 4));
    const HostTensor after = t->download(flat);
    for (int i = 0; i < 24; ++i) {
        const bool is_added = (i >= 8 && i < 12) || (i >= 16 && i < 20);
        const double added = i < 12 ? before.at(i) + before.at(i + 4) : 2 * before.at(i);
        const double expected = float{Bf16(added)};
        CHECK(after.at(i) == (is_added ? expected : before.at(i)));
    }
}

}  // namespace lockstep::test
