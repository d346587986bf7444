// Mistakes that students may make with sharded tokens, and their messages.

#include "src/core/require.hpp"
#include "src/nn/gpt.hpp"
#include "src/run/diagnosis.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/attention.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kWidth = 3;

/// One rank's arguments for attention.
struct Brought {
    std::int64_t tokens = 4;
    AttentionSizes sizes{4, true};
    std::int64_t columns = 12 * kWidth;
    TokenOrder order = TokenOrder::contiguous;
};

/// Runs forward and backward with each rank's arguments.
void attend(ContextMethod method, int ranks,
            const std::function<Brought(int rank)>& brought) {
    classroom(ranks)->run([&](Rank& rank) {
        const Brought own = brought(rank.index());
        Device& device = rank.device();
        const auto attention =
            make_context_attention(method, device, rank.world(), own.sizes, own.order);
        Saved saved;
        const Tensor y = attention->forward(
            device.zeros({own.tokens, 2, own.columns}, DType::f32), saved);
        attention->backward(device.zeros(y.shape(), y.dtype()), saved);
    });
}

std::string refusal_of(ContextMethod method, int ranks, const Brought& all) {
    return refusal([&] { attend(method, ranks, [&](int) { return all; }); });
}

HostTensor sequence_of(std::int64_t tokens) {
    return HostTensor({tokens, 2}, DType::f32);
}

}  // namespace

TEST_CASE("Sequences that cannot be sharded equally are refused", "[parallel][errors]") {
    const auto dealing = [](std::int64_t tokens, int ranks, TokenOrder order) {
        return refusal([&] { dealt_rows(sequence_of(tokens), {order, ranks, 0}); });
    };
    CHECK_THAT(dealing(10, 4, TokenOrder::contiguous),
               says("dealing tokens: a sequence of 10 tokens cannot be sharded over 4 "
                    "ranks in contiguous order; a positive multiple of 4 is expected"));
    CHECK_THAT(dealing(2, 4, TokenOrder::striped),
               says("2 tokens cannot be sharded over 4 ranks in striped order; a "
                    "positive multiple of 4"));
    CHECK_THAT(dealing(0, 4, TokenOrder::contiguous),
               says("a sequence of 0 tokens cannot be sharded over 4 ranks"));
    // Each of four ranks would get three tokens, which are not two equal stretches.
    CHECK_THAT(dealing(12, 4, TokenOrder::zigzag),
               says("12 tokens cannot be sharded over 4 ranks in zigzag order; a "
                    "positive multiple of 8"));
}

TEST_CASE("Odd shares in zigzag order are refused by every method",
          "[parallel][errors]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    Brought odd;
    odd.tokens = 3;
    odd.order = TokenOrder::zigzag;
    CAPTURE(name_of(method));
    // With Ulysses a device has some heads of all tokens, so the message names the
    // sequence.
    CHECK_THAT(refusal_of(method, 2, odd),
               says(method == ContextMethod::ulysses
                        ? "a sequence of 6 tokens cannot be sharded over 2 ranks in "
                          "zigzag order; a positive multiple of 4 is expected"
                        : "3 tokens on each of 2 ranks in zigzag order; each rank gets "
                          "two equal stretches, so an even number"));
    odd.tokens = 4;
    CHECK_NOTHROW(attend(method, 2, [&](int) { return odd; }));
}

TEST_CASE("Unknown orders and methods are refused with a list of the known ones",
          "[parallel][errors]") {
    CHECK_THAT(refusal([] { token_order("diagonal"); }),
               says("order of tokens 'diagonal'; contiguous, striped or zigzag"));
    CHECK_THAT(refusal([] { context_method("flash"); }),
               says("attention 'flash'; ring-self-attention, ring-attention, gather or "
                    "ulysses is expected"));
    for (const ContextMethod method : all_context_methods())
        CHECK(context_method(name_of(method)) == method);
    CHECK_THAT(refusal([] {
                   classroom(1)->run([](Rank& rank) {
                       make_context_attention(static_cast<ContextMethod>(9),
                                              rank.device(), rank.world(), {4, true});
                   });
               }),
               says("unknown method of context parallelism"));
}

TEST_CASE("Ranks outside of the group have no share", "[parallel][errors]") {
    const auto dealing = [](int ranks, int rank) {
        return refusal([&] {
            dealt_rows(sequence_of(8), {TokenOrder::contiguous, ranks, rank});
        });
    };
    CHECK_THAT(dealing(4, 4), says("rank 4 of 4 ranks cannot have tokens"));
    CHECK_THAT(dealing(4, -1), says("rank -1 of 4 ranks cannot have tokens"));
    CHECK_THAT(dealing(0, 0), says("rank 0 of 0 ranks cannot have tokens; ranks count "
                                   "from 0, and at least one is expected"));
}

TEST_CASE("Shares that do not make a whole sequence are refused", "[parallel][errors]") {
    const auto whole = [](const std::vector<HostTensor>& of_ranks,
                          TokenOrder order = TokenOrder::contiguous) {
        return refusal([&] { whole_sequence(of_ranks, order); });
    };
    CHECK_THAT(whole({}), says("whole_sequence() got tokens of no rank"));
    CHECK_THAT(
        whole({sequence_of(8), sequence_of(6)}),
        says("rank 1 has tokens of shape (6, 2), f32, but rank 0 has (8, 2), f32"));
    CHECK_THAT(
        whole({sequence_of(8), sequence_of(8).as(DType::f64)}),
        says("rank 1 has tokens of shape (8, 2), f64, but rank 0 has (8, 2), f32"));
    CHECK_THAT(whole({sequence_of(3), sequence_of(3)}, TokenOrder::zigzag),
               says("3 tokens on each of 2 ranks in zigzag order"));
}

