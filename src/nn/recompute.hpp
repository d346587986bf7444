#pragma once

#include "src/nn/gpt_kit.hpp"
#include "src/nn/sequential.hpp"
#include "src/nn/wrapper.hpp"

namespace lockstep {

/// A module that keeps only its input for backward, and runs its forward again then: all
/// else that it would have saved is there for that moment only (Chen et al. 2016,
/// 1604.06174, section 4). Same bits, one forward more.
///
/// What the forward goes by beside x and the parameters is what it was the first time, as
/// the numbers that Dropout draws are (Saved::keep_state). Batch norm would count a batch
/// twice in its running statistics.
class Recompute : public Wrapper {
  public:
    explicit Recompute(std::unique_ptr<Module> module);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    void forward_again(Saved& saved);
};

/// Full recomputation: each of the modules [first, last) keeps its input only.
void recompute_modules(Sequential& model, std::size_t first, std::size_t last);
/// That of each block of a GPT. A block then keeps s b h numbers, and a step costs one
/// forward of the blocks more: 4/3 of its flops.
void recompute_blocks(Sequential& gpt, const GptSizes& sizes);

/// Selective recomputation (Korthikanti et al. 2022, 2205.05198, section 5): only what
/// stands between attention's linear layers runs again, which keeps the most and computes
/// the least. A block no longer keeps the softmax's b a s^2 numbers, and costs 4 b s^2 h
/// flops more.
///
/// The core is the kit's own, so whatever sets another one, as context_parallel() does,
/// comes before: its messages are then sent again, too. Attention by the online softmax
/// (FlashAttention, RingAttention, GatherAttention, UlyssesAttention) keeps no s^2
/// numbers and makes them again by itself; around that, this costs a forward and saves
/// next to nothing.
///
///     GptKit kit = selective_recompute(tensor_parallel({}, tp));
///
/// Throws UsageError if the kit's tokens are dealt to several ranks, but it has no core
/// that sees the others'.
GptKit selective_recompute(GptKit kit);

}  // namespace lockstep
