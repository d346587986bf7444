#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/nn/expert_exchange.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// A device's experts of one layer: MLPs without biases. Each expert works on its own
/// rows of x.
///
///     x (M, h) -> wide (M, 2 inner) -> SwiGLU (M, inner) -> narrow (M, h)
///
/// or with GELU, x -> (M, inner) -> GELU -> (M, h). Saves x, the wide layer's output, and
/// the narrow layer's input.
///
/// The caller of forward keeps the number of rows of each expert in `saved`, as "rows",
/// because the numbers belong to the micro-batch. x has the first expert's rows first.
///
/// The experts' weights lie one below another in two parameters, so that one grouped
/// product computes all experts. The first is "gate_up_proj.weight" (E 2 inner, h), with
/// the gate rows and then the up rows of each expert; with GELU it is "c_fc.weight"
/// (E inner, h). The second is "down_proj.weight" or, with GELU, "c_proj.weight"
/// (E h, inner). Initial values are as in Linear.
class Experts : public Module {
  public:
    struct Sizes {
        std::int64_t hidden = 0;
        std::int64_t inner = 0;    ///< columns of an expert, on all devices
        std::int64_t experts = 0;  ///< on all devices
        bool gated = true;
        GeluForm gelu = GeluForm::exact;
        /// Computes one product for all experts. If false, computes one expert after
        /// another, with a launch for each; a GPU does so in any case
        /// (Device::grouped_matmul).
        bool grouped = true;
    };
    /// `times` is how often one forward or backward of the layer runs this module. Throws
    /// UsageError if sizes are not positive or cannot be sharded.
    Experts(const ParameterInit& init, const Sizes& sizes,
            const ExpertExchange::Share& share, int times = 1);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override { return {&wide_, &narrow_}; }

    /// Per expert: its rows of destination = its rows of a times its matrix in b. With
    /// transpose_a: its matrix in destination = a^T b, for its rows of a and of b.
    void multiply(const Tensor& destination, const Tensor& a, const Tensor& b,
                  const std::vector<std::int64_t>& rows,
                  const MatmulOptions& options) const;

    Device& device_;
    Sizes sizes_;
    Parameter wide_;
    Parameter narrow_;
};

}  // namespace lockstep
