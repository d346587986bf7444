#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/nn/parameter.hpp"

namespace lockstep {

/// How a gate makes scores and weights from E logits for each token.
enum class GateForm : std::uint8_t {
    /// Scores are the softmax of all logits. The k largest scores are the weights, and
    /// add up to less than 1 unless they are normalized: GShard (Lepikhin et al. 2020,
    /// 2006.16668), Switch (Fedus et al. 2021, 2101.03961), DeepSeekMoE (Dai et al. 2024,
    /// 2401.06066).
    softmax_then_top_k,
    /// Weights are the softmax of only the k largest logits: Shazeer et al. 2017
    /// (1701.06538), Mixtral (Jiang et al. 2024, 2401.04088). This equals
    /// softmax_then_top_k with normalized weights. With k = 1 the weight is 1 for any
    /// logit, so the gate learns nothing from the loss.
    top_k_then_softmax,
    /// A score is the sigmoid of one logit. The k largest scores are the weights,
    /// normalized or not: DeepSeek-V3 (DeepSeek-AI 2024, 2412.19437, section 2.1.2).
    sigmoid
};

struct GateOptions {
    std::int64_t chosen = 2;  ///< k, experts per token
    GateForm form = GateForm::top_k_then_softmax;
    bool normalized = false;  ///< divide weights by their sum; not for top_k_then_softmax
    double factor = 1;        ///< multiplies all weights; 2.5 in DeepSeek-V3
    /// The standard deviation of normal noise that is added to logits in training, so
    /// that seldom chosen experts get a chance; 1 / E in V-MoE (Riquelme et al. 2021,
    /// 2106.05974, section 2.1). 0: no noise.
    double noise = 0;
    /// The number of groups of neighbouring experts (for example one group per node), and
    /// the number of groups that a token chooses. It chooses the groups in which the
    /// k / chosen_groups largest scores, plus biases, have the largest sum (logits plus
    /// biases if the softmax comes last).
    std::int64_t groups = 1;
    std::int64_t chosen_groups = 1;

    // Two losses and a bias balance the load of experts, and keep logits small.

    /// The factor alpha of the loss alpha E sum_i f_i P_i over the tokens of a
    /// micro-batch. f_i is expert i's share of all copies, P_i is its mean score. If all
    /// f_i and P_i are 1 / E, the loss is alpha (Fedus et al., section 2.2; Shazeer et
    /// al., section 4, and GShard, section 2.2, have other forms). Sigmoid scores are
    /// first divided by their sum. Gradients go through P only.
    double balance = 0;
    /// The factor beta of the loss beta mean(log(sum exp(logits))^2), which keeps logits
    /// small (Zoph et al. 2022, ST-MoE, 2202.08906, section 3.2).
    double z = 0;
    /// Experts are chosen by score plus their own bias, or by logit plus bias if the
    /// softmax comes last. The bias is not part of the weights; balance_by_bias() adjusts
    /// the bias (Wang et al. 2024, 2408.15664).
    bool biased = false;
};

/// The results of a gate for N tokens.
struct Gating {
    Tensor ids;      ///< (N, k), i32; ties go to the expert with the lower number
    Tensor weights;  ///< (N, k)

    // Backward needs these.
    Tensor logits;    ///< (N, E), with their noise
    Tensor scores;    ///< (N, E): softmax, or sigmoid; empty if not needed
    Tensor picked;    ///< (N, k): the chosen scores, or logits
    Tensor unscaled;  ///< (N, k): the weights before `factor`
    Tensor load;      ///< (E): f of the balance loss
    Tensor log_sums;  ///< (N): log(sum exp(logits)) of the z loss
};

/// Chooses the experts of each token from logits (N, E), f32 or f64, and runs backward. A
/// linear layer makes the logits; the gate has no weights.
class Gate {
  public:
    /// Throws a UsageError that begins with the name if options contradict each other.
    Gate(const ParameterInit& init, std::int64_t experts, const GateOptions& options);

    const GateOptions& options() const { return options_; }
    std::int64_t experts() const { return experts_; }
    /// (E), f32 or f64; empty if `biased` is false.
    const Tensor& bias() const { return bias_; }
    /// The bias's name in published weights of DeepSeek-V3: "….e_score_correction_bias".
    const std::string& bias_name() const { return bias_name_; }

    /// `noise` says which random numbers are added to the logits, if any.
    Gating choose(const Tensor& logits, const std::optional<RandomPart>& noise,
                  SourceLine at) const;
    /// Returns the gate's own terms of the loss. Each term has shape (1): a mean over the
    /// tokens times `weight`. `shares` are the experts' shares of all copies.
    std::vector<Tensor> losses(Gating& gating, const std::vector<double>& shares,
                               double weight, SourceLine at) const;
    /// Returns the gradient of the logits. It comes from the gradient of the weights
    /// (N, k), which is overwritten, and from the terms that losses() returned.
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
