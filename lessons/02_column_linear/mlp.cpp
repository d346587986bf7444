#include "lessons/02_column_linear/mlp.hpp"

#include <algorithm>
#include <cmath>

#include "lessons/02_column_linear/pass.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/report/compare.hpp"

namespace lockstep::lessons {

namespace {

// lesson: gathered-mlp
// x (N, hidden) -> c_fc (N, inner) -> GELU -> c_proj (N, hidden), each of
// which every rank gets whole
std::unique_ptr<Sequential> make_gathered_mlp(const ParameterInit& init,
                                              TensorParallel& tp, std::int64_t hidden,
                                              std::int64_t inner) {
    const ColumnParallelOptions gather{.gather_output = true};
    auto mlp = std::make_unique<Sequential>();
    mlp->add<ColumnParallelLinear>(init.child("c_fc"), tp, hidden, inner, gather);
    mlp->add<Gelu>(init.device);
    mlp->add<ColumnParallelLinear>(init.child("c_proj"), tp, inner, hidden, gather);
    return mlp;
}
// lesson: end

}  // namespace

Task mlp_shapes(const MlpSizes& sizes, MlpSplit split, DType dtype) {
    Task task;
    task.make = [sizes, split](const ParameterInit& init, TensorParallel& tp) {
        if (split == MlpSplit::none) return make_mlp(init, sizes.hidden, sizes.inner);
        if (split == MlpSplit::gathered)
            return make_gathered_mlp(init, tp, sizes.hidden, sizes.inner);
        return make_mlp(init, sizes.hidden, sizes.inner, tensor_parallel({}, tp));
    };
    task.x = task.dy = HostTensor({sizes.rows, sizes.hidden}, dtype);
    task.keeps = false;
    return task;
}

Task mlp_task(const MlpSizes& sizes, MlpSplit split, DType dtype, std::uint64_t seed) {
    Task task = mlp_shapes(sizes, split, dtype);
    const Shape shape = task.x.shape();
    task.x = normal_numbers(shape, dtype, seed, "mlp/x");
    task.dy = normal_numbers(shape, dtype, seed, "mlp/dy");
    task.seed = seed;
    task.keeps = true;
    return task;
}

NamedTensors results(const RunReport& report) {
    NamedTensors whole = whole_gradients(report);
    for (const char* name : {"y", "dx"})
        whole.emplace(name, kept(report, 0, name));
    return whole;
}

double largest_difference(const NamedTensors& a, const NamedTensors& b) {
    double worst = 0;
    for (const TensorDifference& tensor : compare_tensors(a, b, std::nullopt).tensors) {
        // A NaN stays, whatever comes after it.
        if (std::isnan(tensor.largest_relative) || !tensor.problem.empty())
            return std::nan("");
        worst = std::max(worst, tensor.largest_relative);
    }
    return worst;
}

std::int64_t collectives(const RunReport& report, int rank) {
    std::int64_t calls = 0;
    for (const Traffic& traffic : report.ranks[rank].traffic)
        calls += traffic.calls;
    return calls;
}

Picoseconds pass_time(const RunReport& report) {
    Picoseconds begin = report.makespan();
    Picoseconds end = 0;
    for (const TraceEvent& event : report.trace) {
        if (event.kind != "phase") continue;
        begin = std::min(begin, event.start);
        end = std::max(end, event.end);
    }
    return std::max<Picoseconds>(end - begin, 0);
}

}  // namespace lockstep::lessons
