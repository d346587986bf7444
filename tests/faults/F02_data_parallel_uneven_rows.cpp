// F02: data parallelism. The number of ranks does not divide the rows, and rank 0 also
// gets the remaining rows.
//
// finds: F02
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int n = rank.size();
    const int rows_in_all = 8 * n + 1;
    int rows = rows_in_all / n;
    if (rank.index() == 0) rows += rows_in_all % n;  // twin:
    const Tensor x = device.zeros({rows, 4}, DType::f32);
    const Tensor weight = device.zeros({4, 1}, DType::f32);
    const Tensor predicted = device.matmul(x, weight);
    const Tensor everywhere = device.zeros({n * rows}, DType::f32);
    rank.world().all_gather(everywhere, predicted).wait();  // line: gather
}
