#include "tests/device/support.hpp"

// Error messages of the operations that transformers add; see test_errors.cpp.

namespace lockstep::test {

namespace {

const DType f32 = DType::f32;
const DType f64 = DType::f64;
const DType i32 = DType::i32;

}  // namespace

TEST_CASE("Gates and root mean square norms that do not fit are refused",
          "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({2, 6}, f32);
    const Tensor six = bench->zeros({6}, f32);
    const Tensor two = bench->zeros({2}, f32);
    const Tensor three = bench->zeros({3}, f32);
    refuses(
        "swiglu: x has shape (3); an even number of columns is expected, because half of "
        "them are the gate",
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
        refuses(fmt::format("head_products: {} heads of width {} from column {} on do "
                            "not fit into y, which has 6 columns",
                            wrong.heads, wrong.width, wrong.first),
                [&] {
                    bench->head_products({x, 2, 3}, wrong);
                });
    refuses("head_products: y has 1 batches of heads of width 2, but x has 1 of width 3",
            [&] {
                bench->head_products({x, 2, 3}, {x, 3, 2});
            });
    refuses(
        "head_products: y has 2 heads, but x has 3; a number that divides 3 is expected",
        [&] {
            bench->head_products({x, 3, 2}, {x, 2, 2});
        });
    refuses(
        "head_products: y has 2 heads, but x has 1; a number that divides 1 is expected",
        [&] {
            bench->head_products({x, 1, 3}, {x, 2, 3});
        });
    refuses("head_products: y is f64; f32 is expected", [&] {
        bench->head_products({x, 2, 3}, {bench->zeros({4, 1, 6}, f64), 2, 3});
    });
    refuses("head_products: x is i32; f32, f64 or bf16 is expected", [&] {
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
    refuses("head_sums: weights have shape (1, 2, 5, 4); (1, 2, 5, 3) is expected", [&] {
        bench->head_sums(weights, {x.rows(0, 3), 2, 3});
    });
    refuses(
        "head_sums: y has 3 heads, but weights has 2; a number that divides 2 is "
        "expected",
        [&] {
            bench->head_sums(weights, {x, 3, 2});
        });
    refuses(
        "add_head_sums: destination has 2 heads, but y has 3; a number that divides 3 is "
        "expected",
        [&] {
            bench->add_head_sums({sums, 2, 2}, weights, {x, 3, 2});
        });
    refuses(
        "add_head_sums: y has 2 heads, but destination has 3; a number that divides 3 is "
        "expected",
        [&] {
            bench->add_head_sums({sums, 3, 2}, weights, {x, 2, 2});
        });
    refuses("add_head_sums: weights have shape (1, 2, 5, 4); (1, 3, 5, 4) is expected",
            [&] {
                bench->add_head_sums({sums, 1, 2}, weights, {x, 3, 2});
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
        "add_head_sums: y has 1 batches of heads of width 3, but destination has 1 of "
        "width 2",
        [&] {
            bench->add_head_sums({sums, 3, 2}, weights, {x, 2, 3});
        });
    constexpr std::int64_t kVast = std::int64_t{1} << 32;
    refuses("head_sums: 4294967296 heads of width 4294967296 have more columns than",
            [&] {
                bench->head_sums(bench->zeros({0, kVast, 0, 0}, f32),
                                 {bench->zeros({0, 0, kVast}, f32), 1, kVast});
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
            ": shard.first is {} and shard.whole is {}; neither may be negative, and "
            "shard.whole must be given if shard.first is not 0",
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

}  // namespace lockstep::test
