// Mistakes with sharded tokens that raise no error in training. Either the comparison
// with one device or the checker must find each mistake.

#include <utility>
#include <vector>

#include "src/parallel/ring_attention.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/parallel/attention.hpp"
#include "tests/parallel/gpt_training.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

constexpr int kRanks = 4;

enum class Mistake {
    none,
    hop_too_few,         ///< on all ranks
    hop_too_few_on_one,  ///< on rank 1 only
    no_wait,             ///< attends to blocks that have not arrived
    no_rescaling,        ///< each block's sums stay relative to its own maxima
    local_mask           ///< counts every block's tokens from 0
};

/// Ring Attention with a mistake in its forward.
class ErringForward : public RingAttention {
  public:
    ErringForward(Device& device, Communicator& group, const AttentionSizes& sizes,
                  TokenOrder order, Mistake mistake)
        : RingAttention(device, group, sizes, order), mistake_(mistake) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        const Heads queries = attention_heads(x, sizes()).queries;
        const OnlineAttention state = device().begin_attention(queries);
        travel(keys_and_values(x), [&](const Tensor& block, int rank) {
            AttentionOptions seen = seeing_rank(queries, rank);
            if (mistake_ == Mistake::local_mask) seen.queries = seen.keys = TokenRows{};
            if (mistake_ == Mistake::no_rescaling)
                attend_apart(state, with_block(queries, block), seen);
            else
                device().attend(state, with_block(queries, block), seen);
        });
        return keep_online_attention(device(), state, x, saved);
    }

    void travel(Tensor block, FunctionRef<void(const Tensor&, int)> visit) const {
        const bool fewer =
            mistake_ == Mistake::hop_too_few ||
            (mistake_ == Mistake::hop_too_few_on_one && ring().rank() == 1);
        const int visits = ring().size() - (fewer ? 1 : 0);
        std::vector<Arriving> under_way;
        for (int hops = 0; hops < visits; ++hops) {
            Arriving coming = hops + 1 == visits ? Arriving{} : ring().hand_on(block);
            visit(block, ring().origin(hops));
            block = mistake_ == Mistake::no_wait ? coming.tensor : coming.wait();
            under_way.push_back(std::move(coming));
        }
        for (Arriving& arriving : under_way)
            arriving.wait();
    }

    /// Adds one block's y and sum to the state's y and sum, without rescaling.
    void attend_apart(const OnlineAttention& state, const AttentionHeads& heads,
                      const AttentionOptions& seen) const {
        const OnlineAttention part = device().begin_attention(heads.queries);
        device().attend(part, heads, seen);
        device().add(state.y, part.y);
        device().add(state.sum, part.sum);
        device().copy(state.maximum, part.maximum);
    }

    Mistake mistake_;
};

/// Ring Attention in which the gradients of keys and values make only `hops` of the N
/// hops back to their rank. If `hops` is 0, only the rank's own queries contribute.
class HopsHome : public RingAttention {
  public:
    HopsHome(Device& device, Communicator& group, const AttentionSizes& sizes,
             TokenOrder order, int hops)
        : RingAttention(device, group, sizes, order), hops_(hops) {}

  private:
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        const Tensor& x = saved.at("x");
        const Heads queries = attention_heads(x, sizes()).queries;
        Tensor dx = device().zeros(x.shape(), x.dtype());
        const Heads d_queries = attention_heads(dx, sizes()).queries;
        const AttentionBackward back = begin_backward(device(), dy, sizes(), saved);
        Arriving behind;
        int visits = 0;
        ring().travel(keys_and_values(x), [&](const Tensor& block, int rank) {
            const Tensor d_block = zero_block(block);
            device().attend_backward(with_block(d_queries, d_block),
                                     with_block(queries, block), back,
                                     seeing_rank(queries, rank));
            if (behind.tensor) device().add(d_block, behind.wait());
            behind = visits < hops_ ? ring().hand_on(d_block) : Arriving{};
            if (visits++ == hops_) put_keys_and_values(dx, d_block);
        });
        if (behind.tensor) put_keys_and_values(dx, behind.wait());
        drop_online_attention(saved);
        return dx;
    }

    int hops_;
};

Problem problem(bool causal = true) {
    return {16, 2, {4, causal, 2}, 3};
}

template <typename Ring, typename Error>
MakeAttending erring(Error error, TokenOrder order = TokenOrder::contiguous,
                     AttentionSizes sizes = problem().sizes) {
    return [=](Device& device, Communicator& group) {
        return std::make_unique<Ring>(device, group, sizes, order, error);
    };
}

}  // namespace

