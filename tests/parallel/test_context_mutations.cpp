// Mistakes with shared-out tokens that train without a word: each must make the
// comparison with one device, or the checker, speak.

#include <utility>
#include <vector>

#include "src/parallel/context_attention.hpp"
#include "src/run/diagnosis.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/attention.hpp"
#include "tests/parallel/gpt_training.hpp"

namespace lockstep::test {

namespace {

enum class Mistake {
    none,
    hop_too_few,         ///< forward, of all ranks
    hop_too_few_on_one,  ///< forward, of rank 1
    no_wait,             ///< forward attends to what is still on its way
    no_rescaling,        ///< each block's sums relative to its own maxima
    local_mask,          ///< every block's tokens counted from 0
    gradients_left,      ///< of keys and values, where N - 1 hops take them
    gradients_of_own     ///< of keys and values, by own queries alone
};

/// Ring Attention that may err.
class ErringRing : public ContextAttention {
  public:
    ErringRing(Device& device, Communicator& group, const AttentionSizes& sizes,
               TokenOrder order, Mistake mistake)
        : ContextAttention(device, group, sizes, order), mistake_(mistake) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        const Heads queries = attention_heads(x, sizes()).queries;
        const OnlineAttention state = device().begin_attention(queries);
        travel(keys_and_values(x), [&](const Tensor& block, int rank) {
            if (mistake_ == Mistake::no_rescaling)
                attend_apart(state, queries, block, rank);
            else
                device().attend(state, with_block(queries, block), seeing(queries, rank));
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
            if (mistake_ == Mistake::no_wait) {
                block = coming.tensor;
                under_way.push_back(std::move(coming));
            } else {
                block = coming.wait();
            }
        }
        for (Arriving& arriving : under_way)
            arriving.wait();
    }

    /// Adds a block's own y and sum to the state's.
    void attend_apart(const OnlineAttention& state, const Heads& queries,
                      const Tensor& block, int rank) const {
        const OnlineAttention part = device().begin_attention(queries);
        device().attend(part, with_block(queries, block), seeing(queries, rank));
        device().add(state.y, part.y);
        device().add(state.sum, part.sum);
        if (rank == ring().rank()) device().copy(state.maximum, part.maximum);
    }

    AttentionOptions seeing(const Heads& queries, int rank) const {
        AttentionOptions options = seeing_rank(queries, rank);
        if (mistake_ == Mistake::local_mask) options.queries = options.keys = TokenRows{};
        return options;
    }

    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        const Tensor& x = saved.at("x");
        const Heads queries = attention_heads(x, sizes()).queries;
        Tensor dx = device().zeros(x.shape(), x.dtype());
        const Heads d_queries = attention_heads(dx, sizes()).queries;
        const AttentionBackward back = begin_backward(device(), dy, sizes(), saved);
        Arriving behind;
        ring().travel(keys_and_values(x), [&](const Tensor& block, int rank) {
            const Tensor d_block = zero_block(block);
            device().attend_backward(with_block(d_queries, d_block),
                                     with_block(queries, block), back,
                                     seeing(queries, rank));
            if (behind.tensor) device().add(d_block, behind.wait());
            const bool own = rank == ring().rank();
            const bool last = rank == ring().origin(ring().size() - 1);
            if (mistake_ == Mistake::gradients_of_own) {
                if (own) put_keys_and_values(dx, d_block);
            } else if (mistake_ == Mistake::gradients_left && last) {
                put_keys_and_values(dx, d_block);
            } else {
                behind = ring().hand_on(d_block);
            }
        });
        if (behind.tensor) put_keys_and_values(dx, behind.wait());
        drop_online_attention(saved);
        return dx;
    }

    Mistake mistake_;
};

constexpr int kRanks = 4;

Problem problem(bool causal = true) {
    return {16, 2, {4, causal, 2}, 3};
}

Task erring(Mistake mistake, TokenOrder order, const AttentionSizes& sizes) {
    return [=](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        ErringRing ring(rank.device(), rank.world(), sizes, order, mistake);
        pass_through(ring, in, out);
    };
}

/// What it comes to, without full checks, which some would not survive.
Outcome outcome_of_mistake(Mistake mistake, TokenOrder order, const Problem& given) {
    return outcome_of(*classroom(kRanks, true, sim::CheckLevel::cheap),
                      erring(mistake, order, given.sizes), given.dealt(order),
                      Mistakes::kept);
}

/// What the checker finds in forward alone.
Diagnosis found_in(Mistake mistake, sim::CheckLevel check) {
    const Problem given = problem();
    Case forward = given.dealt(TokenOrder::contiguous);
    forward.inputs.erase("dy");
    return outcome_of(*classroom(kRanks, true, check),
                      erring(mistake, TokenOrder::contiguous, given.sizes), forward,
                      Mistakes::kept)
        .stopped.value_or(Diagnosis{});
}

}  // namespace

TEST_CASE("A ring that errs is far from one device, and one that does not is near",
          "[parallel][sim]") {
    const auto order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    const bool causal = GENERATE(false, true);
    CAPTURE(name_of(order), causal);
    const auto distance = [&](Mistake mistake) {
        const Problem given = problem(causal);
        return difference(outcome_of_mistake(mistake, order, given), attend_alone(given))
            .relative;
    };
    CHECK(distance(Mistake::none) <= 1e-12);
    for (const Mistake mistake : {Mistake::hop_too_few, Mistake::no_rescaling,
                                  Mistake::gradients_left, Mistake::gradients_of_own}) {
        CAPTURE(static_cast<int>(mistake));
        CHECK(distance(mistake) > 1e-3);
    }
    // Without a mask there is nothing to get wrong.
    const double local = distance(Mistake::local_mask);
    CHECK((causal ? local > 1e-3 : local <= 1e-12));
}

TEST_CASE("Tokens in another order than the mask has are far from one device",
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

TEST_CASE("What the checker finds is named", "[parallel][sim]") {
    CHECK(found_in(Mistake::none, sim::CheckLevel::full).fault.empty());
    struct Row {
        Mistake mistake;
        sim::CheckLevel check;
        const char* fault;
        const char* says;
    };
    for (const Row& row :
         {Row{Mistake::hop_too_few_on_one, sim::CheckLevel::cheap, "F10",
              "rank 1, which has ended without a recv from rank 0"},
          Row{Mistake::no_wait, sim::CheckLevel::full, "F16", "attend"}}) {
        const Diagnosis found = found_in(row.mistake, row.check);
        CAPTURE(found.text());
        CHECK(found.fault == row.fault);
        CHECK(found.sentence.find(row.says) != std::string::npos);
    }
    // So is a rank whose backward goes on regardless.
    CHECK(
        outcome_of_mistake(Mistake::hop_too_few_on_one, TokenOrder::contiguous, problem())
            .fault() == "F10");
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
    // Ranks that step with gradients of their own are named where all is looked at.
    dealing.check = sim::CheckLevel::full;
    const Outcome stopped = train_dealt(dealing, lessons);
    CHECK(stopped.fault() == "F23");
    CHECK(stopped.stopped->sentence.find(name) != std::string::npos);
}

}  // namespace lockstep::test
