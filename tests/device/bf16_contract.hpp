#pragma once

// Checks an operation on bf16: the result must be that of f32 on the same numbers,
// rounded once.

#include "tests/device/support.hpp"

namespace lockstep::test {

/// One run of an operation in one type: its named inputs and its results.
class Trial {
  public:
    explicit Trial(DType dtype) : dtype_(dtype) {}

    Device* operator->() const { return bench_.device.get(); }

    /// Returns numbers that bf16 holds exactly; the same name gives the same numbers.
    Tensor in(const std::string& name, Shape shape, double low = -1, double high = 1) {
        const HostTensor values = random_values(shape, DType::bf16, name, low, high);
        return bench_->upload(values.as(dtype_));
    }
    /// Returns random numbers of the type that rows' statistics have.
    Tensor statistic(const std::string& name, Shape shape, double low = -1,
                     double high = 1) {
        return bench_->upload(random_values(shape, DType::f32, name, low, high));
    }
    Tensor indices(const std::string& name, Shape shape, std::int64_t bound) {
        return bench_->upload(random_indices(shape, bound, name));
    }
    Tensor empty(Shape shape) { return bench_->empty(shape, dtype_); }

    /// Keeps a result of the trial's own type.
    void gives(const Tensor& result) { gives(result, dtype_); }
    /// Keeps a result that is f32 in both trials, such as a statistic or a new master.
    void gives_f32(const Tensor& result) { gives(result, DType::f32); }
    void gives_indices(const Tensor& result) { gives(result, DType::i32); }
    void gives(const Normalized& results) {
        gives(results.y);
        for (const Tensor* statistic : {&results.mean, &results.rstd})
            if (*statistic) gives_f32(*statistic);
    }
    const std::vector<HostTensor>& results() const { return results_; }

  private:
    void gives(const Tensor& result, DType dtype) {
        CHECK(result.dtype() == dtype);
        results_.push_back(bench_->download(result));
    }