TEST_CASE("A wrong ring is far from one device, and a correct one is near",
          "[parallel][sim]") {
    const auto order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    const bool causal = GENERATE(false, true);
    const Problem given = problem(causal);
    // CheckLevel::cheap, because full checks would stop some of these programs.
    const auto distance = [&](const MakeAttending& make) {
        return difference(attend_by(given, kRanks, order, make, sim::CheckLevel::cheap),
                          attend_alone(given))
            .relative;
    };
    const auto forward = [&](Mistake mistake) {
        return distance(erring<ErringForward>(mistake, order, given.sizes));
    };
    const auto backward = [&](int hops) {
        return distance(erring<HopsHome>(hops, order, given.sizes));
    };
    CAPTURE(name_of(order), causal);
    CHECK(forward(Mistake::none) <= 1e-12);
    CHECK(forward(Mistake::hop_too_few) > 1e-3);
    CHECK(forward(Mistake::no_rescaling) > 1e-3);
    // Without a causal mask, local positions make no difference.
    const double local = forward(Mistake::local_mask);
    CHECK((causal ? local > 1e-3 : local <= 1e-12));
    CHECK(backward(kRanks) <= 1e-12);
    CHECK(backward(kRanks - 1) > 1e-3);
    CHECK(backward(0) > 1e-3);
}

TEST_CASE("Tokens in another order than the mask's are far from one device",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const auto masked_as = [&](TokenOrder order, bool causal) {
        Problem given = problem(causal);
        given.sizes.kv_heads = 4;
        const Outcome shared = attend_by(
            given, kRanks, TokenOrder::zigzag,
            [&](Device& device, Communicator& group) {
                return make_context_attention(method, device, group, given.sizes, order);
            },
            sim::CheckLevel::cheap);
        return difference(shared, attend_alone(given)).relative;
    };
    CAPTURE(name_of(method));
    CHECK(masked_as(TokenOrder::contiguous, true) > 1e-3);
    CHECK(masked_as(TokenOrder::zigzag, true) <= 1e-12);
    CHECK(masked_as(TokenOrder::contiguous, false) <= 1e-12);
}

TEST_CASE("The checker names what it finds", "[parallel][sim]") {
    const auto said = [](Mistake mistake, sim::CheckLevel check, Passes passes) {
        return message_of<std::exception>([&] {
            attend_by(problem(), kRanks, TokenOrder::contiguous,
                      erring<ErringForward>(mistake), check, passes);
        });
    };
    CHECK(said(Mistake::none, sim::CheckLevel::full, Passes::both) ==
          "(nothing was thrown)");
    const std::string early =
        said(Mistake::no_wait, sim::CheckLevel::full, Passes::forward);
    CHECK_THAT(early, says("F16"));
    CHECK_THAT(early, says("attend"));
    const std::string fewer =
        said(Mistake::hop_too_few_on_one, sim::CheckLevel::cheap, Passes::forward);
    CHECK_THAT(fewer, says("F10"));
    CHECK_THAT(fewer, says("rank 1, which has ended without a recv from rank 0"));
    // The mistake is also found if rank 1 continues with backward.
    CHECK_THAT(said(Mistake::hop_too_few_on_one, sim::CheckLevel::cheap, Passes::both),
               says("F10"));
}

TEST_CASE("A gradient that is not summed over the tokens' ranks is far from one device",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const Lessons lessons{{29, 16, 1, {24, 4, 48}},
                          /*length=*/16,
                          /*batch=*/2,
                          /*steps=*/1,
                          DType::f64};
    const std::string name = "transformer.h.0.attn.c_attn.weight";
    const HostTensor one = train_alone(lessons).results.at("grad/" + name);
    Dealing dealing = dealt_to(kRanks, method, TokenOrder::zigzag);
    const auto far = [&] {
        return relative_difference(
            train_dealt(dealing, lessons).results.at("grad/" + name), one);
    };
    dealing.check = sim::CheckLevel::full;
    CHECK(far() <= 1e-12);
    dealing.check = sim::CheckLevel::cheap;
    dealing.forgotten = name;
    CHECK(far() > 1e-3);
    // Full checking names the ranks that step with their own gradients.
    dealing.check = sim::CheckLevel::full;
    const Outcome stopped = train_dealt(dealing, lessons);
    CHECK(stopped.fault() == "F23");
    CHECK(stopped.stopped->sentence.find(name) != std::string::npos);
}

}  // namespace lockstep::test
