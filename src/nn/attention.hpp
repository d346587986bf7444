#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/nn/module.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

struct AttentionSizes {
    std::int64_t heads = 0;     ///< a, of queries
    bool causal = true;         ///< a token sees those up to itself
    std::int64_t kv_heads = 0;  ///< g, of keys and values, which divides a; 0: a
    double rotary_base = 0;     ///< of rotary positions, 10,000 say; 0: none
    bool bias = true;           ///< of the linear layers around it
    std::int64_t width = 0;     ///< columns of a head, which the core is told

    std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
};

/// Throws UsageError, which begins with `layer`, unless there are heads, and those of
/// keys divide those of queries.
void require_heads(const std::string& layer, const AttentionSizes& sizes);
/// Throws UsageError likewise, and unless the heads of queries can share `hidden`.
void require_heads(const std::string& layer, std::int64_t hidden,
                   const AttentionSizes& sizes);

/// Queries, keys and values side by side, each head by head, in x (s, b, (a + 2 g)
/// width). Throws UsageError if x has other columns.
AttentionHeads attention_heads(const Tensor& x, const AttentionSizes& sizes);

/// 1 / sqrt(width), by which scores are multiplied.
double score_factor(std::int64_t width);

/// softmax(Q K^T / sqrt(width)) V, head by head: attention without the linear layers
/// around it (Vaswani et al. 2017, 1706.03762, section 3.2).
///
/// x (s, b, (a + 2 g) width) holds queries, keys and values; y is (s, b, a width). If it
/// is causal, the products are made, and charged, in full. Costs 4 b s^2 a width flops
/// forward, twice as many backward. Saves x and the softmax's (b, a, s, s) results, which
/// is what makes long sequences dear; forward holds one more of that size for a moment,
/// the scores, and backward two.
class CoreAttention : public Module {
  public:
    /// Throws UsageError for heads that do not fit each other.
    CoreAttention(Device& device, const AttentionSizes& sizes);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    Device& device_;
    AttentionSizes sizes_;
};

/// Attention over tokens that know their places by rotation: queries and keys are turned
/// (Device::rotate) before the core sees them, and their gradients turned back.
///
/// x and y as the core has them. Saves nothing of its own; forward copies x.
class RotaryAttention : public Module {
  public:
    /// `tokens` says which tokens of a sequence are here; or `places`, where there
    /// are some.
    RotaryAttention(Device& device, const AttentionSizes& sizes,
                    std::unique_ptr<Module> core, TokenDeal tokens = {},
                    std::shared_ptr<const RowPlaces> places = nullptr);

    /// The core's.
    std::vector<Parameter*> parameters() override { return core_->parameters(); }
    std::vector<Buffer> buffers() override { return core_->buffers(); }
    void each_part(FunctionRef<void(Module&)> visit) override { visit(*core_); }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_infer(const Tensor& x, SourceLine at) override;
    RowPlaces places() const { return places_ ? *places_ : std::nullopt; }
    Tensor turned(const Tensor& x, const RowPlaces& places, bool back) const;

    Device& device_;
    AttentionSizes sizes_;
    std::unique_ptr<Module> core_;
    TokenDeal tokens_;
    std::shared_ptr<const RowPlaces> places_;
};

/// Makes what stands between the linear layers.
using MakeAttention =
    std::function<std::unique_ptr<Module>(Device&, const AttentionSizes&)>;

}  // namespace lockstep
