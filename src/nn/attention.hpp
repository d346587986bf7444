#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/nn/module.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

struct AttentionSizes {
    std::int64_t heads = 0;     ///< a, heads of queries
    bool causal = true;         ///< a token sees only tokens up to itself
    std::int64_t kv_heads = 0;  ///< g, heads of keys and values; divides a; 0: g = a
    double rotary_base = 0;     ///< base of rotary positions, such as 10,000; 0: none
    bool bias = true;           ///< the linear layers around attention have biases
    std::int64_t width = 0;     ///< columns of a head, passed to the core

    std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
};

/// Throws a UsageError that begins with `layer` unless there are heads and the number of
/// key heads divides the number of query heads.
void require_heads(const std::string& layer, const AttentionSizes& sizes);
/// Also throws unless the number of query heads divides `hidden`.
void require_heads(const std::string& layer, std::int64_t hidden,
                   const AttentionSizes& sizes);

/// Returns the heads of queries, keys and values. They lie side by side, head by head, in
/// x (s, b, (a + 2 g) width). Throws UsageError if x has another number of columns.
AttentionHeads attention_heads(const Tensor& x, const AttentionSizes& sizes);

/// Returns 1 / sqrt(width), the factor of scores.
double score_factor(std::int64_t width);

/// softmax(Q K^T / sqrt(width)) V, head by head: attention without the linear layers
/// around it (Vaswani et al. 2017, 1706.03762, section 3.2).
///
/// x (s, b, (a + 2 g) width) has queries, keys and values; y is (s, b, a width). All
/// products are computed and charged in full, even if attention is causal. Costs 4 b s^2
/// a width flops forward, and twice that backward. Saves x and the softmax's results
/// (b, a, s, s), which make long sequences expensive. While it runs, forward has one more
/// tensor of this size, the scores; backward has two more.
class CoreAttention : public Module {
  public:
    /// Throws UsageError unless the number of key heads divides that of query heads.
    CoreAttention(Device& device, const AttentionSizes& sizes);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    Device& device_;
    AttentionSizes sizes_;
};

/// Attention with rotary positions: rotates queries and keys (Device::rotate) before the
/// core sees them, and rotates their gradients back.
///
/// x and y are as in the core. Saves nothing of its own; forward copies x.
class RotaryAttention : public Module {
  public:
    /// `tokens` says which tokens of a sequence x has, and so their positions. If
    /// `places` has positions, these are used instead.
    RotaryAttention(Device& device, const AttentionSizes& sizes,
                    std::unique_ptr<Module> core, TokenDeal tokens = {},
                    std::shared_ptr<const RowPlaces> places = nullptr);

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

/// Makes the module between the linear layers of attention.
using MakeAttention =
    std::function<std::unique_ptr<Module>(Device&, const AttentionSizes&)>;

}  // namespace lockstep
