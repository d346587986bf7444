#include <algorithm>

#include "tests/device/anywhere.hpp"

// Attention on virtual devices; see test_determinism.cpp.

namespace lockstep::test {

namespace {

/// Attends to `keys`, which are also the values, in blocks of `longest` keys.
OnlineAttention attended(Bench& bench, const Heads& queries, const Heads& keys,
                         const AttentionOptions& options, std::int64_t longest) {
    OnlineAttention state = bench->begin_attention(queries);
    for (std::int64_t first = 0; first < keys.rows(); first += longest) {
        const std::int64_t count = std::min(longest, keys.rows() - first);
        const Heads block{keys.tensor.rows(first, count), keys.heads, keys.width,
                          keys.first};
        AttentionOptions own = options;
        own.keys.first += first;
        bench->attend(state, {queries, block, block}, own);
    }
    bench->finish_attention(state);
    return state;
}

/// Returns the gradients of queries, keys and values, one behind the other. The keys are
/// also the values, and y serves as the gradient of y.
Tensor attention_gradients(Bench& bench, const Heads& queries, const Heads& keys,
                           const AttentionOptions& options) {
    const OnlineAttention state = attended(bench, queries, keys, options, keys.rows());
    const Heads y{state.y, queries.heads, queries.width, 0};
    const std::int64_t of_queries = queries.tensor.elements(),
                       of_keys = keys.tensor.elements();
    Tensor all = bench->zeros({of_queries + 2 * of_keys}, state.y.dtype());
    const auto part = [&](const Heads& like, std::int64_t from) {
        Heads heads = like;
        heads.tensor =
            all.slice(from, like.tensor.elements()).reshaped(like.tensor.shape());
        return heads;
    };
    bench->attend_backward(
        {part(queries, 0), part(keys, of_queries), part(keys, of_queries + of_keys)},
        {queries, keys, keys}, {state.y, state.maximum, bench->head_row_products(y, y)},
        options);
    return all;
}

}  // namespace

TEST_CASE("Heads overlap if they may share an element", "[device][attention]") {
    Bench bench(/*numbers=*/false);
    const Tensor packed = bench->empty({5, 2, 12}, DType::f32);
    const Heads left{packed, 2, 2, 0}, middle{packed, 2, 2, 4}, across{packed, 1, 4, 2};
    CHECK(left.meets(left));
    CHECK_FALSE(left.meets(middle));
    CHECK_FALSE(middle.meets(left));
    CHECK(across.meets(left));
    CHECK(middle.meets(across));
    // First rows of another tensor, then rows further down in the same tensor.
    CHECK_FALSE(left.meets({bench->empty({5, 2, 12}, DType::f32), 2, 2, 0}));
    CHECK_FALSE(left.meets({packed.rows(2, 3), 2, 2, 4}));
    CHECK(left.meets({packed.rows(2, 3), 2, 2, 0}));
    // These rows begin inside rows of the other operand.
    const Tensor flat = bench->empty({160}, DType::f32);
    const Heads here{flat.slice(0, 120).reshaped({5, 2, 12}), 1, 4, 0};
    const auto from = [&](std::int64_t element) {
        return Heads{flat.slice(element, 120).reshaped({5, 2, 12}), 1, 4, 0};
    };
    CHECK(from(9).meets(here));
    CHECK(here.meets(from(9)));
    CHECK_FALSE(from(8).meets(here));
    CHECK_FALSE(here.meets(from(4)));
    CHECK(here.meets(from(3)));
    // If operands have rows of different lengths, meets() assumes that they overlap.
    CHECK(left.meets({packed.reshaped({10, 2, 6}), 1, 2, 4}));
}

TEST_CASE("Online attention has the same bits at any address of its operands",
          "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{2, 6}, Shape{5, 16}, Shape{70, 46}, Shape{3, 500});
    const AttentionOptions options{0.3, GENERATE(false, true)};
    const auto heads = [](const Tensor& a) {
        const std::int64_t columns = a.shape().columns();
        return Heads{a.reshaped({a.shape().matrix_rows(), 1, columns}), 2, columns / 2,
                     0};
    };
    using B = Bench;
    using T = const Tensor;
    same_anywhere(shape, dtype, [&](B& bench, T& a, T& b) {
        return attended(bench, heads(a), heads(b), options, 3).y;
    });
    same_anywhere(shape, dtype, [&](B& bench, T& a, T& b) {
        return attended(bench, heads(a), heads(b), options, 3).maximum;
    });
    same_anywhere(shape, dtype, [&](B& bench, T& a, T& b) {
        return attention_gradients(bench, heads(a), heads(b), options);
    });
    same_anywhere(shape, dtype, [&](B& bench, T& a, T& b) {
        return bench->head_row_products(heads(a), heads(b));
    });
    same_anywhere(shape, dtype, [&](B& bench, T& a, T&) {
        return bench->softmax(a, {true, {TokenOrder::striped, 10, 8, 5}, {}});
    });
}

TEST_CASE("Online attention of a head has the same bits with and without other heads",
          "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t width = GENERATE(3, 16);
    const std::int64_t rows = 70, batches = 2, count = 4;
    const TokenRows tokens{TokenOrder::zigzag, 2, 44, 10};
    const AttentionOptions options{0.4, true, tokens, tokens};
    Bench bench;
    const Tensor x =
        bench->upload(random_values({rows, batches, 5 + count * width}, dtype, "x"));
    const Tensor y = bench->upload(random_values({rows, batches, 2 * width}, dtype, "y"));
    const OnlineAttention together =
        attended(bench, {x, count, width, 5}, {y, 2, width, 0}, options, 23);
    const HostTensor values = bench->download(together.y);
    const HostTensor log_sum_exp = bench->download(together.maximum);
    for (std::int64_t head = 0; head < count; ++head) {
        const OnlineAttention alone =
            attended(bench, {x, 1, width, 5 + head * width},
                     {y, 1, width, head / 2 * width}, options, 23);
        const HostTensor own = bench->download(alone.y);
        const HostTensor own_rows = bench->download(alone.maximum);
        for (std::int64_t i = 0; i < rows * batches; ++i)
            for (std::int64_t d = 0; d < width; ++d)
                REQUIRE(own.at(i * width + d) ==
                        values.at((i * count + head) * width + d));
        for (std::int64_t b = 0; b < batches; ++b)
            for (std::int64_t i = 0; i < rows; ++i)
                REQUIRE(own_rows.at(b * rows + i) ==
                        log_sum_exp.at((b * count + head) * rows + i));
    }
}

}  // namespace lockstep::test
