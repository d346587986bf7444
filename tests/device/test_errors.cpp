#include "tests/device/support.hpp"

// Device's error messages are written once for all backends, so one backend is tested.

namespace lockstep::test {

namespace {

const DType f32 = DType::f32;
const DType f64 = DType::f64;
const DType i32 = DType::i32;

}  // namespace

TEST_CASE("Another device's tensor is refused, and both are named",
          "[sim][device][errors]") {
    Bench bench;
    PlainMonitor monitor;
    const std::unique_ptr<Device> other = make_device(3, monitor);
    const Tensor own = bench->zeros({2, 2}, f32);
    const Tensor foreign = other->zeros({2, 2}, f32);
    const std::string sentence =
        " belongs to device 3, but device 0 was asked; devices share nothing but "
        "messages";
    refuses("add: source" + sentence, [&] { bench->add(own, foreign); });
    refuses("add: destination" + sentence, [&] { bench->add(foreign, own); });
    refuses("matmul: b" + sentence, [&] { bench->matmul(own, foreign); });
    refuses("download: source" + sentence, [&] { bench->download(foreign); });
    refuses("upload: destination" + sentence, [&] {
        bench->upload_into(foreign, HostTensor({2, 2}, f32));
    });
    refuses("tanh: x" + sentence, [&] { bench->tanh(foreign); });
    refuses("random_normal: destination" + sentence,
            [&] { bench->random_normal(foreign, {}, 0, 1); });
    refuses("peek: source" + sentence, [&] { bench->peek(foreign); });
}

TEST_CASE("An empty tensor is refused if one is needed", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({2, 2}, f32);
    const std::string sentence = " is none; a tensor is expected";
    refuses("copy: source" + sentence, [&] { bench->copy(x, Tensor()); });
    refuses("gelu: x" + sentence, [&] { bench->gelu(Tensor()); });
    refuses("sgd: velocity" + sentence, [&] {
        bench->sgd(x, bench->zeros({2, 2}, f32), {}, {0.1, 0.9, 0});
    });
    refuses("layer_norm_backward_input: mean" + sentence,
            [&] { bench->layer_norm_backward_input(x, x, bench->zeros({2}, f32), {}); });
}

TEST_CASE("Types that do not fit are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({2, 3}, f32);
    const Tensor wide = bench->zeros({2, 3}, f64);
    const Tensor whole = bench->zeros({2, 3}, i32);
    const Tensor half = bench->empty({2, 3}, DType::bf16);
    refuses("add: source is f64, but destination is f32", [&] { bench->add(x, wide); });
    refuses("matmul: b is f64; f32 is expected", [&] { bench->matmul(x, wide); });
    refuses("tanh: x is i32; f32, f64 or bf16 is expected", [&] { bench->tanh(whole); });
    refuses("add: source is f32, but destination is bf16", [&] { bench->add(half, x); });
    refuses("matmul: b is bf16; f32 is expected",
            [&] { bench->matmul(x, half, {.transpose_b = true}); });
    refuses("layer_norm_backward_input: mean is bf16; f32 is expected", [&] {
        const Tensor mean = bench->zeros({2}, DType::bf16);
        bench->layer_norm_backward_input(half, half, half.flat().slice(0, 3),
                                         {{}, mean, mean});
    });
    refuses("sgd: gradient is f32; bf16 is expected",
            [&] { bench->sgd(half, x, {}, {}); });
    refuses("cross_entropy: targets is f32; i32 is expected",
            [&] { bench->cross_entropy(x, x.flat().rows(0, 2)); });
    refuses("embedding: ids is f64; i32 is expected", [&] { bench->embedding(x, wide); });
    refuses("add_bias: bias is f64; f32 is expected",
            [&] { bench->add_bias(x, wide.flat().rows(0, 3)); });
    refuses("upload: destination is f32; f64 is expected", [&] {
        bench->upload_into(x, HostTensor({2, 3}, f64));
    });
    refuses("scale: factor 0.5 for i32; an i32 is expected",
            [&] { bench->scale(whole, 0.5); });
    refuses("scale_by_tensor: factor is f64; f32 is expected",
            [&] { bench->scale(x, wide.flat().slice(0, 1)); });
    refuses("scale_by_tensor: destination is i32; f32, f64 or bf16 is expected",
            [&] { bench->scale(whole, whole.flat().slice(0, 1)); });
    bench->fill(half, 0);
    bench->copy(half, bench->zeros({2, 3}, DType::bf16));
}

TEST_CASE("Shapes that do not fit are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({4, 3}, f32);
    const Tensor y = bench->zeros({3, 4}, f32);
    const Tensor two = bench->zeros({2}, f32);
    const Tensor ids = bench->zeros({2}, i32);
    refuses("add: source has shape (3, 4), but destination has (4, 3)",
            [&] { bench->add(x, y); });
    refuses("matmul: a (4, 3) times b (4, 3): the inner extents are 3 and 4",
            [&] { bench->matmul(x, x); });
    refuses(
        "matmul: a (4, 3) transposed times b (2, 3) transposed: the inner extents are 4 "
        "and 3",
        [&] {
            bench->matmul(x, x.rows(0, 2), {true, true});
        });
    refuses("matmul: destination has shape (3, 4); (4, 4) is expected", [&] {
        bench->matmul_into(y, x, bench->zeros({3, 4}, f32));
    });
    refuses("matmul: accumulate without a destination; use matmul_into",
            [&] { bench->matmul(x, y, {.accumulate = true}); });
    refuses("add_bias: bias has shape (2); (3) is expected",
            [&] { bench->add_bias(x, two); });
    refuses("accumulate_rows: destination has shape (2); (3) is expected",
            [&] { bench->accumulate_rows(two, x); });
    refuses(
        "orthonormalize: x has shape (3, 4), that is 4 columns of 3 elements; at most 3 "
        "such columns can be orthogonal",
        [&] { bench->orthonormalize(y); });
    refuses("orthonormalize: x is i32; f32, f64 or bf16 is expected",
            [&] { bench->orthonormalize(ids); });
    refuses("sum: destination has shape (2); (1) is expected",
            [&] { bench->sum(two, x); });
    refuses("scale_by_tensor: factor has shape (2); (1) is expected",
            [&] { bench->scale(x, two); });
    refuses("clip_factor: destination has shape (2); (1) is expected",
            [&] { bench->clip_factor(two, two.slice(0, 1), 1); });
    refuses("layer_norm: weight has shape (2); (3) is expected",
            [&] { bench->layer_norm(x, two, two); });
    refuses("cross_entropy: targets has shape (2), that is 2 elements; 4 are expected",
            [&] { bench->cross_entropy(x, ids); });
    refuses("embedding: table has shape (2); (vocabulary, width) is expected",
            [&] { bench->embedding(two, ids); });
    refuses("embedding_backward: dy has shape (4, 3); (2, 3) is expected", [&] {
        bench->embedding_backward(x, ids, bench->zeros({4, 3}, f32));
    });
    refuses("take_rows: destination has shape (3, 4); (2, 3) is expected",
            [&] { bench->take_rows(y, x, ids); });
    refuses("add_rows: source has shape (3, 4); (2, 3) is expected",
            [&] { bench->add_rows(x, y, ids); });
    Bench other;
    const Tensor foreign = other->zeros({4, 3}, f32);
    const Tensor thirds = bench->zeros({2, 3}, f32);
    refuses("take_rows: source belongs to device",
            [&] { bench->take_rows(thirds, foreign, ids); });
    refuses("take_rows: source is none",
            [&] { bench->take_rows(thirds, Tensor(), ids); });
    refuses("take_rows: indices is f32; i32 is expected",
            [&] { bench->take_rows(y, x, two); });
    refuses("scale_rows: factors has shape (2), that is 2 elements; 4 are expected",
            [&] { bench->scale_rows(x, two); });
    refuses("row_products: b has shape (3, 4), but a has (4, 3)",
            [&] { bench->row_products(two, x, y); });
    refuses("row_products: destination has shape (2), that is 2 elements; 4 are expected",
            [&] { bench->row_products(two, x, x); });
    const Tensor pairs = bench->zeros({4, 2}, f32);
    refuses(
        "take_columns: indices has shape (2, 2), but source has (4, 3); the same number "
        "of rows",
        [&] {
            bench->take_columns(two, x, bench->zeros({2, 2}, i32));
        });
    refuses("add_columns: source has shape (4, 2); (4, 1) is expected", [&] {
        bench->add_columns(x, pairs, bench->zeros({4, 1}, i32));
    });
    refuses("take_columns: indices is f32; i32 is expected",
            [&] { bench->take_columns(pairs, x, pairs); });
    refuses("top_k: values has shape (4, 2); (4, 3) is expected", [&] {
        bench->top_k(pairs, bench->zeros({4, 3}, i32), x, 3);
    });
    const Tensor six = bench->zeros({4, 6}, f32), columns = bench->zeros({4, 2}, i32);
    const auto choose = [&](const ColumnGroups& groups) {
        return [&, groups] { bench->top_k(pairs, columns, six, 2, groups); };
    };
    refuses("top_k: 0 groups of columns; from 1 to 32 are expected", choose({0, 1, 1}));
    refuses("top_k: 6 columns cannot be split into 4 equal groups", choose({4, 1, 1}));
    refuses("top_k: 4 of 3 groups of columns; from 1 to all", choose({3, 4, 1}));
    refuses("top_k: the 3 best of a group of 2 columns; from 1", choose({3, 1, 3}));
    refuses("top_k: the 2 largest of 1 groups of 1 columns; at most", choose({6, 1, 1}));
    refuses("grouped_matmul: no group of rows; at least one is expected",
            [&] { bench->grouped_matmul(pairs, x, y, {}); });
    refuses("grouped_matmul: a group of -1 rows; a has shape (4, 3)", [&] {
        bench->grouped_matmul(pairs, x, y, {2, -1});
    });
    refuses(
        "grouped_matmul: a group of 3 rows; a has shape (4, 3), that is 4 rows; "
        "2 remain after the earlier groups",
        [&] {
            bench->grouped_matmul(pairs, x, y, {2, 3});
        });
    refuses(
        "grouped_matmul: the groups have 3 rows in all, but a has shape (4, 3), that is "
        "4 rows",
        [&] {
            bench->grouped_matmul(pairs, x, y, {2, 1});
        });
    refuses(
        "grouped_matmul: b has shape (3, 4), that is 3 rows; for 2 groups of a (4, 3), 6 "
        "rows are expected",
        [&] {
            bench->grouped_matmul(pairs, x, y, {2, 2});
        });
    refuses(
        "grouped_matmul: a (4, 3) times b (3, 4) transposed: the inner extents are 3 "
        "and 4",
        [&] { bench->grouped_matmul(pairs, x, y, {4}, {.transpose_b = true}); });
    refuses(
        "grouped_matmul: b has shape (3, 4), that is 3 rows; for 2 groups of a (4, 3), 4 "
        "rows are expected",
        [&] {
            bench->grouped_matmul(pairs, x, y, {2, 2}, {.transpose_a = true});
        });
    refuses("grouped_matmul: both a and b are transposed", [&] {
        bench->grouped_matmul(pairs, x, x, {4}, {true, true});
    });
    refuses("grouped_matmul: destination has shape (4, 2); (4, 4) is expected",
            [&] { bench->grouped_matmul(pairs, x, y, {4}); });
    refuses("top_k: indices is f32; i32 is expected",
            [&] { bench->top_k(pairs, pairs, x, 2); });
    for (const std::int64_t k : {-1, 0, 4})
        refuses(fmt::format("top_k: the {} largest of 3 columns; from 1 to all", k), [&] {
            bench->top_k(pairs, bench->zeros({4, 2}, i32), x, k);
        });
    const Tensor places = bench->zeros({4}, i32);
    const Tensor counts = bench->zeros({3}, i32);
    const Tensor of_rows = bench->zeros({2, 2}, i32);
    refuses("sort_ids: ids has shape (4); rows of ids are expected",
            [&] { bench->sort_ids(places, places, counts, places); });
    refuses("sort_ids: ids is f32; i32 is expected",
            [&] { bench->sort_ids(places, places, counts, pairs); });
    refuses("sort_ids: order has shape (2), that is 2 elements; 4 are expected",
            [&] { bench->sort_ids(ids, places, counts, of_rows); });
    refuses("sort_ids: rows has shape (2), that is 2 elements; 4 are expected",
            [&] { bench->sort_ids(places, ids, counts, of_rows); });
    refuses("sort_ids: counts is f32; i32 is expected",
            [&] { bench->sort_ids(places, places, two, of_rows); });
    refuses("upload: destination has shape (2), but the values have (1, 2)", [&] {
        bench->upload_into(two, HostTensor({1, 2}, f32));
    });
    refuses("adamw: first_moment has shape (3, 4), but parameter has (4, 3)", [&] {
        bench->adamw(x, bench->zeros({4, 3}, f32), y, bench->zeros({4, 3}, f32), 1, {});
    });
}

TEST_CASE("Blocks of columns beyond the end are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({4, 3}, f32);
    const Tensor y = bench->zeros({4, 5}, f32);
    refuses("copy_columns: source has 3 columns, but 2 from column 2 on are needed",
            [&] { bench->copy_columns(y, 0, x, 2, 2); });
    refuses("copy_columns: destination has 5 columns, but 2 from column 4 on are needed",
            [&] { bench->copy_columns(y, 4, x, 0, 2); });
    refuses("copy_columns: source has 3 columns, but 2 from column -1 on",
            [&] { bench->copy_columns(y, 0, x, -1, 2); });
    refuses("copy_columns: source has 2 rows, but destination has 4",
            [&] { bench->copy_columns(y, 0, x.rows(0, 2), 0, 1); });
}

TEST_CASE("Memory that an operation may not share is refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({8, 4}, f32);
    const Tensor row = bench->zeros({4}, f32);
    const std::string apart = " share memory; they must be apart";
    const std::string same =
        " share a part of their memory; they must be the same or share none";
    refuses("matmul: destination and a" + apart, [&] {
        bench->matmul_into(x.rows(0, 4), x.rows(3, 4), bench->zeros({4, 4}, f32));
    });
    refuses("matmul: destination and b" + apart, [&] {
        bench->matmul_into(x.rows(0, 4), bench->zeros({4, 4}, f32), x.rows(0, 4));
    });
    refuses("copy: source and destination" + same,
            [&] { bench->copy(x.rows(0, 4), x.rows(2, 4)); });
    refuses("copy_columns: source and destination" + apart,
            [&] { bench->copy_columns(x.rows(0, 4), 0, x.rows(3, 4), 2, 1); });
    refuses("cast: destination and source" + apart,
            [&] { bench->cast(x.rows(0, 4), x.rows(0, 4)); });
    refuses("cast: source has shape (8, 4); (4, 4) is expected", [&] {
        bench->cast(bench->zeros({4, 4}, f64), x);
    });
    refuses("cast: source is i32; f32, f64 or bf16 is expected", [&] {
        bench->cast(x, bench->zeros({8, 4}, i32));
    });
    refuses("add: source and destination" + same,
            [&] { bench->add(x.rows(0, 4), x.rows(2, 4)); });
    refuses("combine: source and destination" + same,
            [&] { bench->combine(x.rows(1, 4), x.rows(0, 4), Reduction::maximum); });
    refuses("add_bias: y and bias" + apart, [&] { bench->add_bias(x, x.rows(0, 1)); });
    refuses("accumulate_rows: destination and x" + apart,
            [&] { bench->accumulate_rows(x.rows(7, 1), x); });
    refuses("sum: destination and source" + apart,
            [&] { bench->sum(x.flat().rows(31, 1), x); });
    refuses("sum_of_squares: destination and x" + apart,
            [&] { bench->sum_of_squares(x.flat().rows(0, 1), x); });
    refuses("scale_by_tensor: destination and factor" + apart,
            [&] { bench->scale(x, x.flat().slice(3, 1)); });
    refuses("sgd: gradient and parameter" + apart, [&] { bench->sgd(x, x, {}, {}); });
    refuses("adamw: second_moment and first_moment" + apart,
            [&] { bench->adamw(row, x.rows(0, 1), x.rows(1, 1), x.rows(1, 1), 1, {}); });
    refuses("embedding_backward: d_table and dy" + apart,
            [&] { bench->embedding_backward(x, bench->zeros({2}, i32), x.rows(2, 2)); });
    refuses("take_rows: destination and source" + apart,
            [&] { bench->take_rows(x.rows(0, 2), x, bench->zeros({2}, i32)); });
    refuses("add_rows: destination and source" + apart,
            [&] { bench->add_rows(x, x.rows(0, 2), bench->zeros({2}, i32)); });
    refuses("scale_rows: x and factors" + apart,
            [&] { bench->scale_rows(x.rows(0, 4), x.rows(3, 1)); });
    refuses("row_products: destination and a" + apart,
            [&] { bench->row_products(x.rows(3, 1), x.rows(0, 4), x.rows(4, 4)); });
    refuses("top_k: values and x" + apart, [&] {
        bench->top_k(x, bench->zeros({8, 4}, i32), x, 4);
    });
    const Tensor names = bench->zeros({2, 2}, i32);
    refuses("sort_ids: order and ids" + apart, [&] {
        bench->sort_ids(names, bench->zeros({4}, i32), bench->zeros({3}, i32), names);
    });
    refuses("sort_ids: order and rows" + apart, [&] {
        const Tensor order = bench->zeros({4}, i32);
        bench->sort_ids(order, order, bench->zeros({3}, i32), names);
    });
    bench->matmul_into(x.rows(0, 4), x.rows(4, 4), bench->zeros({4, 4}, f32));
    bench->add(x.rows(0, 4), x.rows(4, 4));
}

TEST_CASE("Impossible options are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({4}, f32);
    const auto zeros = [&] { return bench->zeros({4}, f32); };
    refuses("combine: repeated means of two tensors are not the mean of all",
            [&] { bench->combine(x, zeros(), Reduction::mean); });
    refuses("clip_factor: most is -1; it must not be negative",
            [&] { bench->clip_factor(x.slice(0, 1), x.slice(1, 1), -1); });
    refuses("adamw: step is 0; steps count from 1",
            [&] { bench->adamw(x, zeros(), zeros(), zeros(), 0, {}); });
    refuses("random_uniform: no value lies in [1, 0]",
            [&] { bench->random_uniform(x, {}, 1, 0); });
    refuses("random_normal: deviation is -1",
            [&] { bench->random_normal(x, {}, 0, -1); });
    refuses("random_normal: offset is -5",
            [&] { bench->random_normal(x, {}, 0, 1, {-5}); });
    refuses("random_normal: offset is 281474976710657, and 1 rows are 0 numbers apart",
            [&] { bench->random_normal(x, {}, 0, 1, {(std::int64_t{1} << 48) + 1}); });
    refuses(
        "random_uniform: offset is 0, and 1 rows are 9223372036854775807 numbers apart",
        [&] {
            bench->random_uniform(x, {}, 0, 1, {0, INT64_MAX});
        });
    refuses("random_uniform: rows are 3 numbers apart, but destination has 4 columns",
            [&] {
                bench->random_uniform(x, {}, 0, 1, {0, 3});
            });
    refuses("layer_norm: epsilon is negative", [&] { bench->layer_norm(x, x, x, -1); });
    refuses("rms_norm: epsilon is negative", [&] { bench->rms_norm(x, x, -1); });
    refuses("batch_moments: epsilon is negative",
            [&] { bench->batch_moments(bench->zeros({5}, f32), x, {}, -1); });
    refuses("dropout: probability is 1; it must be in [0, 1)",
            [&] { bench->dropout(x, 1, {}); });
    refuses("dropout: offset is -5", [&] { bench->dropout(x, 0.5, {}, {-5}); });
    refuses(
        "softmax: x has shape (4); with a causal mask, (…, queries, keys) is expected",
        [&] { bench->softmax(x, {true}); });
}

TEST_CASE("Batch norm refuses statistics that are not its batch's",
          "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({4, 3}, f32), three = bench->zeros({3}, f32),
                 four = bench->zeros({4}, f32), wide = bench->zeros({3}, f64);
    const Normalized moments{{}, three, three};
    refuses("batch_squares: sums has shape (3); (4) is expected",
            [&] { bench->batch_squares(x, three); });
    refuses("batch_moments: sums has shape (3); (4) is expected",
            [&] { bench->batch_moments(three, three); });
    refuses("batch_moments: squares has shape (4, 3); (3) is expected",
            [&] { bench->batch_moments(four, x); });
    refuses("batch_moments: running variance is none; a tensor is expected", [&] {
        bench->batch_moments(four, three, {three, {}, 0.1});
    });
    refuses("batch_moments: running mean is f64; f32 is expected", [&] {
        bench->batch_moments(four, three, {wide, wide, 0.1});
    });
    refuses("batch_moments: momentum is 1.5; it must be in [0, 1]", [&] {
        bench->batch_moments(four, three, {bench->zeros({3}, f32), three, 1.5});
    });
    refuses("batch_norm: mean has shape (4); (3) is expected", [&] {
        bench->batch_norm(x, {{}, four, three}, three, three);
    });
    refuses("batch_norm: weight is f64; f32 is expected",
            [&] { bench->batch_norm(x, moments, wide, three); });
    refuses("batch_norm_backward_sums: rstd is none", [&] {
        bench->batch_norm_backward_sums(x, x, {{}, three, {}});
    });
    refuses("batch_norm_backward_input: sums has shape (4, 3); (2, 3) is expected", [&] {
        bench->batch_norm_backward_input(x, x, three, moments, x, four.slice(3, 1));
    });
    refuses("batch_norm_backward_input: count has shape (4); (1) is expected", [&] {
        bench->batch_norm_backward_input(x, x, three, moments, x.rows(0, 2), four);
    });
    // Statistics of bf16 numbers are f32.
    const Tensor half = bench->empty({4, 3}, DType::bf16);
    refuses("batch_squares: sums is bf16; f32 is expected",
            [&] { bench->batch_squares(half, half.flat().slice(0, 4)); });
}

TEST_CASE("A refused operation costs nothing", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->empty({4, 3}, f32);
    REQUIRE_THROWS_AS(bench->matmul(x, x), UsageError);
    REQUIRE_THROWS_AS(bench->tanh_backward(x, x.flat()), UsageError);
    REQUIRE(bench.monitor.operations.empty());
    REQUIRE(bench.monitor.allocations == 1);
}

}  // namespace lockstep::test
