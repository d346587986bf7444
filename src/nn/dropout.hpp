#pragma once

#include "src/nn/module.hpp"

namespace lockstep {

/// Dropout: an element x becomes 0 with probability p, else x / (1 - p), so that its
/// expectation does not change (Srivastava et al. 2014, JMLR 15, section 4). As in
/// PyTorch's nn.Dropout, the division happens in training, not in inference.
///
/// x may have any shape; y has the same shape. A number from a counter-based stream
/// (src/core/philox.hpp) decides whether an element is kept. So no mask is saved:
/// backward draws the same numbers again. Before each forward the caller selects the
/// numbers (set_part); a forward with the same numbers drops the same elements. If ranks
/// share a batch, number the elements by their places in the whole batch: then n ranks
/// drop the same elements as one device.
///
/// infer() returns x itself.
class Dropout : public Module {
  public:
    /// Throws UsageError unless the probability lies in [0, 1).
    Dropout(Device& device, double probability, RandomStream stream);

    /// From now on, element (i, j) of x has number part.offset + i * part.pitch + j. For
    /// new numbers in each step, let the offset count the elements of all earlier steps.
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
