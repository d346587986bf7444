// Compares FlashAttention with CoreAttention. In some cases there are fewer heads of keys
// than of queries.

#include "src/nn/flash_attention.hpp"

#include <vector>

#include "src/nn/gpt.hpp"
#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

namespace {

constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};

struct Attended {
    HostTensor y;
    HostTensor dx;
};

Attended attend(Device& device, Module& attention, const HostTensor& x,
                const HostTensor& dy) {
    Saved saved;
    const HostTensor y = device.download(attention.forward(device.upload(x), saved));
    return {y, device.download(attention.backward(device.upload(dy), saved))};
}

/// Returns the rows in the order of ranks: first rank 0's rows, then rank 1's, ….
HostTensor by_ranks(const HostTensor& sequence, TokenOrder order, int ranks) {
    HostTensor rows(sequence.shape(), sequence.dtype());
    const std::int64_t tokens = sequence.shape()[0];
    const TokenRows token = TokenDeal{order, ranks, 0}.all(tokens / ranks);
    const std::int64_t width = sequence.elements() / tokens;
    for (std::int64_t row = 0; row < tokens; ++row)
        for (std::int64_t i = 0; i < width; ++i)
            rows.set(row * width + i, sequence.at(token[row] * width + i));
    return rows;
}

}  // namespace

TEST_CASE("FlashAttention's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    for (const bool causal : {false, true}) {
        CAPTURE(causal);
        FlashAttention flash(one.device, {2, causal});
        require_true_gradients(one.device, flash, normal_values({4, 2, 18}, "x"));
        FlashAttention grouped(one.device, {4, causal, 2});
        require_true_gradients(one.device, grouped, normal_values({3, 2, 16}, "x"));
        for (const TokenOrder order : kOrders) {
            FlashAttention dealt(one.device, {2, causal}, order, 2);
            require_true_gradients(one.device, dealt, normal_values({4, 2, 12}, "x"));
        }
    }
}

TEST_CASE("FlashAttention equals CoreAttention", "[nn][sim]") {
    OneDevice one;
    const DType dtype = GENERATE(DType::f64, DType::f32);
    const bool causal = GENERATE(false, true);
    const std::int64_t kv_heads = GENERATE(0, 2, 1);
    // 300 tokens are more than a tile has queries or keys.
    const std::int64_t tokens = GENERATE(1, 7, 300);
    const AttentionSizes sizes{4, causal, kv_heads};
    const std::int64_t columns = (4 + 2 * sizes.key_heads()) * 5;
    const HostTensor x = normal_values({tokens, 2, columns}, "x", dtype);
    const HostTensor dy = normal_values({tokens, 2, 20}, "dy", dtype);
    CoreAttention core(one.device, sizes);
    FlashAttention flash(one.device, sizes);
    const Attended expected = attend(one.device, core, x, dy);
    const Attended got = attend(one.device, flash, x, dy);
    CAPTURE(name_of(dtype), causal, kv_heads, tokens);
    const double bound = dtype == DType::f64 ? 1e-13 : 1e-5;
    CHECK(relative_difference(got.y, expected.y) <= bound);
    CHECK(relative_difference(got.dx, expected.dx) <= bound);
}

TEST_CASE("FlashAttention sees tokens in the order that ranks have them", "[nn][sim]") {
    OneDevice one;
    const HostTensor x = normal_values({24, 2, 18}, "x");
    const HostTensor dy = normal_values({24, 2, 6}, "dy");
    CoreAttention core(one.device, {2, true});
    const Attended expected = attend(one.device, core, x, dy);
    for (const TokenOrder order : kOrders)
        for (const int ranks : {1, 2, 3, 4}) {
            FlashAttention flash(one.device, {2, true}, order, ranks);
            const Attended got = attend(one.device, flash, by_ranks(x, order, ranks),
                                        by_ranks(dy, order, ranks));
            CAPTURE(name_of(order), ranks);
            CHECK(relative_difference(got.y, by_ranks(expected.y, order, ranks)) <=
                  1e-13);
            CHECK(relative_difference(got.dx, by_ranks(expected.dx, order, ranks)) <=
                  1e-13);
        }
}

TEST_CASE("FlashAttention saves x, y and one number per row and head", "[nn][sim]") {
    OneDevice one;
    FlashAttention flash(one.device, {4, true, 2});
    const auto held = [&] {
        std::int64_t elements = 0;
        for (const Storage* storage = one.device.live(); storage; storage = storage->next)
            elements += storage->bytes / bytes_of(DType::f64);
        return elements;
    };
    constexpr std::int64_t kTokens = 10, kBatch = 2, kWidth = 3;
    Saved saved;
    Tensor y =
        flash.forward(one.device.zeros({kTokens, kBatch, 8 * kWidth}, DType::f64), saved);
    CHECK(held() == kTokens * kBatch * (8 * kWidth + 4 * kWidth + 4));
    flash.backward(y, saved);
    y = {};
    CHECK(held() == 0);
}

