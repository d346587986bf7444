#include "tests/device/support.hpp"

// What Device refuses is written once for all backends, so one backend stands for all.

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

TEST_CASE("No tensor is refused where one is needed", "[sim][device][errors]") {
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
    refuses("tanh: x is i32; f32 or f64 is expected", [&] { bench->tanh(whole); });
    refuses("softmax: x is bf16, which has no arithmetic yet",
            [&] { bench->softmax(half); });
    refuses("fill: destination is bf16", [&] { bench->fill(half, 1); });
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
    refuses("sum: destination has shape (2); (1) is expected",
            [&] { bench->sum(two, x); });
    refuses("layer_norm: weight has shape (2); (3) is expected",
            [&] { bench->layer_norm(x, two, two); });
    refuses("cross_entropy: targets has shape (2), that is 2 elements; 4 are expected",
            [&] { bench->cross_entropy(x, ids); });
    refuses("embedding: table has shape (2); (vocabulary, width) is expected",
            [&] { bench->embedding(two, ids); });
    refuses("embedding_backward: dy has shape (4, 3); (2, 3) is expected", [&] {
        bench->embedding_backward(x, ids, bench->zeros({4, 3}, f32));
    });
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
    refuses("copy_columns: columns [2, 4) of source, which has 3",
            [&] { bench->copy_columns(y, 0, x, 2, 2); });
    refuses("copy_columns: columns [4, 6) of destination, which has 5",
            [&] { bench->copy_columns(y, 4, x, 0, 2); });
    refuses("copy_columns: columns [-1, 1) of source",
            [&] { bench->copy_columns(y, 0, x, -1, 2); });
    refuses("copy_columns: source has 2 rows, but destination has 4",
            [&] { bench->copy_columns(y, 0, x.rows(0, 2), 0, 1); });
}

TEST_CASE("Memory that an operation may not share is refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({8, 4}, f32);
    const Tensor row = bench->zeros({4}, f32);
    const std::string apart = " share memory; they must be apart";
    const std::string same = " share memory in part; they must be the same or apart";
    refuses("matmul: destination and a" + apart, [&] {
        bench->matmul_into(x.rows(0, 4), x.rows(3, 4), bench->zeros({4, 4}, f32));
    });
    refuses("matmul: destination and b" + apart, [&] {
        bench->matmul_into(x.rows(0, 4), bench->zeros({4, 4}, f32), x.rows(0, 4));
    });
    refuses("copy: source and destination" + same,
            [&] { bench->copy(x.rows(0, 4), x.rows(2, 4)); });
    refuses("add: source and destination" + same,
            [&] { bench->add(x.rows(0, 4), x.rows(2, 4)); });
    refuses("combine: source and destination" + same,
            [&] { bench->combine(x.rows(1, 4), x.rows(0, 4), Reduction::maximum); });
    refuses("add_bias: y and bias" + apart, [&] { bench->add_bias(x, x.rows(0, 1)); });
    refuses("accumulate_rows: destination and x" + apart,
            [&] { bench->accumulate_rows(x.rows(7, 1), x); });
    refuses("sum: destination and source" + apart,
            [&] { bench->sum(x.flat().rows(31, 1), x); });
    refuses("sgd: gradient and parameter" + apart, [&] { bench->sgd(x, x, {}, {}); });
    refuses("adamw: second_moment and first_moment" + apart,
            [&] { bench->adamw(row, x.rows(0, 1), x.rows(1, 1), x.rows(1, 1), 1, {}); });
    refuses("embedding_backward: d_table and dy" + apart,
            [&] { bench->embedding_backward(x, bench->zeros({2}, i32), x.rows(2, 2)); });
    bench->matmul_into(x.rows(0, 4), x.rows(4, 4), bench->zeros({4, 4}, f32));
    bench->add(x.rows(0, 4), x.rows(4, 4));
}

