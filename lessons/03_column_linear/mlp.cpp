#include "lessons/03_column_linear/mlp.hpp"

#include <algorithm>
#include <numeric>

#include "lessons/03_column_linear/pass.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/trial/values.hpp"

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
    task.x = normal_values(shape, "mlp/x", dtype, seed);
    task.dy = normal_values(shape, "mlp/dy", dtype, seed);
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

MlpCalls mlp_calls(const MlpSizes& sizes, MlpSplit split, DType dtype, int ranks) {
    const auto call = [&](Verb verb, std::int64_t columns) {
        // An all-gather's count is that of one rank's part.
        const int parts = verb == Verb::all_gather ? ranks : 1;
        return CollectiveCall{verb, sizes.rows * columns / parts, bytes_of(dtype), ranks};
    };
    if (split == MlpSplit::columns_then_rows)
        return {{call(Verb::all_reduce, sizes.hidden)},
                {call(Verb::all_reduce, sizes.hidden)}};
    return {{call(Verb::all_gather, sizes.inner), call(Verb::all_gather, sizes.hidden)},
            {call(Verb::all_reduce, sizes.inner), call(Verb::all_reduce, sizes.hidden)}};
}

namespace {

std::int64_t bytes_of_calls(const std::vector<CollectiveCall>& calls, int rank) {
    std::int64_t bytes = 0;
    for (const CollectiveCall& call : calls)
        bytes += collective_traffic(call, rank).bytes_sent;
    return bytes;
}

}  // namespace

std::int64_t byte_gap(const RunReport& report, const MlpCalls& calls) {
    std::int64_t gap = 0;
    for (int rank = 0; rank < static_cast<int>(report.ranks.size()); ++rank) {
        const std::int64_t forward = bytes_of_half(report, rank, "forward");
        const std::int64_t backward = bytes_of_half(report, rank, "backward");
        gap += std::abs(forward - bytes_of_calls(calls.forward, rank)) +
               std::abs(backward - bytes_of_calls(calls.backward, rank)) +
               std::abs(report.ranks[rank].bytes_sent() - forward - backward);
    }
    return gap;
}

CallTimes times_of(const MlpCalls& calls, const ClusterSpec& spec) {
    CallTimes times;
    for (const auto& half : {calls.forward, calls.backward})
        for (const CollectiveCall& call : half) {
            std::vector<int> members(static_cast<std::size_t>(call.ranks));
            std::iota(members.begin(), members.end(), 0);
            times.all += collective_time(call, spec, members);
            times.latency += collective_latency(call, spec, members);
        }
    return times;
}

}  // namespace lockstep::lessons