    DType dtype_;
    Bench bench_;
    std::vector<HostTensor> results_;
};

/// Results in bf16 equal the rounded results in f32; statistics equal those in f32. A
/// backend may add up products of bf16 in another order. Then each result is a sum of up
/// to `terms` numbers of at most 1, and its error is below terms^2 epsilon of f32. So the
/// rounded result may be off by another half step of bf16.
template <typename Program>
void rounds_once(const char* name, Program&& program, double terms = 0) {
    CAPTURE(name);
    Trial narrow(DType::bf16), wide(DType::f32);
    program(narrow);
    program(wide);
    REQUIRE(narrow.results().size() == wide.results().size());
    REQUIRE_FALSE(narrow.results().empty());
    for (std::size_t i = 0; i < wide.results().size(); ++i) {
        const HostTensor& got = narrow.results()[i];
        const HostTensor& expected = wide.results()[i];
        if (terms == 0 || kProductsOfBf16InOrder) {
            CHECK(got == expected.as(got.dtype()));
            continue;
        }
        const double off = 2 * terms * terms * epsilon_of(DType::f32);
        for (std::int64_t at = 0; at < got.elements(); ++at) {
            const double value = expected.at(at);
            const double half_step = Bf16::kEpsilon / 2 * (std::abs(value) + off);
            CHECK(std::abs(got.at(at) - value) <= half_step + off);
        }
    }
}

inline constexpr std::int64_t kRows = 6;
inline constexpr std::int64_t kColumns = 8;
inline const Shape kMatrix{kRows, kColumns};

inline AttentionHeads heads_of(const Tensor& packed) {
    return {{packed, 2, 2, 0}, {packed, 2, 2, 4}, {packed, 2, 2, 8}};
}

TEST_CASE("Every operation on bf16 is f32's, rounded once", kTags) {
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
        t.gives_f32(sum);
        t->sum_of_squares(sum, t.in("x", kMatrix));
        t.gives_f32(sum);
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
        rounds_once(
            "matmul",
            [&](T& t) {
                const Shape inner = transposed ? Shape{5, kColumns} : Shape{kColumns, 5};
                const Tensor b = t.in("b", inner), c = t.in("c", {kRows, 5});
                t.gives(t->matmul(t.in("a", kMatrix), b, {.transpose_b = transposed}));
                t->matmul_into(c, t.in("a", kMatrix), b,
                               {.transpose_b = transposed, .accumulate = true});
                t.gives(c);
            },
            kColumns + 1);
    rounds_once(
        "grouped_matmul",
        [](T& t) {
            const Tensor a = t.in("a", kMatrix), y = t.in("y", {kRows, 5});
            const Tensor b = t.in("b", {3 * kColumns, 5});
            t->grouped_matmul(y, a, b, {2, 0, 4}, {.accumulate = true});
            t.gives(y);
            t->grouped_matmul(b, a, t.in("dy", {kRows, 5}), {2, 0, 4},
                              {.transpose_a = true});
            t.gives(b);
        },
        kColumns + 1);
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
    rounds_once("orthonormalize", [](T& t) {
        const Tensor x = t.in("x", {kColumns, kRows});
        t->orthonormalize(x);
        t.gives(x);
    });
    rounds_once("activations", [](T& t) {
        const Tensor x = t.in("x", kMatrix, -3, 3), dy = t.in("dy", kMatrix);
        t.gives(t->tanh(x));
        t.gives(t->tanh_backward(x, dy));
        t.gives(t->sigmoid(x));
        t.gives(t->sigmoid_backward(x, dy));
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
        t.gives(d_weight);
    });
    rounds_once("batch norm", [](T& t) {
        const Tensor x = t.in("x", kMatrix), dy = t.in("dy", kMatrix);
        const Tensor weight = t.in("weight", {kColumns}), bias = t.in("bias", {kColumns});
        const Tensor sums = t->batch_sums(x), squares = t->batch_squares(x, sums);
        const Normalized moments = t->batch_moments(sums, squares);
        const Tensor both = t->batch_norm_backward_sums(dy, x, moments);
        for (const Tensor& statistic : {sums, squares, moments.mean, moments.rstd, both})
            t.gives_f32(statistic);
        t.gives(t->batch_norm(x, moments, weight, bias));
        t.gives(t->batch_norm_backward_input(dy, x, weight, moments, both,
                                             sums.slice(kColumns, 1)));
    });
    rounds_once("dropout", [](T& t) {
        t.gives(t->dropout(t.in("x", kMatrix), 0.3, RandomStream(3, "dropout"), {5, 11}));
    });
    rounds_once(
        "attention with weights",
        [](T& t) {
            const AttentionHeads x = heads_of(t.in("x", {5, 2, 12}));
            const Tensor weights = t.in("weights", {2, 2, 5, 5}, 0, 1);
            t.gives(t->head_products(x.queries, x.keys, 0.3));
            t.gives(t->head_sums(weights, x.values));
            // Columns that belong to no head of the destination stay as they are.
            const AttentionHeads into = heads_of(t.in("into", {5, 2, 12}));
            t->add_head_sums(into.keys, weights, x.values,
                             {.transpose = true, .factor = 0.3});
            t.gives(into.keys.tensor);
        },
        5 + 1);
    rounds_once(
        "heads that share keys",
        [](T& t) {
            const Heads y{t.in("y", {5, 2, 4}), 1, 4, 0};
            const Heads into{t.in("into", {5, 2, 4}), 1, 4, 0};
            const Tensor weights = t.in("weights", {2, 3, 5, 5}, 0, 1);
            t.gives(t->head_sums(weights, y));
            t->add_head_sums(into, weights, {t.in("z", {5, 2, 12}), 3, 4, 0},
                             {.transpose = true});
            t.gives(into.tensor);
        },
        3 * 5 + 1);
    rounds_once("rotate", [](T& t) {
        const Heads x{t.in("x", {5, 2, 12}), 2, 4, 4};
        const Heads into{t.in("into", {5, 2, 12}), 2, 4, 0};
        t->rotate(into, x);
        t.gives(into.tensor);
        t->rotate(x, x);
        t.gives(x.tensor);
    });
    rounds_once("attention over pages", [](T& t) {
        const Tensor pages = t.in("pages", {3, 4, 9});
        const auto tokens = std::make_shared<const PagedTokens>(
            PagedTokens{{{3, 3, {2, 0}}, {0, 2, {1}}}});
        t->store_pages(pages, t.in("x", {5, 1, 20}), 8, tokens);
        t.gives(pages);
        const Tensor q = t.in("q", {5, 1, 20});
        t.gives(t->attend_pages({{q, 2, 6, 1}, {pages, 1, 6, 0}, {pages, 1, 3, 6}},
                                tokens, 0.3));
        t.gives(t->attend_pages({{q, 2, 6, 1}, {pages, 1, 6, 0}, {pages, 1, 3, 6}},
                                {{q, 2, 2, 14}, {pages, 1, 2, 7}}, tokens, 0.3));
    });
    rounds_once("attention without weights", [](T& t) {
        const AttentionHeads x = heads_of(t.in("x", {5, 2, 12}));
        const AttentionHeads dx = heads_of(t.in("dx", {5, 2, 12}));
        const OnlineAttention state = t->begin_attention(x.queries);
        t->attend(state, x, {.factor = 0.5, .causal = true});
        t.gives_f32(t->finish_attention(state));
        t.gives_f32(state.y);
        const Tensor dy = t.in("dy", {5, 2, 4});
        t.gives_f32(t->head_row_products({dy, 2, 2, 0}, x.values));
        const OnlineAttention kept{t.in("y", {5, 2, 4}), t.in("maximum", {2, 2, 5}),
                                   t.in("sum", {2, 2, 5}, 0, 2)};
        t.gives(t->finish_attention(kept));
        t.gives(kept.y);
        t->attend_backward(
            dx, x, {dy, t.statistic("lse", {2, 2, 5}), t.statistic("D", {2, 2, 5})},
            {.factor = 0.5, .causal = true});
        t.gives(dx.queries.tensor);
    });
    rounds_once("gradients of attention in one place", [](T& t) {
        const auto heads = [&](const char* name) {
            return Heads{t.in(name, {5, 2, 64}), 1, 64, 0};
        };
        const Heads x = heads("x");
        for (const int apart : {-1, 0, 1, 2}) {
            const Heads all = heads("dx");
            const auto part = [&](int which) {
                return which == apart ? heads("own") : all;
            };
            const AttentionHeads gradients{part(0), part(1), part(2)};
            t->attend_backward(gradients, {x, x, x},
                               {t.in("dy", {5, 2, 64}), t.statistic("lse", {2, 1, 5}),
                                t.statistic("D", {2, 1, 5})},
                               {.factor = 0.1, .causal = true});
            for (const Heads& gradient :
                 {gradients.queries, gradients.keys, gradients.values})
                t.gives(gradient.tensor);
        }
    });
    rounds_once("losses", [](T& t) {
        const Tensor x = t.in("x", kMatrix, -4, 4), y = t.in("y", kMatrix, 0, 1);
        const Tensor targets = t.indices("targets", {kRows}, kColumns);
        t.gives(t->softmax(x));
        t.gives(t->softmax_backward(y, x));
        t.gives_f32(t->cross_entropy(x, targets));
        t.gives(t->cross_entropy_backward(x, targets, 0.3));
        t.gives_f32(t->log_sum_exp(x));
        const Tensor weights = t.in("weights", kMatrix, 0.1, 1);
        t.gives(t->normalize_rows(weights));
        t.gives(t->normalize_rows_backward(weights, y));
        const Tensor maximum = t->row_maximum(x);
        t.gives_f32(maximum);
        const Tensor parts = t->cross_entropy_parts(x, targets, maximum);
        t.gives_f32(parts);
        t.gives_f32(t->cross_entropy_of_parts(maximum, parts));
        t.gives(t->cross_entropy_of_parts(t.in("maximum", {kRows}),
                                          t.in("parts", {2, kRows}, 1, 2)));
        t.gives(t->cross_entropy_backward_of_parts(x, targets, maximum, parts, 0.3));
        t.gives_f32(t->squared_error(x, y));
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
        const Tensor sums = t.in("sums", {9, kColumns});
        t->add_rows(sums, t.in("dz", kMatrix), t.indices("others", {kRows}, 9));
        t.gives(sums);
        const Tensor some = t.in("some", {kRows, 3}), in = t.in("in", kMatrix);
        const Tensor columns = t.indices("columns", {kRows, 3}, kColumns);
        t->add_columns(in, some, columns);
        t.gives(in);
        t->take_columns(some, in, columns);
        t.gives(some);
        const Tensor best = t.empty({kRows, 2}),
                     which = t.indices("which", {kRows, 2}, 1);
        t->top_k(best, which, t.in("x", kMatrix), 2);
        t.gives(best);
        t.gives_indices(which);
    });
    rounds_once("sgd, also of a master copy", [](T& t) {
        const Tensor g = t.in("g", kMatrix);
        for (const double momentum : {0.0, 0.9})
            for (const bool is_master : {false, true}) {
                const auto in = [&](const char* name) {
                    return is_master ? t.statistic(name, kMatrix) : t.in(name, kMatrix);
                };
                const Tensor p = in("p"), v = in("v");
                t->sgd(p, g, v, {0.1, momentum, 0.01});
                for (const Tensor& each : {p, v})
                    is_master ? t.gives_f32(each) : t.gives(each);
            }
    });
    rounds_once("clip_factor", [](T& t) {
        const Tensor factor = t.empty({1});
        t->clip_factor(factor, t.in("squares", {1}, 1, 2), 0.7);
        t.gives(factor);
    });
    rounds_once("adamw, also of a master copy", [](T& t) {
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
            t.gives_f32(*each);
    });
    rounds_once("random numbers", [](T& t) {
        const Tensor x = t.empty(kMatrix);
        t->random_uniform(x, RandomStream(7, "u"), -1, 1);
        t.gives(x);
        t->random_normal(x, RandomStream(7, "n"), 0, 1);
        t.gives(x);
    });
}

TEST_CASE("Memory around operands in bf16 stays as it is", kTags) {
    Trial t(DType::bf16);
    const Tensor flat = t.in("flat", {24});
    const HostTensor before = t->download(flat);
    // Two operands side by side in one storage; then one operand as source and result.
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
