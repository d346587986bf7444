#pragma once

#include "src/nn/gpt_kit.hpp"
#include "src/nn/sequential.hpp"
#include "src/nn/wrapper.hpp"

namespace lockstep {

/// A module that keeps only its input for backward. Backward first runs forward again;
/// the other saved tensors exist only during this backward (Chen et al. 2016, 1604.06174,
/// section 4). Results have the same bits; the cost is one more forward.
///
/// The second forward sees the same state as the first, such as dropout's random numbers
/// (Saved::keep_state). Batch norm, however, counts a batch twice in its running
/// statistics.
class Recompute : public Wrapper {
  public:
    explicit Recompute(std::unique_ptr<Module> module);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    void forward_again(Saved& saved);
};

/// Full recomputation: each of the modules [first, last) keeps only its input.
void recompute_modules(Sequential& model, std::size_t first, std::size_t last);
/// Full recomputation of each block of a GPT. A block then keeps s b h numbers. A step
/// needs one more forward of the blocks, and so 4/3 of the blocks' flops.
void recompute_blocks(Sequential& gpt, const GptSizes& sizes);

/// Selective recomputation (Korthikanti et al. 2022, 2205.05198, section 5): only the
/// module between attention's linear layers runs again. This module keeps the most memory
/// and computes the least. A block no longer keeps the softmax's b a s^2 numbers, and
/// costs 4 b s^2 h more flops.
///
/// This wraps the kit's core, so first call functions that set another core, such as
/// context_parallel(); the core's messages are then sent again, too. Attention with the
/// online softmax (FlashAttention, RingAttention, GatherAttention, UlyssesAttention)
/// keeps no s^2 numbers and always recomputes them. If such a core is wrapped, it runs
/// forward once more, and this saves almost no memory.
///
///     GptKit kit = selective_recompute(tensor_parallel({}, tp));
///
/// Throws UsageError if the kit's tokens are sharded over several ranks, but the kit has
/// no core that sees the other ranks' tokens.
GptKit selective_recompute(GptKit kit);

}  // namespace lockstep
