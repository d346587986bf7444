#include "tests/device/anywhere.hpp"

// Virtual devices promise more than a GPU: the bits are the same at any address.

namespace lockstep::test {

TEST_CASE("Products have the same bits at any address of operands and result",
          "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape extents = GENERATE(Shape{2, 3, 4}, Shape{3, 9, 5}, Shape{4, 4, 4},
                                   Shape{1, 77, 1}, Shape{1, 77, 30}, Shape{30, 77, 1},
                                   Shape{19, 45, 23}, Shape{100, 300, 7});
    const std::int64_t m = extents[0], k = extents[1], n = extents[2];
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            const HostTensor a =
                random_values(transpose_a ? Shape{k, m} : Shape{m, k}, dtype, "a");
            const HostTensor b =
                random_values(transpose_b ? Shape{n, k} : Shape{k, n}, dtype, "b");
            HostTensor aligned;
            for (std::int64_t shift = 0; shift < 8; ++shift) {
                Bench bench;
                const Tensor c =
                    uploaded(bench, HostTensor({m, n}, dtype), shift * 5 % 8);
                bench->matmul_into(c, uploaded(bench, a, shift),
                                   uploaded(bench, b, shift * 3 % 8),
                                   {transpose_a, transpose_b});
                if (shift == 0) aligned = bench->download(c);
                CAPTURE(extents.text(), transpose_a, transpose_b, shift);
                REQUIRE(bench->download(c) == aligned);
            }
        }
    }
}

TEST_CASE("Other operations have the same bits at any address of their operands",
          "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 5}, Shape{3, 16}, Shape{7, 45}, Shape{2, 1000});
    using B = Bench;
    using T = const Tensor;
    same_anywhere(shape, dtype, [](B& bench, T& a, T&) { return bench->tanh(a); });
    same_anywhere(shape, dtype, [](B& bench, T& a, T&) { return bench->gelu(a); });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        return bench->gelu_backward(bench->gelu(a, GeluForm::tanh), b, GeluForm::tanh);
    });
    same_anywhere(shape, dtype,
                  [](B& bench, T& a, T& b) { return bench->gelu_backward(a, b); });
    same_anywhere(shape, dtype, [](B& bench, T& a, T&) { return bench->softmax(a); });
    same_anywhere(shape, dtype,
                  [](B& bench, T& a, T& b) { return bench->softmax_backward(a, b); });
    same_anywhere(shape, dtype,
                  [](B& bench, T& a, T& b) { return bench->squared_error(a, b); });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        return bench->rms_norm(a, b.flat().rows(0, b.shape().columns())).y;
    });
    same_anywhere(shape, dtype, [](B& bench, T& a, T&) { return bench->row_maximum(a); });
    same_anywhere(shape, dtype, [](B& bench, T& a, T&) {
        const Tensor targets = bench->zeros({a.shape().matrix_rows()}, DType::i32);
        return bench->cross_entropy_parts(a, targets, bench->row_maximum(a));
    });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        bench->add(a, b, 0.3);
        return a;
    });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        bench->scale(a, b.flat().rows(0, 1));
        return a;
    });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        bench->scale_rows(a, b.flat().rows(0, a.shape().matrix_rows()));
        bench->row_products(b.flat().rows(0, a.shape().matrix_rows()), a, a);
        return b;
    });
    same_anywhere(shape, dtype, [](B& bench, T& a, T&) {
        const Shape& extents = a.shape();
        const Tensor tall =
            a.reshaped({std::max(extents.matrix_rows(), extents.columns()),
                        std::min(extents.matrix_rows(), extents.columns())});
        bench->orthonormalize(tall);
        return a;
    });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        bench->sum(b.flat().rows(0, 1), a);
        return b;
    });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        bench->accumulate_rows(b.flat().rows(0, b.shape().columns()), a);
        return b;
    });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        const Tensor gain = b.flat().rows(0, b.shape().columns());
        return bench->layer_norm(a, gain, gain).y;
    });
}

