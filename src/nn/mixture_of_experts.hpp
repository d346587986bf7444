#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/nn/experts.hpp"
#include "src/nn/gate.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/routing.hpp"

namespace lockstep {

/// The experts of a transformer's block.
struct ExpertSizes {
    std::int64_t count = 0;  ///< E; 0: the block has a plain MLP
    std::int64_t inner = 0;  ///< columns within an expert; 0: those of a plain MLP
    /// Columns within the shared expert, an MLP that all tokens go through (Dai et al.
    /// 2024, DeepSeekMoE, 2401.06066, section 3.2); 0: there is none.
    std::int64_t shared = 0;
    GateOptions gate{};
    /// An expert takes capacity k N / E of the copies of N tokens, those of the batch or
    /// else this rank's own, rounded up, and drops those behind them: a dropped copy adds
    /// nothing, so that a token of which all were dropped passes by, on the residual path
    /// (Lepikhin et al. 2020, GShard, 2006.16668, section 2.2; Fedus et al. 2021, Switch,
    /// 2101.03961, section 2.2). 0: none is dropped (Gale et al. 2022, MegaBlocks,
    /// 2211.15841).
    double capacity = 0;
    /// Copies come in the order of tokens, or first the first choice of every token, then
    /// every second choice …, as GShard has it. That decides which of them are dropped.
    CopyOrder order = CopyOrder::choices_first;
    /// Tokens go to experts in so many portions, one after the other, so that one's
    /// messages hide behind another's products. With 1, they hide behind the shared
    /// expert alone.
    int portions = 1;
    bool grouped = true;  ///< see Experts::Sizes
    /// In a run that computes shapes only, the part of all copies that each expert gets;
    /// if it is empty, all get as many.
    std::vector<double> load{};
};

/// A layer of experts in the place of an MLP: a gate sends each token to k of E experts,
/// and y is the sum of what they make of it, each times its weight (Shazeer et al. 2017,
/// 1701.06538, section 2), and of what the shared expert makes of it:
///
///     y = shared(x) + sum_j w_j expert_{e_j}(x),   (e, w) = gate(x)
///
/// x (…, h) gives y of the same shape. Parameters: gate.weight (E, h), those of Experts
/// under "experts", of the shared expert under "shared_experts"; with a bias, the buffer
/// gate.e_score_correction_bias (E). Scores, weights and losses are computed in f32 if x
/// is bf16 (Differs: Fedus et al., section 2.4, make the logits in f32, too; here their
/// product is rounded to bf16). The program waits for the counts of copies, once for each
/// portion of the tokens, and as often as the exchange does.
///
/// Losses of the gate are added to the micro-batch's (Saved::add_loss).
class MixtureOfExperts : public Module {
  public:
    struct Sizes {
        ExpertSizes of;
        std::int64_t hidden = 0;
        bool gated = true;
        GeluForm gelu = GeluForm::exact;
    };
    /// `exchange` says how ranks share out experts; none: they do not. `shared` may be
    /// null.
    MixtureOfExperts(const ParameterInit& init, const Sizes& sizes,
                     std::shared_ptr<ExpertExchange> exchange,
                     std::unique_ptr<Module> shared);

    std::vector<Parameter*> parameters() override;
    std::vector<Buffer> buffers() override;

    /// Passes the choice to all parts.
    void set_input_gradient(bool needed) override;
    void each_part(FunctionRef<void(Module&)> visit) override;

    Gate& gate() { return gate_; }
    /// Returns how many copies of this rank's tokens chose each expert, dropped ones too,
    /// since the last call. A forward that runs again does not count again.
    std::vector<std::int64_t> take_load();
    /// Which numbers the gate's noise has from now on: (token, expert) is one of the
    /// stream's, as in Dropout::set_part, the first token being that of the ranks which
    /// share this micro-batch. Each forward in training begins `apart` numbers behind the
    /// one before; until it is set, all have the same.
    void set_noise(const RandomPart& part, std::int64_t apart = 0) {
        noise_ = part;
        noise_apart_ = apart;
    }

  private:
    /// Some of the tokens, on their way.
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
    /// Of this rank's own tokens in the step.
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
