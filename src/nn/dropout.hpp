#pragma once

#include "src/nn/module.hpp"

namespace lockstep {

/// Dropout: an element of x becomes 0 with a probability p, else x / (1 - p), so that its
/// expectation stays (Srivastava et al. 2014, JMLR 15, section 4; divided in training, as
/// PyTorch's nn.Dropout).
///
/// x of any shape gives y of the same. Whether an element stays is decided by a number of
/// a stream that is counter based (src/core/philox.hpp), so neither mask nor state is
/// saved: backward draws the same numbers again. The caller says before each forward
/// which numbers these are (set_part): for ranks that share a batch, those of the
/// elements' places in the whole batch; then n ranks drop what one device drops. With
/// the same part, the same places are dropped again.
///
/// infer() gives x itself.
class Dropout : public Module {
  public:
    /// Throws UsageError unless the probability lies in [0, 1).
    Dropout(Device& device, double probability, RandomStream stream);

    /// From now on, element (i, j) of x has number part.offset + i * part.pitch + j. A
    /// step that goes on behind the last one begins at its elements' number in all steps.
    void set_part(const RandomPart& part) { part_ = part; }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    Tensor do_infer(const Tensor& x, SourceLine at) override;

    Device& device_;
    double probability_;
    RandomStream stream_;
    RandomPart part_;
};

}  // namespace lockstep