TEST_CASE("Options that cannot be are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({4}, f32);
    const auto zeros = [&] { return bench->zeros({4}, f32); };
    refuses("combine: the mean of two tensors taken again and again is no mean",
            [&] { bench->combine(x, zeros(), Reduction::mean); });
    refuses("adamw: step is 0; steps count from 1",
            [&] { bench->adamw(x, zeros(), zeros(), zeros(), 0, {}); });
    refuses("random_uniform: no value lies in [1, 0]",
            [&] { bench->random_uniform(x, {}, 1, 0); });
    refuses("random_normal: deviation is -1",
            [&] { bench->random_normal(x, {}, 0, -1); });
    refuses("random_normal: offset is -5",
            [&] { bench->random_normal(x, {}, 0, 1, {-5}); });
    refuses("random_uniform: rows that are 3 numbers apart; destination has 4 columns",
            [&] {
                bench->random_uniform(x, {}, 0, 1, {0, 3});
            });
    refuses("layer_norm: epsilon is negative", [&] { bench->layer_norm(x, x, x, -1); });
    refuses("rms_norm: epsilon is negative", [&] { bench->rms_norm(x, x, -1); });
    refuses("softmax: x has shape (4); (…, queries, keys) is expected where it is causal",
            [&] { bench->softmax(x, {true}); });
}

TEST_CASE("Gates and root mean square norms that do not fit are refused",
          "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({2, 6}, f32);
    const Tensor six = bench->zeros({6}, f32);
    const Tensor two = bench->zeros({2}, f32);
    const Tensor three = bench->zeros({3}, f32);
    refuses(
        "swiglu: x has shape (3); an even number of columns is expected, the gate's and "
        "as many others",
        [&] { bench->swiglu(three); });
    refuses("swiglu_backward: dy has shape (2, 6); (2, 3) is expected",
            [&] { bench->swiglu_backward(x, x); });
    refuses("swiglu_backward: dy is f64; f32 is expected", [&] {
        bench->swiglu_backward(x, bench->zeros({2, 3}, f64));
    });
    refuses("rms_norm: weight has shape (3); (6) is expected",
            [&] { bench->rms_norm(x, three); });
    refuses(
        "rms_norm_backward_input: rstd has shape (3), that is 3 elements; 2 are expected",
        [&] { bench->rms_norm_backward_input(x, x, six, three); });
    refuses("rms_norm_backward_input: dy has shape (6), but x has (2, 6)",
            [&] { bench->rms_norm_backward_input(six, x, six, two); });
    refuses("rms_norm_backward_weight: d_weight has shape (3); (6) is expected",
            [&] { bench->rms_norm_backward_weight(three, x, x, two); });
    const std::string apart = " share memory; they must be apart";
    refuses("rms_norm_backward_weight: d_weight and dy" + apart, [&] {
        bench->rms_norm_backward_weight(x.rows(0, 1), x, bench->zeros({2, 6}, f32), two);
    });
    refuses("rms_norm_backward_weight: d_weight and x" + apart, [&] {
        bench->rms_norm_backward_weight(x.rows(0, 1), bench->zeros({2, 6}, f32), x, two);
    });
    refuses("rms_norm_backward_weight: d_weight and rstd" + apart,
            [&] { bench->rms_norm_backward_weight(six, x, x, six.rows(0, 2)); });
}

TEST_CASE("Heads that do not fit are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({4, 1, 6}, f32);
    const Tensor flat = bench->zeros({4, 6}, f32);
    refuses("head_products: x has shape (4, 6); (sequence, batches, columns) is expected",
            [&] {
                bench->head_products({flat, 2, 3}, {x, 2, 3});
            });
    for (const Heads& wrong : {Heads{x, 2, 3, 1}, Heads{x, 0, 3}, Heads{x, 2, 0},
                               Heads{x, 1, 2, -1}, Heads{x, 3, 3}})
        refuses(
            fmt::format(
                "head_products: {} heads of width {} from column {} of y, which has 6",
                wrong.heads, wrong.width, wrong.first),
            [&] {
                bench->head_products({x, 2, 3}, wrong);
            });
    refuses(
        "head_products: y has 1 batches of 3 heads of width 2, but x has 1 of 2 of width "
        "3",
        [&] {
            bench->head_products({x, 2, 3}, {x, 3, 2});
        });
    refuses("head_products: y is f64; f32 is expected", [&] {
        bench->head_products({x, 2, 3}, {bench->zeros({4, 1, 6}, f64), 2, 3});
    });
    refuses("head_products: x is i32; f32 or f64 is expected", [&] {
        bench->head_products({bench->zeros({4, 1, 6}, i32), 2, 3}, {x, 2, 3});
    });
}

