#include "tests/device/support.hpp"

// Error messages about heads and online attention; see test_errors.cpp.

namespace lockstep::test {

TEST_CASE("Heads that cannot be rotated are refused", "[sim][device][errors]") {
    Bench bench;
    const Tensor x = bench->zeros({4, 2, 24}, DType::f32);
    const Heads two{x, 2, 4, 0};
    refuses("rotate: heads of width 3; an even width is expected", [&] {
        bench->rotate({x, 2, 3}, {x, 2, 3});
    });
    refuses("rotate: destination and source begin at columns 4 and 0 of one tensor", [&] {
        bench->rotate({x, 2, 4, 4}, two);
    });
    refuses("rotate: source and destination share a part of their memory", [&] {
        bench->rotate({x.rows(1, 3), 2, 4}, {x.rows(0, 3), 2, 4});
    });
    refuses(
        "rotate: destination has 4 rows, 2 batches and 3 heads of width 4, but source "
        "has 4, 2 and 2 of width 4",
        [&] {
            bench->rotate({bench->zeros({4, 2, 24}, DType::f32), 3, 4}, two);
        });
    refuses("rotate: source is i32; f32, f64 or bf16 is expected", [&] {
        bench->rotate(two, {bench->zeros({4, 2, 8}, DType::i32), 2, 4});
    });
    for (const double base : {0.5, -2.0, double{NAN}, double{INFINITY}})
        refuses(fmt::format("rotate: base is {}; a finite number from 1 up", base),
                [&] { bench->rotate(two, two, {}, {base}); });
    refuses(
        "rotate: positions has 4 rows from row 6 on, which do not fit into a sequence "
        "that is sharded over 2 ranks with 4",
        [&] {
            bench->rotate(two, two, {TokenOrder::zigzag, 2, 4, 6});
        });
}

namespace {

const DType f32 = DType::f32;
const DType f64 = DType::f64;

/// Attention that fits: 5 queries with 4 heads, 7 keys with 2 heads, width 3, 2 batches.
struct Fitting {
    Heads zeros(std::int64_t rows, std::int64_t count, std::int64_t width = 3,
                DType dtype = f32, std::int64_t batches = 2) {
        return {bench->zeros({rows, batches, count * width}, dtype), count, width, 0};
    }
    AttentionHeads zero_heads() { return {zeros(5, 4), zeros(7, 2), zeros(7, 2)}; }

    void refuses_attend(const std::string& sentence) {
        refuses("attend: " + sentence, [&] { bench->attend(state, heads, options); });
    }
    void refuses_backward(const std::string& sentence) {
        refuses("attend_backward: " + sentence,
                [&] { bench->attend_backward(gradients, heads, backward, options); });
    }

