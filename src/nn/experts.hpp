#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/nn/expert_exchange.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// The MLPs of a layer's experts that a device holds, without biases: each on its own
/// rows of x.
///
///     x (M, h) -> wide (M, 2 inner) -> SwiGLU (M, inner) -> narrow (M, h)
///
/// or with GELU, x -> (M, inner) -> GELU -> (M, h). Saves x, what the wide layer makes,
/// and what the narrow one reads.
///
/// Who calls forward keeps in its Saved, as "rows", how many rows each expert has, one
/// expert's behind the other's: they belong to the micro-batch.
///
/// The experts' weights lie one below the other in two parameters, so that one grouped
/// product computes all: "gate_up_proj.weight" (E 2 inner, h), of each expert the rows of
/// the gate and then those of what it gates, or "c_fc.weight" (E inner, h); and
/// "down_proj.weight" or "c_proj.weight" (E h, inner). Values start as Linear's do.
class Experts : public Module {
  public:
    struct Sizes {
        std::int64_t hidden = 0;
        std::int64_t inner = 0;    ///< columns of an expert, on all devices
        std::int64_t experts = 0;  ///< on all devices
        bool gated = true;
        GeluForm gelu = GeluForm::exact;
        /// One product for all experts; else one after the other, which takes a launch
        /// for each, as a GPU does in any case (Device::grouped_matmul).
        bool grouped = true;
    };
    /// `times` forwards and backwards belong to one of the layer's. Throws UsageError for
    /// sizes that are not positive, or that cannot be shared out.
    Experts(const ParameterInit& init, const Sizes& sizes,
            const ExpertExchange::Share& share, int times = 1);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override { return {&wide_, &narrow_}; }

    /// destination = each expert's rows of a times its matrix in b, or its matrix.
    void multiply(const Tensor& destination, const Tensor& a, const Tensor& b,
                  const std::vector<std::int64_t>& rows,
                  const MatmulOptions& options) const;

    Device& device_;
    Sizes sizes_;
    Parameter wide_;
    Parameter narrow_;
};

}  // namespace lockstep
