#include "src/parallel/uneven_inputs.hpp"

#include <cmath>

#include "src/core/require.hpp"

namespace lockstep {

// lesson: join
std::int64_t rows_of_all(Device& device, Communicator& replicas, std::int64_t mine,
                         SourceLine at) {
    require(device.has_numbers(), at,
            "rows_of_all: a run that computes only shapes has no numbers to add up");
    const Tensor rows = device.zeros({1}, DType::f64, at);
    device.fill(rows, static_cast<double>(mine), at);
    replicas.all_reduce(rows, Reduction::sum, at).wait(at);
    return std::llround(device.download(rows, at).at(0));
}

void join_step(Device& device, Module& model, GradientSync& sync, Optimizer& optimizer,
               const Tensor& no_rows) {
    sync.begin();
    zero_gradients(model);
    if (no_rows) {
        Saved saved;
        const Tensor y = model.forward(no_rows, saved);
        model.backward(device.zeros(y.shape(), y.dtype()), saved);
    }
    sync.finish();
    const PhaseScope phase(device, Phase::update);
    sync.update(optimizer);
}
// lesson: end

}  // namespace lockstep
