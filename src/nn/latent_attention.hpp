#pragma once

#include <cstdint>

#include "src/nn/linear.hpp"
#include "src/nn/norm.hpp"

namespace lockstep {

/// The sizes of multi-head latent attention. DeepSeek-V3 has 1536, 512, 128, 64 and 128.
struct LatentSizes {
    std::int64_t query_rank = 0;  ///< latent columns of queries; 0: plain attention
    std::int64_t key_rank = 0;    ///< latent columns of keys and values
    std::int64_t width = 0;       ///< columns of a head's queries and keys, not rotated
    std::int64_t rotary = 0;      ///< more columns of queries and keys, which are rotated
    std::int64_t value = 0;       ///< columns of a head's values

    bool operator==(const LatentSizes&) const = default;
};

/// Returns the number of elements in a LatentAttention's weights.
std::int64_t latent_parameters(std::int64_t hidden, std::int64_t heads,
                               const LatentSizes& sizes);

/// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, 2405.04434, section 2.1).
/// Queries, keys and values of all heads are made from a few latent columns, so a cache
/// for generation needs only the latent columns of keys and values. Positions rotate
/// separate columns; for keys, all heads share one head of the rotated columns.
///
///     q = q_b(norm(q_a(x)))                  (s, b, a (width + rotary))
///     c, r = kv_a(x)                         (s, b, key_rank), (s, b, rotary)
///     k, v = kv_b(norm(c))                   (s, b, a (width + value))
///     y = o(softmax((q k + turned(q) turned(r)) / sqrt(width + rotary)) v), head by head
///
/// Attention is causal; x (s, b, hidden) gives y of the same shape. Parameters: those of
/// q_a_proj, q_a_layernorm, q_b_proj, kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj and
/// o_proj. Linear layers have no biases. Differs: in q_b_proj the rows without positions
/// come first, for all heads; in kv_b_proj the rows of keys come first. Published weights
/// have rows head by head. Computes all scores and saves their softmax, as CoreAttention.
class LatentAttention : public Module {
  public:
    /// Throws UsageError unless all sizes are positive.
    LatentAttention(const ParameterInit& init, std::int64_t hidden, std::int64_t heads,
                    const LatentSizes& sizes, double rotary_base, double epsilon);

    std::vector<Parameter*> parameters() override;
    void set_input_gradient(bool needed) override;
    void each_part(FunctionRef<void(Module&)> visit) override;

  protected:
    /// Views of the columns of queries, or of keys and values, head by head.
    struct Views {
        Heads plain;   ///< q or k, without positions (width)
        Heads turned;  ///< the rotated columns of q, or r with one head (rotary)
        Heads values;  ///< v (value); empty for queries
    };
    Views of_queries(const Tensor& q) const;

    Device& device_;
    std::int64_t heads_;
    LatentSizes sizes_;
    double rotary_base_;
    Linear q_a_;
    RmsNorm q_norm_;
    Linear q_b_;
    Linear kv_a_;
    RmsNorm kv_norm_;
    Linear kv_b_;
    Linear o_;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Views of_keys(const Tensor& kv, const Tensor& down) const;
    Tensor zeros_like(const Tensor& tensor, SourceLine at) const;
    void backward_core(const Tensor& d_sums, const Views& d_queries, const Views& d_keys,
                       Saved& saved) const;
    void turn(const Heads& heads, bool back, SourceLine at) const;
};

}  // namespace lockstep