TEST_CASE("Ulysses refuses heads that the ranks do not divide", "[parallel][errors]") {
    const ContextMethod ulysses = ContextMethod::ulysses;
    CHECK_THAT(refusal_of(ulysses, 3, {}),
               says("Ulysses attention cannot shard 4 heads over 3 ranks; a multiple of "
                    "3 is expected"));
    Brought grouped;
    grouped.sizes.kv_heads = 2;
    grouped.columns = 8 * kWidth;
    CHECK_THAT(refusal_of(ulysses, 4, grouped),
               says("Ulysses attention cannot shard 2 heads of keys and values over 4 "
                    "ranks; a multiple of 4 is expected"));
    // The other methods do not shard heads.
    for (const ContextMethod method : all_context_methods())
        if (method != ulysses) {
            CHECK(refusal_of(method, 3, {}) == "nothing was refused");
            CHECK(refusal_of(method, 4, grouped) == "nothing was refused");
        }
}

TEST_CASE("Heads that do not fit each other are refused by every method",
          "[parallel][errors]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const auto refused = [&](std::int64_t heads, std::int64_t kv_heads) {
        Brought brought;
        brought.sizes = {heads, true, kv_heads};
        return refusal_of(method, 2, brought);
    };
    CAPTURE(name_of(method));
    CHECK_THAT(refused(0, 0), says("attention has 0 heads; at least 1 is expected"));
    CHECK_THAT(refused(4, 3),
               says("attention has 3 heads of keys and values for 4 of queries; the "
                    "first number must divide the second, or be 0 for the same number"));
    CHECK_THAT(refused(4, 8), says("8 heads of keys and values for 4 of queries"));
    CHECK_THAT(refused(4, -1), says("-1 heads of keys and values for 4 of queries"));
}

TEST_CASE("An x with other columns is refused by every method", "[parallel][errors]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    Brought brought;
    brought.columns = 35;
    CAPTURE(name_of(method));
    CHECK_THAT(refusal_of(method, 2, brought),
               says("attention got x of shape (4, 2, 35); (sequence, batch, columns) is "
                    "expected, with queries of 4 heads and keys and values of 4: a "
                    "multiple of 12 columns"));
}

TEST_CASE("Different numbers of tokens on two ranks are reported with both lines",
          "[parallel][errors]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const int ranks = GENERATE(2, 4);
    Diagnosis found;
    try {
        attend(method, ranks, [](int rank) {
            Brought own;
            own.tokens = rank == 1 ? 6 : 4;
            return own;
        });
    } catch (const FaultError& fault) {
        found = fault.diagnosis();
    }
    // Rings send messages between two ranks; the other methods use collectives.
    const bool ring = method == ContextMethod::ring_self_attention ||
                      method == ContextMethod::ring_attention;
    CAPTURE(name_of(method), found.text());
    CHECK(found.fault == (ring ? "F09" : "F02"));
    REQUIRE(found.parties.size() == 2);
    for (const Diagnosis::Party& party : found.parties)
        CHECK_THAT(party.inside.text(), says("attention.cpp:"));
    CHECK(found.parties[0].operation != found.parties[1].operation);
    CHECK_THAT(found.sentence, says("rank 1"));
    CHECK(found.parties[0].ranks.front() + found.parties[1].ranks.front() == 0 + 1);
}

TEST_CASE("A GPT with sharded tokens refuses what it does not support",
          "[parallel][errors]") {
    const auto run = [](ContextMethod method, const GptSizes& sizes, TokenOrder order,
                        std::int64_t share) {
        return refusal([&] {
            classroom(2)->run([&](Rank& rank) {
                const GptKit kit = context_parallel({}, rank.world(), method, order);
                const auto gpt = make_gpt({rank.device(), DType::f32, 5, ""}, sizes, kit);
                Saved saved;
                gpt->forward(rank.device().zeros({share, 1}, DType::i32), saved);
            });
        });
    };
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    CAPTURE(name_of(method));
    GptSizes sizes{11, /*context=*/7, 1, {8, 2}};
    CHECK_THAT(run(method, sizes, TokenOrder::contiguous, 4),
               says("transformer.wpe.weight has 7 positions, but the sequence needs 8"));
    sizes.context = 8;
    CHECK(run(method, sizes, TokenOrder::contiguous, 4) == "nothing was refused");
    CHECK_THAT(run(method, sizes, TokenOrder::zigzag, 3),
               says("3 tokens on each of 2 ranks in zigzag order"));
    sizes.block.heads = 3;
    CHECK_THAT(run(method, sizes, TokenOrder::contiguous, 4),
               says("transformer.h.0.attn: attention of 3 heads over 8 columns"));
    sizes.block.heads = 4;
    sizes.block.kv_heads = 3;
    CHECK_THAT(run(method, sizes, TokenOrder::contiguous, 4),
               says("transformer.h.0.attn: attention has 3 heads of keys and values for "
                    "4 of queries"));
}

TEST_CASE("Tokens of several ranks without an attention that sees them are refused",
          "[parallel][sim][errors]") {
    const BlockSizes sizes{8, 2};
    CHECK_THAT(refusal([&] {
                   classroom(2)->run([&](Rank& rank) {
                       GptKit kit;
                       kit.tokens = {TokenOrder::striped, 2, rank.index()};
                       make_block({rank.device(), DType::f32, 5, "h.0"}, sizes, kit);
                   });
               }),
               says("h.0: tokens are sharded over 2 ranks, but attention does not see "
                    "the other ranks' tokens; use context_parallel()"));
}

}  // namespace lockstep::test
