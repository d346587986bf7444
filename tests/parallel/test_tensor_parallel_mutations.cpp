// Mistakes that raise no error in training. Either the comparison with one device or the
// checker must find each mistake.
#include "src/nn/activation.hpp"
#include "src/nn/attention.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kHidden = 12;
constexpr std::int64_t kHeads = 4;
constexpr int kWays = 4;

const BlockSizes kBlock{kHidden, kHeads};

class WithoutF : public TensorParallel {
  public:
    using TensorParallel::TensorParallel;
    Arriving enter_backward(const Tensor& dx) override { return {dx, {}, {}}; }
};

class WithoutG : public TensorParallel {
  public:
    using TensorParallel::TensorParallel;
    Tensor leave(const Tensor& partial) override { return partial; }
};

template <typename Kind>
MakeRegions made_as() {
    return [](Device& device, Communicator& group) {
        return std::make_unique<Kind>(device, group);
    };
}

Case inputs(Deal deal) {
    return {{{"x", {normal_values({8, 2, kHidden}, "x"), deal}},
             {"dy", {normal_values({8, 2, kHidden}, "dy"), deal}}}};
}

std::unique_ptr<Module> block_alone(const ParameterInit& init) {
    return make_block(init, kBlock);
}

std::unique_ptr<Module> parallel_block(const ParameterInit& init, TensorParallel& tp) {
    return make_block(init, kBlock, tensor_parallel({}, tp));
}

/// A block whose norms' gradients do not count as partial.
std::unique_ptr<Module> forgotten_norms(const ParameterInit& init, TensorParallel& tp) {
    std::unique_ptr<Module> block = parallel_block(init, tp);
    for (Parameter* parameter : block->parameters())
        if (parameter->name().starts_with("ln_")) parameter->placements.clear();
    return block;
}

/// A row-parallel layer that adds its bias on every rank, before g.
class BiasOnEveryRank : public RowParallelLinear {
  public:
    BiasOnEveryRank(const ParameterInit& init, TensorParallel& tp, std::int64_t in,
                    std::int64_t out)
        : RowParallelLinear(init, tp, in, out), tp_(tp) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        saved.keep("x", x);
        Device& device = *x.device();
        Tensor y = device.matmul(x, weight().value, {.transpose_b = true});
        device.add_bias(y, bias()->value);
        return tp_.leave(y);
    }

    TensorParallel& tp_;
};

std::unique_ptr<Module> mlp_alone(const ParameterInit& init) {
    return make_mlp(init, kHidden, 4 * kHidden);
}

std::unique_ptr<Module> bias_on_every_rank(const ParameterInit& init,
                                           TensorParallel& tp) {
    auto mlp = std::make_unique<Sequential>();
    mlp->add<ColumnParallelLinear>(init.child("c_fc"), tp, kHidden, 4 * kHidden);
    mlp->add<Gelu>(init.device);
    mlp->add<BiasOnEveryRank>(init.child("c_proj"), tp, 4 * kHidden, kHidden);
    return mlp;
}

std::unique_ptr<Module> attention_alone(const ParameterInit& init) {
    return make_attention(init, kHidden, {kHeads, true});
}

/// c_attn's rows are all queries, then all keys, then all values. If a rank takes a
/// contiguous share of the rows, its queries lack their keys.
std::unique_ptr<Module> heads_of_a_plain_share(const ParameterInit& init,
                                               TensorParallel& tp) {
    auto attention = std::make_unique<Sequential>();
    attention->add<ColumnParallelLinear>(init.child("c_attn"), tp, kHidden, 3 * kHidden);
    attention->add<CoreAttention>(init.device, AttentionSizes{kHeads / tp.size(), true});
    attention->add<RowParallelLinear>(init.child("c_proj"), tp, kHidden, kHidden);
    return attention;
}

}  // namespace

TEST_CASE("Mistakes with sharded weights are far from one device", "[parallel][sim]") {
    struct Row {
        const char* what;
        bool far;
        MakeShared shared;
        MakeAlone alone = block_alone;
        MakeRegions regions = made_as<TensorParallel>();
        Deal deal = Deal::whole;
    };
    for (const Row& row : std::vector<Row>{
             {"a right block", false, parallel_block},
             {"f is dropped", true, parallel_block, block_alone, made_as<WithoutF>()},
             {"g is dropped", true, parallel_block, block_alone, made_as<WithoutG>()},
             {"a bias is added on every rank", true, bias_on_every_rank, mlp_alone},
             {"heads are cut without regard to what is stacked", true,
              heads_of_a_plain_share, attention_alone},
             {"a right block with sharded tokens", false, parallel_block, block_alone,
              made_as<SequenceParallel>(), Deal::contiguous},
             {"gradients of norms are not summed", true, forgotten_norms, block_alone,
              made_as<SequenceParallel>(), Deal::contiguous}}) {
        CAPTURE(row.what);
        const Case given = inputs(row.deal);
        // Checks are cheap, because full checks would stop some programs. Whether
        // replicas agree is not tested.
        const Outcome many =
            outcome_of(*classroom(kWays, true, sim::CheckLevel::cheap),
                       pass_shared(row.regions, row.shared), given, Mistakes::kept);
        const Outcome one = outcome_of(*classroom(1), pass_alone(row.alone), given);
        const double distance = difference(many, one).relative;
        CHECK((row.far ? distance > 1e-3 : distance <= 1e-12));
    }
}

}  // namespace lockstep::test
