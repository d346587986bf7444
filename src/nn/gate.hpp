#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/nn/parameter.hpp"

namespace lockstep {

/// How a gate makes scores, and weights, of E logits for each token.
enum class GateForm : std::uint8_t {
    /// Scores are the softmax of all logits; the k largest are the weights, and add up to
    /// less than 1 unless they are normalized: GShard (Lepikhin et al. 2020, 2006.16668),
    /// Switch (Fedus et al. 2021, 2101.03961), DeepSeekMoE (Dai et al. 2024, 2401.06066).
    softmax_then_top_k,
    /// Weights are the softmax of the k largest logits alone: Shazeer et al. 2017
    /// (1701.06538), Mixtral (Jiang et al. 2024, 2401.04088). The same as the softmax
    /// first, with weights that are normalized. With k = 1 the weight is 1 whatever the
    /// logit, so that the gate learns nothing from the loss.
    top_k_then_softmax,
    /// Scores are sigmoids, each by itself; the k largest are the weights, normalized or
    /// not: DeepSeek-V3 (DeepSeek-AI 2024, 2412.19437, section 2.1.2).
    sigmoid
};

struct GateOptions {
    std::int64_t chosen = 2;  ///< k, experts of a token
    GateForm form = GateForm::top_k_then_softmax;
    bool normalized =
        false;          ///< weights are divided by their sum; not top_k_then_softmax
    double factor = 1;  ///< of all weights; DeepSeek-V3 has 2.5
    /// The deviation of normal noise on logits in training, so that experts which are
    /// seldom chosen get a chance; 1 / E in V-MoE (Riquelme et al. 2021, 2106.05974,
    /// section 2.1). 0: none.
    double noise = 0;
    /// Experts fall into so many groups, nodes say, side by side, of which a token
    /// chooses so many: those with the largest sums of the k / chosen_groups largest
    /// numbers that their experts are chosen by.
    std::int64_t groups = 1;
    std::int64_t chosen_groups = 1;

    // Three ways to give each expert as many tokens.

    /// alpha of the loss alpha E sum_i f_i P_i: f_i the share of copies that expert i
    /// gets, P_i its mean score, over the tokens of a micro-batch; 1 if all are alike
    /// (Fedus et al., section 2.2; Shazeer et al., section 4, and GShard, section 2.2,
    /// have losses of other forms for it). Sigmoids are divided by
    /// their sum before. Gradients go through P alone.
    double balance = 0;
    /// beta of the loss beta mean(log(sum exp(logits))^2), which keeps logits small (Zoph
    /// et al. 2022, ST-MoE, 2202.08906, section 3.2).
    double z = 0;
    /// Experts are chosen by score plus a bias of their own, or by logit plus bias where
    /// the softmax comes last. It is no part of weights; balance_by_bias() moves it (Wang
    /// et al. 2024, 2408.15664).
    bool biased = false;
};

/// What a gate makes of N tokens.
struct Gating {
    Tensor ids;      ///< (N, k), i32; of equal scores the expert of the lower number
    Tensor weights;  ///< (N, k)

    // Backward needs these.
    Tensor logits;    ///< (N, E), with their noise
    Tensor scores;    ///< (N, E): softmax, or sigmoid; none if nothing needs it
    Tensor picked;    ///< (N, k): what the weights are made of
    Tensor unscaled;  ///< (N, k): the weights before they are multiplied
    Tensor load;      ///< (E): f of the loss of balance
    Tensor log_sums;  ///< (N): log(sum exp(logits)) of the loss of z
};

/// From logits (N, E), f32 or f64, to the experts of each token, and back. A linear layer
/// makes the logits; the gate has no weights.
class Gate {
  public:
    /// Throws UsageError, which begins with the name, for options that do not fit.
    Gate(const ParameterInit& init, std::int64_t experts, const GateOptions& options);

    const GateOptions& options() const { return options_; }
    std::int64_t experts() const { return experts_; }
    /// (E), f32 or f64; none unless experts are chosen by it.
    const Tensor& bias() const { return bias_; }
    /// As published weights of DeepSeek-V3 have it: "….e_score_correction_bias".
    const std::string& bias_name() const { return bias_name_; }

    /// `noise` says which numbers the logits' noise has; none is added without.
    Gating choose(const Tensor& logits, const std::optional<RandomPart>& noise,
                  SourceLine at) const;
    /// Gives the gate's own terms of the loss, each (1), as a mean over the tokens times
    /// `weight`. `shares` are the part of all copies that each expert gets.
    std::vector<Tensor> losses(Gating& gating, const std::vector<double>& shares,
                               double weight, SourceLine at) const;
    /// The gradient of logits, from that of the weights (N, k), which it changes, and of
    /// the terms that losses() gave.
    Tensor backward(const Gating& gating, const Tensor& d_weights, double weight,
                    SourceLine at) const;

  private:
    bool softmax_is_last() const { return options_.form == GateForm::top_k_then_softmax; }
    Tensor with_noise(const Tensor& logits, const RandomPart& part, SourceLine at) const;
    void pick(Gating& gating, SourceLine at) const;
    void weigh(Gating& gating, SourceLine at) const;
    Tensor d_picked(const Gating& gating, const Tensor& d_weights, SourceLine at) const;
    /// alpha E / N times the weight.
    double balance_factor(const Gating& gating, double weight) const;

    Device& device_;
    std::int64_t experts_;
    GateOptions options_;
    RandomStream noise_;
    std::string bias_name_;
    Tensor bias_;
};

}  // namespace lockstep
