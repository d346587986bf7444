#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/nn/experts.hpp"
#include "src/nn/gate.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/routing.hpp"

namespace lockstep {

/// The sizes of the experts in a transformer block.
struct ExpertSizes {
    std::int64_t count = 0;  ///< E; 0: the block has a plain MLP
    std::int64_t inner = 0;  ///< columns within an expert; 0: those of a plain MLP
    /// Columns within the shared expert, an MLP for all tokens (Dai et al. 2024,
    /// DeepSeekMoE, 2401.06066, section 3.2). 0: there is no shared expert.
    std::int64_t shared = 0;
    GateOptions gate{};
    /// An expert accepts at most capacity k N / E copies, rounded up, and drops all
    /// others. N is the number of tokens in the batch or, without a batch, of this rank's
    /// tokens. A dropped copy adds nothing. If all copies of a token are dropped, only
    /// the residual path carries the token (Lepikhin et al. 2020, GShard, 2006.16668,
    /// section 2.2; Fedus et al. 2021, Switch, 2101.03961, section 2.2). 0: no copy is
    /// dropped (Gale et al. 2022, MegaBlocks, 2211.15841).
    double capacity = 0;
    /// The order in which an expert accepts copies: by token, or all first choices before
    /// all second choices, and so on, as in GShard. The last copies are dropped.
    CopyOrder order = CopyOrder::choices_first;
    /// The number of portions in which tokens are sent to experts, one after another. One
    /// portion's messages overlap with another portion's products. With one portion,
    /// messages overlap only with the shared expert.
    int portions = 1;
    bool grouped = true;  ///< see Experts::Sizes
    /// In a run of shapes only, each expert's share of all copies. If it is empty, all
    /// experts get the same number of copies.
    std::vector<double> load{};
};

/// A layer of experts instead of an MLP. A gate sends each token to k of E experts. y is
/// the sum of these experts' results, each times its weight (Shazeer et al. 2017,
/// 1701.06538, section 2), plus the shared expert's result:
///
///     y = shared(x) + sum_j w_j expert_{e_j}(x),   (e, w) = gate(x)
///
/// x (…, h) gives y of the same shape. Parameters: gate.weight (E, h), those of Experts
/// under "experts", those of the shared expert under "shared_experts". With a bias there
/// is the buffer gate.e_score_correction_bias (E). If x is bf16, scores, weights and
/// losses are computed in f32. (Differs: Fedus et al., section 2.4, compute the logits in
/// f32, too; here the logits are rounded to bf16.) The program waits for the counts of
/// copies once per portion of the tokens, and whenever the exchange needs counts.
///
/// The gate's losses are added to the micro-batch's losses (Saved::add_loss).
class MixtureOfExperts : public Module {
  public:
    struct Sizes {
        ExpertSizes experts;
        std::int64_t hidden = 0;
        bool gated = true;
        GeluForm gelu = GeluForm::exact;
    };
    /// `exchange` says how ranks shard experts; null: not sharded. `shared` may be null.
    MixtureOfExperts(const ParameterInit& init, const Sizes& sizes,
                     std::shared_ptr<ExpertExchange> exchange,
                     std::unique_ptr<Module> shared);

    std::vector<Parameter*> parameters() override;
    std::vector<Buffer> buffers() override;

    /// Passes the setting to all parts.
    void set_input_gradient(bool needed) override;
    void each_part(FunctionRef<void(Module&)> visit) override;

    Gate& gate() { return gate_; }
    /// Returns how many copies of this rank's tokens each expert had since the last call,
    /// including dropped copies. A forward that runs again does not count again.
    std::vector<std::int64_t> take_load();
    /// Sets which random numbers the gate's noise has from now on. Each pair of a token
    /// and an expert has a number of the stream, as in Dropout::set_part; tokens are
    /// counted over all ranks that share this micro-batch. In training, each forward
    /// begins in the stream `apart` numbers later than the previous forward. Without this
    /// call, all forwards have the same numbers.
    void set_noise(const RandomPart& part, std::int64_t apart = 0) {
        noise_ = part;
        noise_apart_ = apart;
    }

  private:
    /// A part of the tokens: their routing, and their delivery to experts.
    struct Portion {
        std::int64_t first = 0;
        std::int64_t count = 0;
        Routing routing{};
        std::shared_ptr<Delivery> way{};
    };

    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    Tensor do_infer(const Tensor& x, SourceLine at) override;

    Tensor run(const Tensor& x, Saved& saved, bool trains);
    Tensor run_backward(const Tensor& dy, Saved& saved, bool whole);
    Gating choose(const Tensor& tokens, Saved& saved, bool trains);
    std::vector<Portion> routed(const Gating& gating, SourceLine at) const;
    void drop_and_count(Gating& gating, std::vector<Portion>& portions, Saved& saved,
                        bool trains);
    /// Returns the weight of this rank's own tokens in the step.
    double loss_weight(Saved& saved) const {
        return saved.loss_weight() * exchange_->token_share();
    }
    ExpertExchange::Counts own_counts(const Gating& gating,
                                      const std::vector<Portion>& portions,
                                      SourceLine at) const;
    Tensor of_shared(const Tensor& x, Saved& saved, bool trains);
    Tensor copies(const Tensor& tokens, const Portion& portion, SourceLine at) const;
    void add_made(const Tensor& y, const Gating& gating, const Portion& portion,
                  Saved& saved);
    Tensor d_made(const Tensor& d_tokens, const Tensor& d_weights, const Portion& portion,
                  Saved& saved) const;

    Device& device_;
    Sizes sizes_;
    std::shared_ptr<ExpertExchange> exchange_;
    Linear logits_;
    Gate gate_;
    Experts experts_;
    std::unique_ptr<Module> shared_;
    RandomPart noise_;
    std::int64_t noise_apart_ = 0;
    std::vector<std::int64_t> load_;
    int forwards_ = 0;
};

/// The layers of experts in a model, in order.
std::vector<MixtureOfExperts*> expert_layers(Module& model);

}  // namespace lockstep