TEST_CASE("FlashAttention refuses a sequence that cannot be sharded", "[nn][errors]") {
    OneDevice one;
    CHECK_THAT(refusal([&] {
                   FlashAttention(one.device, {2, true}, TokenOrder::striped, 0);
               }),
               says("attention over the tokens of 0 ranks; one is expected at least"));
    CHECK_THAT(refusal([&] {
                   FlashAttention(one.device, {4, true, 3});
               }),
               says("3 heads of keys and values for 4 of queries"));
    FlashAttention flash(one.device, {2, true}, TokenOrder::zigzag, 3);
    Saved saved;
    CHECK_THAT(refusal([&] {
                   flash.forward(one.device.zeros({9, 1, 18}, DType::f64), saved);
               }),
               says("attention: a sequence of 9 tokens cannot be sharded over 3 ranks in "
                    "zigzag order; a positive multiple of 6 is expected"));
}

namespace {

/// Returns x (s, b, (a + 2 g) width) as (s, b, 3 a width). Each head of keys and values
/// is repeated for each head of queries that uses it.
HostTensor with_heads_repeated(const HostTensor& x, const AttentionSizes& sizes,
                               std::int64_t width) {
    const std::int64_t a = sizes.heads, g = sizes.key_heads();
    HostTensor repeated(x.shape().with_last(3 * a * width), x.dtype());
    for (std::int64_t row = 0; row < x.shape().matrix_rows(); ++row)
        for (std::int64_t head = 0; head < 3 * a; ++head) {
            const std::int64_t part = head / a, own = head % a;
            const std::int64_t from =
                part == 0 ? own : a + (part - 1) * g + own / (a / g);
            for (std::int64_t i = 0; i < width; ++i)
                repeated.set(row * 3 * a * width + head * width + i,
                             x.at(row * x.shape().columns() + from * width + i));
        }
    return repeated;
}

/// Returns the gradient of x, from the gradient of with_heads_repeated(x): the copies of
/// each head are added up.
HostTensor with_heads_summed(const HostTensor& dx, const AttentionSizes& sizes,
                             std::int64_t width) {
    const std::int64_t a = sizes.heads, g = sizes.key_heads();
    const std::int64_t columns = (a + 2 * g) * width;
    HostTensor summed(dx.shape().with_last(columns), dx.dtype());
    for (std::int64_t row = 0; row < dx.shape().matrix_rows(); ++row)
        for (std::int64_t head = 0; head < 3 * a; ++head) {
            const std::int64_t part = head / a, own = head % a;
            const std::int64_t to = part == 0 ? own : a + (part - 1) * g + own / (a / g);
            for (std::int64_t i = 0; i < width; ++i) {
                const std::int64_t at = row * columns + to * width + i;
                summed.set(at,
                           summed.at(at) + dx.at(row * 3 * a * width + head * width + i));
            }
        }
    return summed;
}

}  // namespace

TEST_CASE("Grouped queries equal attention with repeated heads of keys", "[nn][sim]") {
    OneDevice one;
    const bool causal = GENERATE(false, true);
    const std::int64_t kv_heads = GENERATE(1, 2, 3, 6);
    constexpr std::int64_t kWidth = 2;
    const AttentionSizes sizes{6, causal, kv_heads};
    const HostTensor x = normal_values({5, 2, (6 + 2 * kv_heads) * kWidth}, "x");
    const HostTensor dy = normal_values({5, 2, 6 * kWidth}, "dy");
    CoreAttention grouped(one.device, sizes), full(one.device, {6, causal});
    const Attended expected =
        attend(one.device, full, with_heads_repeated(x, sizes, kWidth), dy);
    const Attended got = attend(one.device, grouped, x, dy);
    CAPTURE(causal, kv_heads);
    CHECK(relative_difference(got.y, expected.y) <= 1e-14);
    CHECK(relative_difference(got.dx, with_heads_summed(expected.dx, sizes, kWidth)) <=
          1e-14);
}

TEST_CASE("Grouped attention's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    for (const std::int64_t kv_heads : {1, 2}) {
        CAPTURE(kv_heads);
        CoreAttention core(one.device, {4, true, kv_heads});
        require_true_gradients(one.device, core,
                               normal_values({4, 2, (4 + 2 * kv_heads) * 2}, "x"));
        const auto attention = make_attention(one.init("attn"), 8, {4, true, kv_heads});
        CHECK(attention->parameters().front()->shape() == Shape{8 + 4 * kv_heads, 8});
        require_true_gradients(one.device, *attention, normal_values({3, 2, 8}, "x"));
        GptKit kit;
        kit.core = [](Device& device, const AttentionSizes& sizes) {
            return std::make_unique<FlashAttention>(device, sizes);
        };
        const auto flash = make_attention(one.init("attn"), 8, {4, true, kv_heads}, kit);
        require_true_gradients(one.device, *flash, normal_values({3, 2, 8}, "x"));
    }
}

}  // namespace lockstep::nn_test
