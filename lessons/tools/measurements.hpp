#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "src/comm/operation.hpp"
#include "src/core/dtype.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace lockstep::lessons {

/// A collective of a size as nccl-tests counts it (call_of_size).
struct MeasuredCollective {
    Verb verb;
    int ranks = 0;
    int nodes = 0;  ///< 0: as few as the cluster needs
    std::int64_t bytes = 0;
};

/// A product of matrices, (rows, inner) times (inner, columns).
struct MeasuredProduct {
    std::int64_t rows = 0;
    std::int64_t inner = 0;
    std::int64_t columns = 0;
    DType dtype = DType::bf16;
};

/// An operation that only reads and writes memory: `bytes` in all.
struct MeasuredTraffic {
    std::int64_t bytes = 0;
};

/// A layer of a GPT (attention and MLP, 4 h inside, bf16), forward or backward.
struct MeasuredLayer {
    std::int64_t hidden = 0;
    std::int64_t heads = 0;
    std::int64_t tokens = 0;     ///< of a sequence
    std::int64_t sequences = 0;  ///< of a micro-batch
    int tensor_parallel = 1;
    bool sequence_parallel = false;
    MeshOptions::Recompute recompute = MeshOptions::Recompute::nothing;
    bool backward = false;

    bool operator==(const MeasuredLayer&) const = default;
};

struct Measurement {
    std::variant<MeasuredCollective, MeasuredProduct, MeasuredTraffic, MeasuredLayer>
        what;
    double seconds = 0;
};

/// Returns what was measured: "all_reduce of 1.00 MiB over 16 ranks".
std::string text_of(const Measurement& measurement);

/// Reads measurements from a CSV file with a row of column names, or from what nccl-tests
/// printed. `given` has columns for all rows, whatever the file says: {"ranks", "16"}.
/// Throws UsageError with the name, the line, and what was expected.
///
///     verb,ranks,nodes,bytes,us                      a collective
///     rows,inner,columns,dtype,us                    a product
///     traffic_bytes,us                               an operation without arithmetic
///     hidden,heads,tokens,sequences,tensor_parallel,sequence_parallel,recompute,
///         forward_ms,backward_ms                     a layer
///
/// Times may be in `seconds`, `ms` or `us`. nodes, dtype, tensor_parallel,
/// sequence_parallel, recompute and one of a layer's times may be missing. Other columns
/// are ignored. nccl-tests names its ranks and their hosts. If they were cut off, busbw /
/// algbw often tells the verb and the number of ranks; else `given` must.
std::vector<Measurement> read_measurements(
    const std::string& bytes, const std::string& name,
    const std::map<std::string, std::string>& given);

}  // namespace lockstep::lessons
