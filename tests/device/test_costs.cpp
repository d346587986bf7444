#include "src/core/no_count.hpp"
#include "tests/device/support.hpp"
#include "tests/refusal.hpp"

// All backends must tell the monitor the same, also if they compute only shapes.

// Products of small literals do not overflow.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)

namespace lockstep::test {

namespace {

/// The last operation that the monitor saw.
const PlainMonitor::Operation& last(const Bench& bench) {
    return bench.monitor.operations.back();
}

void costs(const Bench& bench, const std::string& name, std::int64_t flops,
           std::int64_t bytes) {
    CAPTURE(name);
    REQUIRE(last(bench).name == name);
    REQUIRE(last(bench).flops == flops);
    REQUIRE(last(bench).bytes == bytes);
}

}  // namespace

TEST_CASE("Operations cost their flops and bytes, also if only shapes are computed",
          "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    Bench bench(numbers);
    const Tensor x = bench->zeros({4, 5}, dtype);
    costs(bench, "fill", 0, 20 * e);
    const Tensor y = bench->zeros({4, 5}, dtype);
    const Tensor w = bench->zeros({3, 5}, dtype);
    const Tensor five = bench->zeros({5}, dtype);
    const Tensor one = bench->zeros({1}, dtype);

    const Tensor product = bench->matmul(x, w, {.transpose_b = true});
    costs(bench, "matmul", 2 * 4 * 5 * 3, (20 + 15 + 12) * e);
    REQUIRE(last(bench).dtype == dtype);
    REQUIRE(last(bench).reads == std::vector{x.storage(), w.storage()});
    REQUIRE(last(bench).writes == std::vector{product.storage()});
    bench->matmul_into(product, x, w, {.transpose_b = true, .accumulate = true});
    costs(bench, "matmul", 2 * 4 * 5 * 3, (20 + 15 + 12 + 12) * e);
    REQUIRE(last(bench).reads ==
            std::vector{x.storage(), w.storage(), product.storage()});

    bench->copy(x, y);
    costs(bench, "copy", 0, 40 * e);
    bench->copy_columns(x, 1, y, 0, 2);
    costs(bench, "copy_columns", 0, 2 * 4 * 2 * e);
    bench->add(x, y);
    costs(bench, "add", 40, 60 * e);
    const int line = __LINE__ - 2;
    REQUIRE(last(bench).at.line == line);
    bench->scale(x, 2);
    costs(bench, "scale", 20, 40 * e);
    bench->scale(x, one);
    costs(bench, "scale_by_tensor", 20, 41 * e);
    bench->sum(one, x);
    costs(bench, "sum", 20, 21 * e);
    bench->sum(one, x, true);
    costs(bench, "sum", 20, 22 * e);
    const Tensor wide = bench->zeros({4, 5}, DType::f64);
    bench->cast(wide, x);
    costs(bench, "cast", 0, 20 * (e + 8));
    REQUIRE(last(bench).dtype == DType::f64);
    bench->sum_of_squares(one, x);
    costs(bench, "sum_of_squares", 40, 22 * e);
    bench->clip_factor(one, one, 1);
    costs(bench, "clip_factor", 4, 2 * e);
    bench->add_bias(x, five);
    costs(bench, "add_bias", 20, 45 * e);
    bench->accumulate_rows(five, x);
    costs(bench, "accumulate_rows", 20, 30 * e);
    const Tensor tall = bench->zeros({7, 3}, dtype);
    bench->orthonormalize(tall);
    costs(bench, "orthonormalize", 7 * 3 * 13, 2 * 21 * e);
    REQUIRE(last(bench).writes == std::vector{tall.storage()});
    bench->tanh(x);
    costs(bench, "tanh", 8 * 20, 40 * e);
    bench->gelu_backward(x, y);
    costs(bench, "gelu_backward", 24 * 20, 60 * e);
    bench->gelu(x, GeluForm::tanh);
    costs(bench, "gelu", 16 * 20, 40 * e);
    bench->gelu_backward(x, y, GeluForm::tanh);
    costs(bench, "gelu_backward", 26 * 20, 60 * e);
    const auto saved = bench->layer_norm(x, five, five);
    costs(bench, "layer_norm", 8 * 20, (20 + 5 + 5 + 20 + 4 + 4) * e);
    bench->softmax(x);
    costs(bench, "softmax", 12 * 20, 40 * e);
    bench->sgd(x, y, {}, {});
    costs(bench, "sgd", 2 * 20, 60 * e);
    const Tensor state = bench->zeros({2, 4, 5}, dtype);
    const Tensor first = state.rows(0, 1), second = state.rows(1, 1);
    bench->sgd(x, y, first.reshaped({4, 5}), {0.1, 0.9, 0.1});
    costs(bench, "sgd", 6 * 20, 100 * e);
    bench->adamw(x, y, first.reshaped({4, 5}), second.reshaped({4, 5}), 1, {});
    costs(bench, "adamw", 14 * 20, 140 * e);
    bench->random_normal(x, {}, 0, 1);
    costs(bench, "random_normal", 0, 20 * e);
}

TEST_CASE("Gates and root mean square norms cost the right flops and bytes",
          "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    Bench bench(numbers);
    const Tensor x = bench->zeros({4, 6}, dtype);
    const Tensor six = bench->zeros({6}, dtype);
    const Tensor y = bench->swiglu(x);
    costs(bench, "swiglu", 12 * 12, (24 + 12) * e);
    bench->swiglu_backward(x, y);
    costs(bench, "swiglu_backward", 17 * 12, (24 + 12 + 24) * e);
    const Normalized saved = bench->rms_norm(x, six);
    costs(bench, "rms_norm", 4 * 24, (24 + 6 + 24 + 4) * e);
    bench->rms_norm_backward_input(x, saved.y, six, saved.rstd);
    costs(bench, "rms_norm_backward_input", 7 * 24, (24 + 24 + 6 + 4 + 24) * e);
    bench->rms_norm_backward_weight(six, saved.y, x, saved.rstd);
    costs(bench, "rms_norm_backward_weight", 3 * 24, (24 + 24 + 4 + 6 + 6) * e);
    bench->random_uniform(x, {}, 0, 1, {7, 100});
    costs(bench, "random_uniform", 0, 24 * e);
    bench->dropout(x, 0.5, {}, {7, 100});
    costs(bench, "dropout", 24, 2 * 24 * e);
}

TEST_CASE("Batch norm costs its flops and its bytes, step by step", "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    Bench bench(numbers);
    const Tensor x = bench->zeros({4, 6}, dtype);
    const Tensor six = bench->zeros({6}, dtype);
    const Tensor sums = bench->batch_sums(x);
    costs(bench, "batch_sums", 24, (24 + 7) * e);
    const Tensor squares = bench->batch_squares(x, sums);
    costs(bench, "batch_squares", 3 * 24, (24 + 7 + 6) * e);
    const Normalized moments = bench->batch_moments(sums, squares);
    costs(bench, "batch_moments", 5 * 6, (7 + 6 + 6 + 6) * e);
    const RunningMoments running{bench->zeros({6}, dtype), bench->zeros({6}, dtype)};
    bench->batch_moments(sums, squares, running);
    costs(bench, "batch_moments", 12 * 6, (7 + 6 + 2 * 6 + 2 * 6 + 6 + 6) * e);
    bench->batch_norm(x, moments, six, six);
    costs(bench, "batch_norm", 4 * 24, (24 + 4 * 6 + 24) * e);
    const Tensor both = bench->batch_norm_backward_sums(x, x, moments);
    costs(bench, "batch_norm_backward_sums", 5 * 24, (48 + 12 + 12) * e);
    bench->batch_norm_backward_input(x, x, six, moments, both, sums.slice(6, 1));
    costs(bench, "batch_norm_backward_input", 6 * 24, (48 + 18 + 12 + 1 + 24) * e);
}

TEST_CASE("Heads cost their own columns, not the tensor", "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    const std::int64_t m = 5, n = 7, batches = 2, heads = 3, width = 4;
    Bench bench(numbers);
    const Heads x{bench->zeros({m, batches, 20}, dtype), heads, width, 8};
    const Heads y{bench->zeros({n, batches, 100}, dtype), heads, width, 1};
    const std::int64_t all = batches * heads;
    const Tensor weights = bench->head_products(x, y, 0.5);
    costs(bench, "head_products", 2 * all * m * n * width,
          all * (m * width + n * width + m * n) * e);
    REQUIRE(last(bench).reads == std::vector{x.tensor.storage(), y.tensor.storage()});
    REQUIRE(last(bench).writes == std::vector{weights.storage()});
    bench->head_sums(weights, y);
    costs(bench, "head_sums", 2 * all * m * n * width,
          all * (m * n + n * width + m * width) * e);
    bench->add_head_sums(x, weights, y);
    costs(bench, "add_head_sums", 2 * all * m * n * width,
          all * (m * n + n * width + 2 * m * width) * e);
    REQUIRE(last(bench).reads ==
            std::vector{weights.storage(), y.tensor.storage(), x.tensor.storage()});
    bench->add_head_sums(y, weights, x, {true, 2});
    costs(bench, "add_head_sums", 2 * all * m * n * width,
          all * (m * n + m * width + 2 * n * width) * e);
    bench->softmax(weights, {true});
    costs(bench, "softmax", 12 * all * m * n, 2 * all * m * n * e);
}

TEST_CASE("Rotary positions cost their heads' columns, and angles once a row",
          "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    Bench bench(numbers);
    const Heads x{bench->zeros({5, 2, 20}, dtype), 3, 4, 8};
    const Heads y{bench->zeros({5, 2, 100}, dtype), 3, 4, 1};
    bench->rotate(y, x);
    costs(bench, "rotate", 5 * 2 * (3 * 12 + 8 * 4), 2 * 5 * 2 * 12 * e);
    REQUIRE(last(bench).reads == std::vector{x.tensor.storage()});
    REQUIRE(last(bench).writes == std::vector{y.tensor.storage()});
    bench->rotate(x, x, {}, {500, true});
    costs(bench, "rotate", 5 * 2 * (3 * 12 + 8 * 4), 2 * 5 * 2 * 12 * e);
    bench->rotate_at(x, x, bench->zeros({10}, DType::i32));
    costs(bench, "rotate", 5 * 2 * (3 * 12 + 8 * 4), 2 * 5 * 2 * 12 * e + 10 * 4);
}

TEST_CASE("Attention over pages costs the pairs that rows see, and each key once",
          "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    Bench bench(numbers);
    const Tensor pages = bench->zeros({9, 4, 15}, dtype);
    const Tensor x = bench->zeros({6, 1, 27}, dtype);
    // Three rows with tokens 5, 6, 7; two rows with 0 and 1; no row; one row with 3.
    const auto tokens = std::make_shared<const PagedTokens>(
        PagedTokens{{{5, 3, {1, 0}}, {0, 2, {8}}, {2, 0, {}}, {3, 1, {4}}}});
    REQUIRE(tokens->rows() == 6);
    REQUIRE(tokens->keys() == 8 + 2 + 4);
    REQUIRE(tokens->pairs() == 6 + 7 + 8 + 1 + 2 + 4);
    bench->store_pages(pages, x, 12, tokens);
    costs(bench, "store_pages", 0, 2 * 6 * 15 * e);
    REQUIRE(last(bench).reads == std::vector{x.storage()});
    REQUIRE(last(bench).writes == std::vector{pages.storage()});
    const Heads queries{x, 4, 3, 0}, keys{pages, 2, 3, 0}, values{pages, 2, 4, 6};
    const Tensor y = bench->attend_pages({queries, keys, values}, tokens, 0.5);
    REQUIRE(y.shape() == Shape{6, 1, 16});
    costs(bench, "attend_pages", 28 * 4 * (2 * 3 + 2 * 4 + 12),
          (6 * 12 + 14 * 2 * 3 + 14 * 2 * 4 + 6 * 16) * e);
    // If the values are columns of the keys, they are read with the keys. The scores'
    // second term has its own queries and keys.
    bench->attend_pages({{x, 4, 4, 0}, {pages, 1, 4, 0}, {pages, 1, 3, 0}},
                        {{x, 4, 2, 16}, {pages, 1, 2, 4}}, tokens);
    costs(bench, "attend_pages", 28 * 4 * (2 * 4 + 2 * 2 + 2 * 3 + 12),
          (6 * 16 + 6 * 8 + 14 * 4 + 14 * 2 + 6 * 12) * e);
    const Tensor matrices = bench->zeros({12, 5}, dtype);
    REQUIRE(bench->head_matmul({x, 4, 3, 2}, matrices).shape() == Shape{6, 1, 20});
    costs(bench, "head_matmul", 2 * 6 * 4 * 3 * 5, (6 * 12 + 60 + 6 * 20) * e);
    bench->head_matmul({x, 4, 5, 2}, matrices, {.transpose_b = true});
    costs(bench, "head_matmul", 2 * 6 * 4 * 3 * 5, (6 * 20 + 60 + 6 * 12) * e);
}

TEST_CASE("Fewer heads of keys cost fewer bytes, but the products of all heads",
          "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    const std::int64_t m = 5, n = 7, batches = 2, width = 4, all = batches * 6,
                       few = batches * 2;
    Bench bench(numbers);
    const Heads x{bench->zeros({m, batches, 30}, dtype), 6, width, 5};
    const Heads y{bench->zeros({n, batches, 100}, dtype), 2, width, 1};
    const Tensor weights = bench->head_products(x, y);
    costs(bench, "head_products", 2 * all * m * n * width,
          (all * m * width + few * n * width + all * m * n) * e);
    bench->head_sums(weights, y);
    costs(bench, "head_sums", 2 * all * m * n * width,
          (all * m * n + few * n * width + all * m * width) * e);
    bench->add_head_sums(x, weights, y);
    costs(bench, "add_head_sums", 2 * all * m * n * width,
          (all * m * n + few * n * width + 2 * all * m * width) * e);
    bench->add_head_sums(y, weights, x, {true, 1});
    costs(bench, "add_head_sums", 2 * all * m * n * width,
          (all * m * n + all * m * width + 2 * few * n * width) * e);
}

TEST_CASE("Online attention costs the pairs that are seen, and its heads' columns",
          "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    const std::int64_t m = 6, n = 12, batches = 2, width = 4, all = batches * 4,
                       few = batches * 2;
    Bench bench(numbers);
    const AttentionHeads heads{{bench->zeros({m, batches, 20}, dtype), 4, width, 3},
                               {bench->zeros({n, batches, 50}, dtype), 2, width, 1},
                               {bench->zeros({n, batches, 8}, dtype), 2, width, 0}};
    const OnlineAttention state = bench->begin_attention(heads.queries);
    costs(bench, "fill", 0, all * m * e);
    REQUIRE(bench.monitor.operations.size() == 3 + 3);
    // Two ranks share twelve tokens in zigzag order: each has 39 causal pairs.
    const TokenRows zigzag{TokenOrder::zigzag, 2, 6, 0};
    const AttentionOptions causal{1, true, zigzag.of_rank(1), zigzag};
    const std::int64_t of_queries = all * m * width * e, of_rows = all * m * e;
    const std::int64_t views = of_queries + 2 * few * n * width * e;
    for (const auto& [options, pairs] :
         {std::pair<AttentionOptions, std::int64_t>{{}, m * n}, {causal, 39}}) {
        bench->attend(state, heads, options);
        costs(bench, "attend", all * pairs * (4 * width + 12),
              views + 2 * (of_queries + 2 * of_rows));
        REQUIRE(last(bench).dtype == dtype);
        REQUIRE(last(bench).writes == std::vector{state.y.storage(),
                                                  state.maximum.storage(),
                                                  state.sum.storage()});
        const AttentionBackward backward{bench->zeros({m, batches, 16}, dtype),
                                         bench->zeros({batches, 4, m}, dtype),
                                         bench->zeros({batches, 4, m}, dtype)};
        const AttentionHeads gradients{
            {bench->zeros({m, batches, 40}, dtype), 4, width, 24},
            {bench->zeros({n, batches, 9}, dtype), 2, width, 1},
            {bench->zeros({n, batches, 8}, dtype), 2, width, 0}};
        bench->attend_backward(gradients, heads, backward, options);
        costs(bench, "attend_backward", all * pairs * (10 * width + 13),
              3 * views + of_queries + 2 * of_rows);
        REQUIRE(last(bench).writes == std::vector{gradients.queries.tensor.storage(),
                                                  gradients.keys.tensor.storage(),
                                                  gradients.values.tensor.storage()});
        REQUIRE(last(bench).reads.size() == 9);
        // If no query sees a key, nothing is run.
        const std::size_t operations = bench.monitor.operations.size();
        AttentionOptions none{1, true};
        none.keys.first = m;
        bench->attend(state, heads, none);
        bench->attend_backward(gradients, heads, backward, none);
        REQUIRE(bench.monitor.operations.size() == operations);
    }
    bench->finish_attention(state);
    costs(bench, "finish_attention", all * m * width + 9 * all * m,
          2 * of_queries + 3 * of_rows);
    bench->head_row_products(heads.queries, heads.queries);
    costs(bench, "head_row_products", 2 * all * m * width, 2 * of_queries + of_rows);
}

TEST_CASE("The cost of a shard's cross entropy includes the padding", "[sim][device]") {
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    Bench bench(numbers);
    const VocabularyShard shard{5, 8};
    const Tensor logits = bench->zeros({4, 5}, dtype);
    const Tensor targets = bench->zeros({4}, DType::i32);
    const Tensor maximum = bench->row_maximum(logits, shard);
    costs(bench, "row_maximum", 20, (20 + 4) * e);
    const Tensor parts = bench->cross_entropy_parts(logits, targets, maximum, shard);
    costs(bench, "cross_entropy_parts", 10 * 20, 4 * 4 + (20 + 4 + 8) * e);
    bench->cross_entropy_of_parts(maximum, parts);
    costs(bench, "cross_entropy_of_parts", 10 * 4, (4 + 8 + 4) * e);
    bench->cross_entropy_backward_of_parts(logits, targets, maximum, parts, 1, shard);
    costs(bench, "cross_entropy_backward_of_parts", 11 * 20,
          4 * 4 + (20 + 4 + 8 + 20) * e);
}

TEST_CASE("An embedding costs the rows it reads, not the table", "[sim][device]") {
    Bench bench;
    const Tensor table = bench->zeros({1000, 8}, DType::f32);
    const Tensor ids = bench->zeros({3}, DType::i32);
    const Tensor rows = bench->embedding(table, ids);
    costs(bench, "embedding", 0, 3 * 4 + 2 * 3 * 8 * 4);
    bench->embedding_backward(table, ids, rows);
    costs(bench, "embedding_backward", 3 * 8, 3 * 4 + 3 * 3 * 8 * 4);
    // A shard writes all rows: its own entries, and zeros for the others.
    bench->embedding(table, ids, {2000, 5000});
    costs(bench, "embedding", 0, 3 * 4 + 2 * 3 * 8 * 4);
}

TEST_CASE("Rows by index cost the rows that are named, not the matrix", "[sim][device]") {
    // A device that computes only shapes reads no indices.
    const bool numbers = GENERATE(true, false);
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    Bench bench(numbers);
    const Tensor whole = bench->zeros({1000, 8}, dtype);
    const Tensor list = bench->zeros({3, 8}, dtype);
    const Tensor indices = bench->zeros({3}, DType::i32);
    bench->take_rows(list, whole, indices);
    costs(bench, "take_rows", 0, 3 * 4 + 2 * 24 * e);
    bench->add_rows(whole, list, indices);
    costs(bench, "add_rows", 24, 3 * 4 + 3 * 24 * e);
    const Tensor factors = bench->zeros({3}, dtype);
    bench->scale_rows(list, factors);
    costs(bench, "scale_rows", 24, (2 * 24 + 3) * e);
    bench->row_products(factors, list, list);
    costs(bench, "row_products", 2 * 24, (2 * 24 + 3) * e);
    const Tensor some = bench->zeros({1000, 2}, dtype);
    const Tensor which = bench->zeros({1000, 2}, DType::i32);
    bench->take_columns(some, whole, which);
    costs(bench, "take_columns", 0, 2000 * 4 + 2 * 2000 * e);
    bench->add_columns(whole, some, which);
    costs(bench, "add_columns", 2000, 2000 * 4 + 3 * 2000 * e);
    const Tensor largest = bench->zeros({3, 2}, dtype);
    const Tensor columns = bench->zeros({3, 2}, DType::i32);
    bench->top_k(largest, columns, list, 2);
    costs(bench, "top_k", 24, (24 + 6) * e + 6 * 4);
    REQUIRE(last(bench).dtype == dtype);
    const Tensor order = bench->zeros({6}, DType::i32);
    const Tensor rows = bench->zeros({6}, DType::i32);
    bench->sort_ids(order, rows, bench->zeros({5}, DType::i32), columns);
    costs(bench, "sort_ids", 0, (6 + 6 + 6 + 5) * bytes_of(DType::i32));
}

TEST_CASE("A grouped product costs its products, but only one launch", "[sim][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t e = bytes_of(dtype);
    Bench bench;
    // The third group has no rows, so the third of the four matrices is not read.
    const std::vector<std::int64_t> rows{3, 1, 0, 6};
    const Tensor a = bench->zeros({10, 8}, dtype), y = bench->zeros({10, 5}, dtype);
    const Tensor b = bench->zeros({4 * 8, 5}, dtype);
    bench->grouped_matmul(y, a, b, rows);
    costs(bench, "grouped_matmul", 2 * 10 * 8 * 5, (80 + 50 + 3 * 8 * 5) * e);
    bench->grouped_matmul(a, y, b, rows, {.transpose_b = true});
    costs(bench, "grouped_matmul", 2 * 10 * 8 * 5, (80 + 50 + 3 * 8 * 5) * e);
    bench->grouped_matmul(b, a, y, rows, {.transpose_a = true, .accumulate = true});
    costs(bench, "grouped_matmul", 2 * 10 * 8 * 5, (80 + 50 + 2 * 3 * 8 * 5) * e);
    bench->grouped_matmul(b, a, y, rows, {.transpose_a = true});
    costs(bench, "grouped_matmul", 2 * 10 * 8 * 5, (80 + 50 + 4 * 8 * 5) * e);
}

TEST_CASE("Operations on empty tensors are counted and cost nothing", "[sim][device]") {
    Bench bench;
    const Tensor none = bench->empty({0, 5}, DType::f32);
    bench->add(none, none);
    costs(bench, "add", 0, 0);
    bench->matmul(none, bench->empty({5, 2}, DType::f32));
    costs(bench, "matmul", 0, 40);
}

TEST_CASE("A run that computes only shapes has memory and costs, but no data",
          "[sim][device]") {
    Bench bench(false);
    const Tensor x = bench->upload(random_values({3, 4}, DType::f32, "x"));
    REQUIRE(x.bytes_begin() == nullptr);
    REQUIRE(bench.monitor.held_bytes == 48);
    const HostTensor got = bench->download(bench->matmul(x, x, {.transpose_b = true}));
    REQUIRE(got.shape() == Shape{3, 3});
    for (std::int64_t i = 0; i < 9; ++i)
        REQUIRE(std::isnan(got.at(i)));
    REQUIRE(bench->download(bench->zeros({2}, DType::i32)) ==
            HostTensor::of<std::int32_t>({2}, std::vector(2, kNoCount)));
    REQUIRE(bench.monitor.copied_bytes[CopyDirection::to_device] == 48);
    REQUIRE(bench.monitor.copied_bytes[CopyDirection::to_host] == 36 + 8);

    // Targets without values cannot be out of range.
    const Tensor targets = bench->empty({3}, DType::i32);
    REQUIRE(bench->cross_entropy(x, targets).shape() == Shape{3});

    // If only shapes are computed, tensors may be bf16, too.
    const Tensor half = bench->zeros({8, 4}, DType::bf16);
    bench->add(half, bench->gelu(bench->matmul(half, half.rows(0, 4))));
    costs(bench, "add", 64, 3 * 64);
    REQUIRE(std::isnan(bench->peek(half).at(31)));
    // More memory than any machine has.
    REQUIRE(bench->empty({1 << 20, 1 << 20}, DType::f32).bytes() == std::int64_t{1}
                                                                        << 42);
}

TEST_CASE("A number downloaded in a run of shapes only is refused as a size",
          "[sim][device][errors]") {
    Bench bench(false);
    const Tensor x = bench->zeros({6, 4}, DType::f32);
    const HostTensor counts = bench->download(bench->zeros({2}, DType::i32));
    const auto count = static_cast<std::int64_t>(counts.at(0));
    const auto is_explained = says(
        "; a run that computes shapes only has no numbers to download: use route(), or "
        "ask Device::has_numbers()");
    // The size is the count, or a number that a program may compute from the count.
    for (const std::int64_t size : {count, 2 * count, 128 * count + 3, count / 8}) {
        CHECK_THAT(refusal([&] {
                       (void)bench->empty({size, 4}, DType::f32);
                   }),
                   is_explained);
        CHECK_THAT(refusal([&] {
                       (void)HostTensor({4, size}, DType::i32);
                   }),
                   is_explained);
        CHECK_THAT(refusal([&] { (void)x.rows(0, size); }), is_explained);
        CHECK_THAT(refusal([&] { (void)x.rows(size, 1); }), is_explained);
        CHECK_THAT(refusal([&] { (void)x.slice(0, size); }), is_explained);
        CHECK_THAT(refusal([&] { (void)counts.rows(0, size); }), is_explained);
    }
    CHECK_THAT(refusal([&] { (void)x.rows(-1, 1); }), !is_explained);
    CHECK_THAT(refusal([&] { (void)x.slice(0, 25); }), !is_explained);
    CHECK_THAT(refusal([&] { (void)bench->empty({-3}, DType::f32); }), !is_explained);
}

TEST_CASE("Phases begin and end with their scope", "[sim][device]") {
    Bench bench;
    {
        const PhaseScope forward(*bench.device, Phase::forward, 3);
        const PhaseScope update(*bench.device, Phase::update);
    }
    REQUIRE(bench.monitor.phases ==
            std::vector<std::string>{"forward 3", "update -1", "end", "end"});
}

}  // namespace lockstep::test

// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