    Bench bench;
    AttentionHeads heads = zero_heads();
    AttentionHeads gradients = zero_heads();
    OnlineAttention state = bench->begin_attention(heads.queries);
    AttentionBackward backward{bench->zeros({5, 2, 12}, f32),
                               bench->zeros({2, 4, 5}, f32),
                               bench->zeros({2, 4, 5}, f32)};
    AttentionOptions options{};
};

/// Checks the message with which attend and its backward refuse a wrong choice of heads.
template <typename Change>
void both_refuse(const std::string& sentence, Change&& change) {
    Fitting fitting;
    change(fitting);
    fitting.refuses_attend(sentence);
    fitting.refuses_backward(sentence);
}

const std::string kApart = " share memory; they must be apart";

}  // namespace

TEST_CASE("Attention that fits is not refused", "[sim][device][errors]") {
    Fitting f;
    f.bench->attend(f.state, f.heads, f.options);
    f.bench->finish_attention(f.state);
    f.bench->attend_backward(f.gradients, f.heads, f.backward, f.options);
}

TEST_CASE("Queries, keys and values that do not belong together are refused",
          "[sim][device][errors]") {
    both_refuse("keys has shape (7, 12); (sequence, batches, columns) is expected",
                [](Fitting& f) {
                    f.heads.keys.tensor = f.bench->zeros({7, 12}, f32);
                });
    both_refuse(
        "2 heads of width 3 from column 1 on do not fit into values, which has 6 columns",
        [](Fitting& f) { f.heads.values.first = 1; });
    both_refuse("keys is f64; f32 is expected",
                [](Fitting& f) { f.heads.keys = f.zeros(7, 2, 3, f64); });
    both_refuse("values is f64; f32 is expected",
                [](Fitting& f) { f.heads.values = f.zeros(7, 2, 3, f64); });
    both_refuse("queries is i32; f32, f64 or bf16 is expected",
                [](Fitting& f) { f.heads.queries = f.zeros(5, 4, 3, DType::i32); });
    both_refuse("keys has 2 batches of heads of width 4, but queries has 2 of width 3",
                [](Fitting& f) { f.heads.keys = f.zeros(7, 2, 4); });
    both_refuse("keys has 3 batches of heads of width 3, but queries has 2 of width 3",
                [](Fitting& f) { f.heads.keys = f.zeros(7, 2, 3, f32, 3); });
    both_refuse(
        "keys has 3 heads, but queries has 4; a number that divides 4 is expected",
        [](Fitting& f) { f.heads.keys = f.heads.values = f.zeros(7, 3); });
    both_refuse(
        "keys has 8 heads, but queries has 4; a number that divides 4 is expected",
        [](Fitting& f) { f.heads.keys = f.heads.values = f.zeros(7, 8); });
    both_refuse("values have 7 rows of 1 heads, but keys have 7 of 2",
                [](Fitting& f) { f.heads.values = f.zeros(7, 1); });
    both_refuse("values have 6 rows of 2 heads, but keys have 7 of 2",
                [](Fitting& f) { f.heads.values = f.zeros(6, 2); });
    both_refuse("heads of width 257; up to 256 are expected", [](Fitting& f) {
        f.heads = {f.zeros(5, 4, 257), f.zeros(7, 2, 257), f.zeros(7, 2, 257)};
    });
}

TEST_CASE("Tokens that a sharded sequence does not have are refused",
          "[sim][device][errors]") {
    const TokenRows fitting{TokenOrder::zigzag, 2, 4, 1};
    const auto check = [&](const std::string& sentence, const TokenRows& queries,
                           const TokenRows& keys) {
        both_refuse(sentence, [&](Fitting& f) { f.options = {1, true, queries, keys}; });
        Bench bench;
        const Tensor scores = bench->zeros({3, 5, 7}, f32);
        refuses("softmax: " + sentence, [&] {
            bench->softmax(scores, {true, queries, keys});
        });
        // Without a causal mask, tokens are not checked.
        Fitting all;
        all.options = {1, false, queries, keys};
        all.bench->attend(all.state, all.heads, all.options);
        bench->softmax(scores, {false, queries, keys});
    };
    check(
        "queries has 5 rows from row 4 on, which do not fit into a sequence that is "
        "sharded over 2 ranks with 4 tokens each",
        {TokenOrder::striped, 2, 4, 4}, fitting);
    check(
        "keys has 7 rows from row 2 on, which do not fit into a sequence that is sharded "
        "over 2 ranks with 4 tokens each",
        fitting, {TokenOrder::zigzag, 2, 4, 2});
    check("queries has 5 rows from row -1 on, which do not fit into a sequence",
          {TokenOrder::contiguous, 1, 0, -1}, fitting);
    check(
        "keys has 7 rows from row 0 on, which do not fit into a sequence that is sharded "
        "over 1 ranks with 0 tokens each",
        fitting, {TokenOrder::striped});
    check(
        "keys has 7 rows from row 0 on, which do not fit into a sequence that is sharded "
        "over -2 ranks with -4 tokens each",
        fitting, {TokenOrder::striped, -2, -4, 0});
    check(
        "keys has 5 tokens on each rank in zigzag order; each rank gets two equal "
        "stretches, so an even number is expected",
        fitting, {TokenOrder::zigzag, 2, 5, 0});
}

TEST_CASE("A state of other queries is refused", "[sim][device][errors]") {
    Fitting f;
    const auto set_state = [&](Tensor y, Tensor maximum, Tensor sum) {
        f.state = {std::move(y), std::move(maximum), std::move(sum)};
    };
    const Tensor y = f.state.y, rows = f.state.maximum, sum = f.state.sum;
    set_state(f.bench->zeros({5, 2, 9}, f32), rows, sum);
    f.refuses_attend("y has shape (5, 2, 9); (5, 2, 12) is expected");
    set_state(f.bench->zeros({5, 2, 12}, f64), rows, sum);
    f.refuses_attend("y is f64; f32 is expected");
    set_state(y, f.bench->zeros({2, 5, 4}, f32), sum);
    f.refuses_attend("maximum has shape (2, 5, 4); (2, 4, 5) is expected");
    set_state(y, rows, f.bench->zeros({40}, f32));
    f.refuses_attend("sum has shape (40); (2, 4, 5) is expected");
    set_state(y, rows, f.bench->zeros({2, 4, 5}, f64));
    f.refuses_attend("sum is f64; f32 is expected");
    set_state(f.heads.queries.tensor, rows, sum);
    f.refuses_attend("the state and queries" + kApart);
    const Tensor room = f.bench->zeros({7 * 2 * 6 + 40}, f32);
    f.heads.values.tensor = room.slice(0, 84).reshaped({7, 2, 6});
    set_state(y, rows, room.slice(80, 40).reshaped({2, 4, 5}));
    f.refuses_attend("the state and values" + kApart);
    set_state(y, rows, rows);
    f.refuses_attend("maximum and sum" + kApart);
}

TEST_CASE("A wrong attention state is refused at the finish", "[sim][device][errors]") {
    Bench bench;
    const Tensor y = bench->zeros({5, 2, 12}, f32);
    const Tensor rows = bench->zeros({2, 4, 5}, f32);
    const auto finish = [&](const std::string& sentence, const OnlineAttention& state) {
        refuses("finish_attention: " + sentence, [&] { bench->finish_attention(state); });
    };
    for (const Shape& wrong : {Shape{2, 5, 5}, Shape{2, 4, 6}, Shape{1, 4, 5}, Shape{40}})
        finish(fmt::format("y has shape (5, 2, 12) and maximum {}; (queries, batches, "
                           "columns) and (batches, heads, queries) are expected",
                           wrong.text()),
               {y, bench->zeros(wrong, f32), rows});
    finish("sum has shape (2, 4, 4), but maximum has (2, 4, 5)",
           {y, rows, bench->zeros({2, 4, 4}, f32)});
    finish("maximum is f64; f32 is expected",
           {y, bench->zeros({2, 4, 5}, f64), bench->zeros({2, 4, 5}, f32)});
    finish("sum is f64, but maximum is f32", {y, rows, bench->zeros({2, 4, 5}, f64)});
    finish("maximum and sum" + kApart, {y, rows, rows});
    finish("sum is none; a tensor is expected", {y, rows, {}});
}

TEST_CASE("Attention's gradients of other shapes are refused", "[sim][device][errors]") {
    const auto check = [](const std::string& sentence, auto&& change) {
        Fitting f;
        change(f);
        f.refuses_backward(sentence);
    };
    const std::string than_queries = ", but queries has 5, 2 and 4 of width 3";
    const std::string than_keys = ", but keys has 7, 2 and 2 of width 3";
    check("dq has 6 rows, 2 batches and 4 heads of width 3" + than_queries,
          [](Fitting& f) { f.gradients.queries = f.zeros(6, 4); });
    check("dk has 8 rows, 2 batches and 2 heads of width 3" + than_keys, [](Fitting& f) {
        f.gradients.keys = f.zeros(8, 2);
        f.gradients.values = f.zeros(8, 2);
    });
    check("dk has 7 rows, 2 batches and 4 heads of width 3" + than_keys, [](Fitting& f) {
        f.gradients.keys = f.zeros(7, 4);
        f.gradients.values = f.zeros(7, 4);
    });
    check(
        "dv has 6 rows, 2 batches and 2 heads of width 3, but values has 7, 2 and 2 of "
        "width 3",
        [](Fitting& f) { f.gradients.values = f.zeros(6, 2); });
    check("dq has 5 rows, 2 batches and 4 heads of width 4" + than_queries,
          [](Fitting& f) {
              f.gradients = {f.zeros(5, 4, 4), f.zeros(7, 2, 4), f.zeros(7, 2, 4)};
          });
    check("dq is f64; f32 is expected", [](Fitting& f) {
        f.gradients = {f.zeros(5, 4, 3, f64), f.zeros(7, 2, 3, f64),
                       f.zeros(7, 2, 3, f64)};
    });
    check("dy has shape (5, 2, 9); (5, 2, 12) is expected", [](Fitting& f) {
        f.backward.dy = f.bench->zeros({5, 2, 9}, f32);
    });
    check("log_sum_exp has shape (4, 5); (2, 4, 5) is expected", [](Fitting& f) {
        f.backward.log_sum_exp = f.bench->zeros({4, 5}, f32);
    });
    check("dy_y is f64; f32 is expected", [](Fitting& f) {
        f.backward.dy_y = f.bench->zeros({2, 4, 5}, f64);
    });
}

TEST_CASE("Attention's gradients that share memory are refused",
          "[sim][device][errors]") {
    const auto check = [](const std::string& sentence, auto&& change) {
        Fitting f;
        change(f);
        f.refuses_backward(sentence + kApart);
    };
    check("dv and keys",
          [](Fitting& f) { f.gradients.values.tensor = f.heads.keys.tensor; });
    check("dq and dy", [](Fitting& f) { f.gradients.queries.tensor = f.backward.dy; });
    const auto within = [](Fitting& f, std::int64_t from) {
        return f.gradients.queries.tensor.slice(from, 40).reshaped({2, 4, 5});
    };
    check("dq and log_sum_exp",
          [&](Fitting& f) { f.backward.log_sum_exp = within(f, 80); });
    check("dq and dy_y", [&](Fitting& f) { f.backward.dy_y = within(f, 0); });
}

TEST_CASE("Products of rows that do not fit are refused", "[sim][device][errors]") {
    Fitting f;
    const Heads x = f.zeros(5, 4);
    const auto check = [&](const std::string& sentence, const Heads& y) {
        refuses("head_row_products: " + sentence,
                [&] { f.bench->head_row_products(x, y); });
    };
    const std::string than_x = ", but x has 5, 2 and 4 of width 3";
    check("y has 6 rows, 2 batches and 4 heads of width 3" + than_x, f.zeros(6, 4));
    check("y has 5 rows, 2 batches and 2 heads of width 3" + than_x, f.zeros(5, 2));
    check("y has 5 rows, 2 batches and 4 heads of width 4" + than_x, f.zeros(5, 4, 4));
    check("y is f64; f32 is expected", f.zeros(5, 4, 3, f64));
}

TEST_CASE("Attention with another device's tensor is refused", "[sim][device][errors]") {
    PlainMonitor monitor;
    const std::unique_ptr<Device> other = make_device(3, monitor);
    const Tensor rows = other->zeros({2, 4, 5}, f32);
    const auto change = [&](auto&& part) {
        Fitting f;
        part(f) = other->zeros(part(f).shape(), f32);
        return f;
    };
    const std::string sentence =
        " belongs to device 3, but device 0 was asked; devices share nothing but "
        "messages";
    change([](Fitting& f) -> Tensor& {
        return f.heads.queries.tensor;
    }).refuses_attend("queries" + sentence);
    change([](Fitting& f) -> Tensor& {
        return f.heads.values.tensor;
    }).refuses_attend("values" + sentence);
    change([](Fitting& f) -> Tensor& {
        return f.state.sum;
    }).refuses_attend("sum" + sentence);
    change([](Fitting& f) -> Tensor& {
        return f.gradients.keys.tensor;
    }).refuses_backward("dk" + sentence);
    change([](Fitting& f) -> Tensor& {
        return f.backward.dy_y;
    }).refuses_backward("dy_y" + sentence);
    Bench bench;
    const Heads foreign{other->zeros({5, 2, 12}, f32), 4, 3, 0};
    refuses("begin_attention: queries" + sentence,
            [&] { bench->begin_attention(foreign); });
    refuses("finish_attention: maximum" + sentence, [&] {
        bench->finish_attention(
            {bench->zeros({5, 2, 12}, f32), rows, bench->zeros({2, 4, 5}, f32)});
    });
    refuses("head_row_products: x" + sentence,
            [&] { bench->head_row_products(foreign, foreign); });
}

TEST_CASE("Impossible tokens on pages are refused", "[sim][device][errors]") {
    const bool numbers = GENERATE(true, false);
    Bench bench(numbers);
    const Tensor pages = bench->zeros({5, 4, 6}, DType::f32);
    const Tensor x = bench->zeros({3, 1, 12}, DType::f32);
    const auto attend = [&](const std::vector<PagedSequence>& sequences) {
        bench->attend_pages({{x, 4, 3}, {pages, 1, 3}, {pages, 1, 3, 3}},
                            std::make_shared<const PagedTokens>(PagedTokens{sequences}));
    };
    const auto store = [&](const std::vector<PagedSequence>& sequences) {
        bench->store_pages(pages, x, 6,
                           std::make_shared<const PagedTokens>(PagedTokens{sequences}));
    };
    attend({{0, 3, {0}}});
    refuses("attend_pages: tokens has 2 rows; 3 are expected", [&] {
        attend({{0, 2, {0}}});
    });
    refuses(
        "attend_pages: a sequence of 2 rows; after the earlier ones, 1 of 3 rows remain",
        [&] {
            attend({{0, 2, {0}}, {0, 2, {1}}});
        });
    refuses("attend_pages: a sequence of 5 tokens does not fit on 1 pages of 4 rows",
            [&] {
                attend({{2, 3, {0}}});
            });
    refuses("attend_pages: page 5, outside [0, 5)", [&] { attend({{0, 3, {5}}}); });
    refuses("attend_pages: page -1, outside [0, 5)", [&] { attend({{0, 3, {-1}}}); });
    refuses(
        "attend_pages: 3 tokens from token 18 on do not fit on 5 pages of 4 rows, which "
        "hold 20",
        [&] {
            attend({{18, 3, {0, 1, 2, 3, 4, 0}}});
        });
    refuses("attend_pages: 3 tokens from token -1 on", [&] { attend({{-1, 3, {0}}}); });
    refuses("attend_pages: tokens is null", [&] {
        bench->attend_pages({{x, 4, 3}, {pages, 1, 3}, {pages, 1, 3, 3}}, nullptr);
    });
    refuses(
        "store_pages: two tokens would be written to row 1 of page 2; sequences may only "
        "read a shared page, and must copy it before one of them writes to it",
        [&] {
            store({{0, 2, {2}}, {1, 1, {2}}});
        });
    refuses("store_pages: source has 12 columns, but 6 from column 7 on are needed", [&] {
        bench->store_pages(
            pages, x, 7, std::make_shared<const PagedTokens>(PagedTokens{{{0, 3, {0}}}}));
    });
    const auto tokens = std::make_shared<const PagedTokens>(PagedTokens{{{0, 3, {0}}}});
    refuses("attend_pages: keys have heads of width 2, but queries of 3", [&] {
        bench->attend_pages({{x, 4, 3}, {pages, 1, 2}, {pages, 1, 2, 3}}, tokens);
    });
    refuses("attend_pages: values have 2 heads on 5 pages of 4 rows, but keys have 1",
            [&] {
                bench->attend_pages({{x, 4, 3}, {pages, 1, 3}, {pages, 2, 1, 3}}, tokens);
            });
    refuses(
        "attend_pages: turned queries have 3 heads of width 2 and turned keys 1 of width "
        "2, which do not fit the other queries and keys with 4 and 1 heads",
        [&] {
            bench->attend_pages({{x, 4, 3}, {pages, 1, 3}, {pages, 1, 3, 3}},
                                {{x, 3, 2}, {pages, 1, 2}}, tokens);
        });
    refuses(
        "head_matmul: matrices have shape (5, 4, 6), which does not fit 4 heads of width "
        "3",
        [&] {
            bench->head_matmul({x, 4, 3}, pages);
        });
    refuses(
        "head_matmul: matrices have shape (5, 3), transposed, which does not fit 4 heads "
        "of width 3",
        [&] {
            bench->head_matmul({x, 4, 3}, bench->zeros({5, 3}, DType::f32),
                               {.transpose_b = true});
        });
    refuses("rotate: positions has shape (2), that is 2 elements; 3 are expected", [&] {
        bench->rotate_at({x, 3, 4}, {x, 3, 4}, bench->zeros({2}, DType::i32));
    });
}

TEST_CASE("Refused attention costs nothing", "[sim][device][errors]") {
    Fitting f;
    const std::size_t operations = f.bench.monitor.operations.size();
    const int allocations = f.bench.monitor.allocations;
    f.options = {1, true, {TokenOrder::zigzag, 2, 3, 0}};
    REQUIRE_THROWS_AS(f.bench->attend(f.state, f.heads, f.options), UsageError);
    REQUIRE_THROWS_AS(
        f.bench->attend_backward(f.gradients, f.heads, f.backward, f.options),
        UsageError);
    REQUIRE_THROWS_AS(f.bench->begin_attention({f.state.sum, 9, 9, 0}), UsageError);
    REQUIRE_THROWS_AS(f.bench->head_row_products(f.heads.queries, f.heads.keys),
                      UsageError);
    REQUIRE(f.bench.monitor.operations.size() == operations);
    REQUIRE(f.bench.monitor.allocations == allocations);
}

}  // namespace lockstep::test
