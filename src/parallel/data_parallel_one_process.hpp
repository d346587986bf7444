#pragma once

#include <span>

#include "src/comm/communicator.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"
#include "src/nn/optimizer.hpp"

namespace lockstep {

/// A batch that lies on one device, and is dealt out from there.
struct MainBatch {
    Shape shape;               ///< of the input; every rank knows it
    DType dtype = DType::i32;  ///< of the input
    int dimension = 0;         ///< along it the input, and the prediction, are dealt out
    Tensor input{};            ///< on device 0 alone
    Tensor target{};           ///< on device 0 alone
    double weight = 1;         ///< of its loss in the step
};

/// Data parallelism as PyTorch's nn.DataParallel has it: one process, and a main device,
/// which has the data, the loss and the optimizer. For each batch the main device sends
/// all values to all others (broadcast), deals the input out (scatter), gets all
/// predictions back (gather), computes the loss alone, deals its gradient out, and gets
/// the gradients of the parameters (reduce). Then it steps, alone.
///
/// Here each device is a rank with a program of its own; the messages are those of the
/// one process. For n devices, S bytes of parameters, X of input, Y of predictions:
/// device 0 sends S + (n-1)/n (X + Y) and receives S + (n-1)/n Y for each batch. It holds
/// what all others hold, the optimizer's state, and all predictions and their gradients
/// besides, and the others do nothing while it computes the loss and steps. A loss over
/// the whole batch is the batch's own, however it is dealt out: nothing has to be
/// weighted. See Li et al. 2020, 2006.15704, section 2.2 for why there are better ways.
///
/// One step. Returns the loss, (1), on device 0, none elsewhere. Parameters of other
/// ranks hold the values of the step's last batch, and their gradients are their own.
/// More ranks than rows: the last ones have nothing to compute. Throws UsageError if a
/// batch cannot be dealt out along its dimension, or the prediction has another extent
/// there.
///
/// Differs: 5 rows for 4 ranks are 1, 1, 1 and 2 here; torch.chunk makes 2, 2 and 1, and
/// leaves the fourth rank none.
Tensor one_process_step(Device& device, Communicator& group, Module& model,
                        const Loss& loss, std::span<const MainBatch> batches,
                        Optimizer& optimizer, SourceLine at = SourceLine::here());

}  // namespace lockstep