TEST_CASE("Weights that do not fit their heads are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({4, 1, 6}, f32);
    const Tensor sums = bench->zeros({5, 1, 6}, f32);
    const Tensor weights = bench->zeros({1, 2, 5, 4}, f32);
    refuses(
        "head_sums: weights have shape (4, 1, 6); (batches, heads, queries, keys) is "
        "expected",
        [&] {
            bench->head_sums(x, {x, 2, 3});
        });
    refuses("head_sums: weights have shape (1, 2, 5, 4); (1, 3, 5, 4) is expected", [&] {
        bench->head_sums(weights, {x, 3, 2});
    });
    refuses("head_sums: weights is f64; f32 is expected", [&] {
        bench->head_sums(bench->zeros({1, 2, 5, 4}, f64), {x, 2, 3});
    });
    refuses("add_head_sums: weights have shape (1, 2, 5, 4); (1, 2, 4, 5) is expected",
            [&] {
                bench->add_head_sums({sums, 2, 3}, weights, {x, 2, 3}, {true});
            });
    refuses("add_head_sums: weights have shape (1, 2, 5, 4); (1, 2, 4, 5) is expected",
            [&] {
                bench->add_head_sums({x, 2, 3}, weights, {sums, 2, 3});
            });
    refuses(
        "add_head_sums: destination has 1 batches of 3 heads of width 2, but y has 1 of "
        "2 "
        "of width 3",
        [&] {
            bench->add_head_sums({sums, 3, 2}, weights, {x, 2, 3});
        });
    const std::string apart = " share memory; they must be apart";
    refuses("add_head_sums: destination and y" + apart, [&] {
        bench->add_head_sums({x, 1, 3}, bench->zeros({1, 1, 4, 4}, f32), {x, 1, 3, 3});
    });
    const Tensor room = bench->zeros({48}, f32);
    refuses("add_head_sums: destination and weights" + apart, [&] {
        bench->add_head_sums({room.rows(0, 24).reshaped({4, 1, 6}), 2, 3},
                             room.rows(16, 32).reshaped({1, 2, 4, 4}), {x, 2, 3});
    });
}

TEST_CASE("Shards of a vocabulary that do not fit are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor logits = bench->zeros({2, 3}, f32);
    const Tensor targets = bench->zeros({2}, i32);
    const Tensor two = bench->zeros({2}, f32);
    const Tensor three = bench->zeros({3}, f32);
    const Tensor parts = bench->zeros({2, 2}, f32);
    for (const VocabularyShard& wrong :
         {VocabularyShard{3, 0}, VocabularyShard{-1, 5}, VocabularyShard{0, -5}}) {
        const std::string sentence = fmt::format(
            ": a shard that begins at entry {} of a vocabulary of {}; none of the two is "
            "negative, and the second is said where the first is",
            wrong.first, wrong.whole);
        refuses("row_maximum" + sentence, [&] { bench->row_maximum(logits, wrong); });
        refuses("cross_entropy_parts" + sentence,
                [&] { bench->cross_entropy_parts(logits, targets, two, wrong); });
        refuses("cross_entropy_backward_of_parts" + sentence, [&] {
            bench->cross_entropy_backward_of_parts(logits, targets, two, parts, 1, wrong);
        });
        refuses("embedding" + sentence,
                [&] { bench->embedding(logits, targets, wrong); });
        refuses("embedding_backward" + sentence, [&] {
            bench->embedding_backward(logits, targets, bench->zeros({2, 3}, f32), wrong);
        });
    }
    refuses(
        "cross_entropy_parts: maximum has shape (3), that is 3 elements; 2 are "
        "expected",
        [&] { bench->cross_entropy_parts(logits, targets, three); });
    refuses("cross_entropy_parts: targets is f32; i32 is expected",
            [&] { bench->cross_entropy_parts(logits, two, two); });
    refuses("cross_entropy_of_parts: parts has shape (2, 2); (2, 3) is expected",
            [&] { bench->cross_entropy_of_parts(three, parts); });
    refuses(
        "cross_entropy_backward_of_parts: parts has shape (3); (2, 2) is expected",
        [&] { bench->cross_entropy_backward_of_parts(logits, targets, two, three, 1); });
    refuses("cross_entropy_backward_of_parts: parts is f64; f32 is expected", [&] {
        bench->cross_entropy_backward_of_parts(logits, targets, two,
                                               bench->zeros({2, 2}, f64), 1);
    });
}

TEST_CASE("What is refused is not charged", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->empty({4, 3}, f32);
    REQUIRE_THROWS_AS(bench->matmul(x, x), UsageError);
    REQUIRE_THROWS_AS(bench->tanh_backward(x, x.flat()), UsageError);
    REQUIRE(bench.monitor.operations.empty());
    REQUIRE(bench.monitor.allocations == 1);
}

}  // namespace lockstep::test