TEST_CASE("Results of gates and heads have the same bits at any address of operands",
          "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{2, 6}, Shape{4, 16}, Shape{8, 46}, Shape{2, 1000});
    const auto heads = [](const Tensor& a) {
        const std::int64_t columns = a.shape().columns();
        return Heads{a.reshaped({a.shape().matrix_rows(), 1, columns}), 2, columns / 2,
                     0};
    };
    using B = Bench;
    using T = const Tensor;
    same_anywhere(shape, dtype, [](B& bench, T& a, T&) { return bench->swiglu(a); });
    same_anywhere(shape, dtype, [](B& bench, T& a, T& b) {
        const std::int64_t rows = a.shape().matrix_rows();
        return bench->swiglu_backward(
            a, b.rows(0, rows / 2).reshaped({rows, a.shape().columns() / 2}));
    });
    same_anywhere(shape, dtype, [&](B& bench, T& a, T& b) {
        return bench->head_products(heads(a), heads(b), 0.7);
    });
    same_anywhere(shape, dtype, [&](B& bench, T& a, T& b) {
        const auto whole = [&](const Tensor& x) {
            return Heads{heads(x).tensor, 1, x.shape().columns()};
        };
        bench->rotate(whole(b), whole(a));
        return b;
    });
    same_anywhere(shape, dtype, [&](B& bench, T& a, T& b) {
        return bench->head_sums(bench->head_products(heads(a), heads(a)), heads(b));
    });
}

TEST_CASE("A head has the same bits by itself, with other heads, and in a wider tensor",
          "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t width = GENERATE(3, 16);
    const std::int64_t rows = 9, batches = 2, count = 3;
    Bench bench;
    const Shape shape{rows, batches, 5 + count * width};
    const Tensor x = bench->upload(random_values(shape, dtype, "x"));
    const Tensor y = bench->upload(random_values(shape, dtype, "y"));
    const Tensor together =
        bench->head_products({x, count, width, 5}, {y, count, width, 5}, 0.3);
    const HostTensor products = bench->download(together);
    const HostTensor sums = bench->download(bench->head_sums(together, {y, 3, width, 5}));
    for (std::int64_t head = 0; head < count; ++head) {
        const Tensor own_x = bench->empty({rows, batches, width}, dtype);
        const Tensor own_y = bench->empty({rows, batches, width}, dtype);
        bench->copy_columns(own_x, 0, x, 5 + head * width, width);
        bench->copy_columns(own_y, 0, y, 5 + head * width, width);
        const Tensor alone =
            bench->head_products({own_x, 1, width}, {own_y, 1, width}, 0.3);
        const HostTensor own_products = bench->download(alone);
        const HostTensor own_sums =
            bench->download(bench->head_sums(alone, {own_y, 1, width}));
        for (std::int64_t b = 0; b < batches; ++b)
            for (std::int64_t i = 0; i < rows * rows; ++i)
                REQUIRE(own_products.at(b * rows * rows + i) ==
                        products.at((b * count + head) * rows * rows + i));
        for (std::int64_t i = 0; i < rows * batches; ++i)
            for (std::int64_t d = 0; d < width; ++d)
                REQUIRE(own_sums.at(i * width + d) ==
                        sums.at((i * count + head) * width + d));
    }
}

TEST_CASE("A causal softmax has the bits of a softmax over the keys that are seen",
          "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t rows = 37;
    Bench bench;
    const Tensor x = bench->upload(random_values({rows, rows}, dtype, "x", -9, 9));
    const HostTensor y = bench->download(bench->softmax(x, {true}));
    for (std::int64_t i = 0; i < rows; ++i) {
        const HostTensor seen =
            bench->download(bench->softmax(x.flat().slice(i * rows, i + 1)));
        for (std::int64_t j = 0; j <= i; ++j)
            REQUIRE(y.at(i * rows + j) == seen.at(j));
    }
}

TEST_CASE(
    "An element's value does not depend on its place, so a shard has the whole's bits",
    "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor x = random_values({101}, dtype, "x", -4, 4);
    const Tensor whole = bench->upload(x);
    const HostTensor tanh = bench->download(bench->tanh(whole));
    const HostTensor gelu = bench->download(bench->gelu(whole));
    for (const std::int64_t begin : {1, 13, 50, 96}) {
        const Tensor shard = whole.rows(begin, 5);
        REQUIRE(bench->download(bench->tanh(shard)) == tanh.rows(begin, 5));
        REQUIRE(bench->download(bench->gelu(shard)) == gelu.rows(begin, 5));
    }
    // A shard has five of the 50 gates and the five columns of these gates.
    const Tensor gated = whole.rows(0, 100).reshaped({1, 100});
    const Tensor shard = bench->empty({1, 10}, dtype);
    const HostTensor swiglu = bench->download(bench->swiglu(gated).flat());
    for (const std::int64_t begin : {0, 1, 13, 45}) {
        bench->copy_columns(shard, 0, gated, begin, 5);
        bench->copy_columns(shard, 5, gated, 50 + begin, 5);
        REQUIRE(bench->download(bench->swiglu(shard).flat()) == swiglu.rows(begin, 5));
    }
}

}  // namespace lockstep::test
