#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/pipeline/schedule.hpp"

/// When a stage keeps a version of its weights: the positions (from 0, in the stage's
/// list) of the instructions between which the version exists.
struct Kept {
    /// The U that makes the version; -1 for version 0, which exists from the beginning.
    int made = -1;
    /// The last instruction that needs the version; -1 for the last version, which stays.
    int dropped = -1;
};

/// A way to train many batches in a pipeline.
enum class Scheme {
    flush,       ///< 1F1B; the pipeline is flushed before each update
    stash,       ///< PipeDream: an update after every backward; old weights are kept
    two_buffers  ///< PipeDream-2BW
};

struct Choice {
    Scheme scheme = Scheme::flush;
    int per_update = 1;  ///< k, micro-batches for each update; 1 with a stash
};

/// The bytes of a stage's tensors.
struct StageBytes {
    std::int64_t weights = 0;      ///< bytes of one version
    std::int64_t activations = 0;  ///< bytes of one micro-batch in flight
    std::int64_t gradients = 0;    ///< the sum of gradients, which always exists
    std::int64_t optimizer = 0;    ///< the optimizer's state, which always exists
};

/// The setting for which you choose a scheme and k.
struct Setting {
    int stages = 1;                 ///< p
    std::int64_t memory = 0;        ///< memory of each stage's device, in bytes
    int most_per_update = 1;        ///< the largest k with which the model still learns
    int most_late = 0;              ///< maximum updates by which a gradient may be late
    std::int64_t forward = 1;       ///< t_f, on every stage
    std::int64_t backward = 2;      ///< t_b
    std::int64_t update = 1;        ///< t_u, the time of one U; more than 0
    std::vector<StageBytes> bytes;  ///< for each stage
};

// Tests and the grader call only these functions. Your own functions may have any
// signature: adapters.cpp calls them.

namespace adapters {

lockstep::Schedule two_buffers(int stages, int micro_batches, int per_update);
std::vector<Kept> kept_versions(const std::vector<lockstep::Instruction>& list);
std::int64_t most_bytes(const Choice& choice, int stages, int stage,
                        const StageBytes& bytes);
std::optional<Choice> fastest(const Setting& setting);

}  // namespace adapters
