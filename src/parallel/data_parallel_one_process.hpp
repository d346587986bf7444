#pragma once

#include <span>

#include "src/comm/communicator.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"
#include "src/nn/optimizer.hpp"

namespace lockstep {

/// A batch that lies on one device, which scatters it.
struct MainBatch {
    Shape shape;               ///< of the input; every rank knows it
    DType dtype = DType::i32;  ///< of the input
    int dimension = 0;         ///< along which input and prediction are scattered
    Tensor input{};            ///< on device 0 only
    Tensor target{};           ///< on device 0 only
    double weight = 1;         ///< of its loss in the step
};

/// Data parallelism as in PyTorch's nn.DataParallel: one process, and a main device,
/// which has the data, the loss and the optimizer. For each batch the main device
/// broadcasts all values, scatters the input, gathers all predictions, computes the loss,
/// scatters its gradient, and gets the sums of the parameters' gradients (reduce). Then
/// only the main device steps.
///
/// Here each device is a rank with its own program; the messages are those of the one
/// process. For n devices, S bytes of parameters, X of input and Y of predictions,
/// device 0 sends S + (n-1)/n (X + Y) and receives S + (n-1)/n Y for each batch. Device 0
/// holds what each other device holds, and also the optimizer's state and all predictions
/// with their gradients. The other devices are idle while it computes the loss and steps.
/// The loss covers the whole batch, so no share needs a weight. See Li et al. 2020,
/// 2006.15704, section 2.2 for why there are better ways.
///
/// Runs one step. Returns the loss, (1), on device 0, and none elsewhere. On other ranks
/// the parameters still have the values before the update, and the gradients are their
/// own. If there are more ranks than rows, some ranks compute nothing. Throws UsageError
/// if a batch cannot be scattered along its dimension, or if the prediction has another
/// extent there.
///
/// Differs: here 4 ranks get 1, 1, 1 and 2 of 5 rows; torch.chunk gives 2, 2 and 1, and
/// the fourth rank gets none.
Tensor one_process_step(Device& device, Communicator& group, Module& model,
                        const Loss& loss, std::span<const MainBatch> batches,
                        Optimizer& optimizer, SourceLine at = SourceLine::here());

}  // namespace lockstep
