#include "src/parallel/columns.hpp"

namespace lockstep {

Tensor gather_columns(TensorParallel& tp, const Tensor& own) {
    const int ranks = tp.size();
    const std::int64_t rows = own.shape().rows();
    const std::int64_t columns = own.shape().columns();
    Device& device = tp.device();

    // A gathering puts whole blocks one after the other, (t, N, c); columns
    // stand side by side.
    const Tensor blocks = device.empty({ranks, rows, columns}, own.dtype());
    tp.group().all_gather(blocks, own).wait();
    Tensor whole =
        device.empty(own.shape().with_last(columns * ranks), own.dtype());
    for (int rank = 0; rank < ranks; ++rank)
        device.copy_columns(whole, rank * columns,
                            blocks.rows(rank, 1).reshaped({rows, columns}),
                            0, columns);
    return whole;
}

Tensor own_columns(TensorParallel& tp, const Tensor& whole) {
    const std::int64_t columns =
        tp.share("own_columns", "columns", whole.shape().columns());
    Tensor own =
        tp.device().empty(whole.shape().with_last(columns), whole.dtype());
    tp.device().copy_columns(own, 0, whole, tp.rank() * columns, columns);
    return own;
}

}  // namespace lockstep
