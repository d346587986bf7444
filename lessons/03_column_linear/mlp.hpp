#pragma once

#include "lessons/03_column_linear/pass.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::lessons {

struct MlpSizes {
    std::int64_t rows = 0;    ///< of its input
    std::int64_t hidden = 0;  ///< columns of its input and output
    std::int64_t inner = 0;   ///< columns between its two layers
};

/// How ranks share an MLP out.
enum class MlpSplit {
    none,               ///< one device has all
    columns_then_rows,  ///< Megatron-LM's
    gathered,           ///< both layers by columns, put together after each
};

/// An MLP, and normal values for x and dy, the same for the same seed.
Task mlp_task(const MlpSizes& sizes, MlpSplit split, DType dtype, std::uint64_t seed);
/// This task has shapes only, no numbers, and keeps nothing: it shows the costs.
Task mlp_shapes(const MlpSizes& sizes, MlpSplit split, DType dtype);

/// y, dx and the parameters' gradients, whole.
NamedTensors results(const RunReport& report);

/// How many collectives a rank took part in.
std::int64_t collectives(const RunReport& report, int rank);

/// From the begin of forward to the end of backward, on all ranks of a run
/// that was traced.
Picoseconds pass_time(const RunReport& report);

/// The collectives of the two halves of a pass, by the formulas.
struct MlpCalls {
    std::vector<CollectiveCall> forward, backward;
};
MlpCalls mlp_calls(const MlpSizes& sizes, MlpSplit split, DType dtype, int ranks);

/// Bytes counted less bytes by the formula, over all ranks and both halves.
std::int64_t byte_gap(const RunReport& report, const MlpCalls& calls);

/// How long they take one after another, and how much of that for no bytes at all.
struct CallTimes {
    Picoseconds all = 0;
    Picoseconds latency = 0;
};
CallTimes times_of(const MlpCalls& calls, const ClusterSpec& spec);

}  // namespace lockstep::lessons
