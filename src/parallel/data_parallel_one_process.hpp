#pragma once

#include <span>

#include "src/comm/communicator.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"
#include "src/nn/optimizer.hpp"

namespace lockstep {

/// A batch on device 0, which scatters it.
struct MainBatch {
    Shape shape;               ///< the whole input's shape, on all ranks
    DType dtype = DType::i32;  ///< of the input
    int dimension = 0;         ///< input and prediction are split along this dimension
    Tensor input{};            ///< on device 0 only
    Tensor target{};           ///< on device 0 only
    double weight = 1;         ///< weight of the batch's loss in the step's loss
};

/// Data parallelism as in PyTorch's nn.DataParallel: one process, and a main device,
/// which has the data, the loss and the optimizer. For each batch the main device
/// broadcasts all parameters, scatters the input, gathers all predictions, computes the
/// loss, scatters the loss's gradient, and gets the sums of the parameters' gradients
/// (reduce). After all batches only the main device updates its parameters.
///
/// Here each device is a rank with its own program, but the messages are the same as with
/// one process. With n devices, and with S, X and Y bytes of parameters, input and
/// predictions, device 0 sends S + (n-1)/n (X + Y) and receives S + (n-1)/n Y bytes per
/// batch. Device 0 holds what each other device holds, and also the optimizer's state and
/// all predictions with their gradients. The other devices are idle while device 0
/// computes the loss and updates. The loss covers the whole batch, so no share needs a
/// weight. See Li et al. 2020, 2006.15704, section 2.2 for why there are better ways.
///
/// Runs one step. Returns the loss, (1), on device 0, and an empty tensor elsewhere. On
/// the other ranks the parameters keep the values from before the update, and the
/// gradients are only the rank's own. If there are more ranks than rows, some ranks
/// compute nothing. Throws UsageError if a batch cannot be scattered along its dimension,
/// or if input and prediction have different extents along it.
///
/// Differs: here 4 ranks get 1, 1, 1 and 2 of 5 rows. With torch.chunk they get 2, 2, 1
/// and 0 rows.
Tensor one_process_step(Device& device, Communicator& group, Module& model,
                        const Loss& loss, std::span<const MainBatch> batches,
                        Optimizer& optimizer, SourceLine at = SourceLine::here());

}  // namespace lockstep
