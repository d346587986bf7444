#pragma once

#include <utility>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// The maximum memory of one kind; more is refused.
constexpr double kMostKeptMemory = 1e15;

/// The memory, in any unit, that a stage holds for a chunk, or for a part of the model.
struct KeptMemory {
    /// For a micro-batch, from its forward to the end of the first half of its backward.
    double activations = 1;
    double for_weights = 1;  ///< for a micro-batch between the halves of its backward
    double recomputed = 0;   ///< extra, while backward or its first half runs
    double weights = 0;      ///< for each version of the weights

    bool operator==(const KeptMemory&) const = default;
};

/// The memory of all chunks.
struct ScheduleMemory {
    ScheduleMemory(const KeptMemory& all = {}) : each{all} {}
    explicit ScheduleMemory(std::vector<KeptMemory> by_part) : each(std::move(by_part)) {}

    std::vector<KeptMemory> each;  ///< one for all parts, or one for each part

    const KeptMemory& of_part(int part) const {
        return each[each.size() == 1 ? 0 : part];
    }
};

/// The amounts that a stage holds after an instruction, or at its peak.
struct Holdings {
    int in_flight = 0;  ///< micro-batches from forward to the first half of backward
    int between = 0;    ///< micro-batches between the halves of backward
    /// Versions of a chunk's weights: the newest, and older ones that are still to be
    /// read.
    int weight_versions = 1;
    // The amounts of each kind of memory in KeptMemory.
    double activations = 0;
    double for_weights = 0;
    double recomputed = 0;
    double weights = 0;
    double memory = 0;  ///< the sum of the four amounts
};

/// Follows what a stage holds, instruction by instruction.
class HeldByStage {
  public:
    /// Schedule and memory must outlive it.
    HeldByStage(const Schedule& schedule, int stage, const ScheduleMemory& memory);

    /// Runs the stage's next instructions, which begin together. Returns what the stage
    /// holds while they run; now() returns what it holds when they are done.
    /// Micro-batches and memory are summed over all chunks.
    Holdings run(Positions together);
    const Holdings& now() const { return now_; }

  private:
    struct Chunk {
        int in_flight = 0;
        int between = 0;
        int newest = 0;
        std::vector<int> last_read;  ///< by version: the last position that reads it
        std::vector<int> old;        ///< versions that are kept for later
    };

    void begin(const Instruction& work, int position);
    void end(const Instruction& work, int position);
    void add(Chunk& chunk, int in_flight, int between);
    /// Sums up all chunks.
    Holdings sum(double recomputed) const;

    const Schedule& schedule_;
    int stage_;
    const ScheduleMemory& memory_;
    std::vector<Chunk> chunks_;
    // These count all chunks together.
    int in_flight_ = 0;
    int between_ = 0;
    int old_ = 0;  ///< versions that are kept for later
    Holdings now_;
};

/// Returns the peak of each amount on each stage; the peaks may be at different times. A
/// micro-batch counts once in each chunk. An instruction's own workspace does not count.
/// The schedule must be valid.
std::vector<Holdings> peak_holdings(const Schedule& schedule,
                                    const ScheduleMemory& memory = {});
/// Returns the peaks within a range of each stage's list.
std::vector<Holdings> peak_holdings(const Schedule& schedule,
                                    const ScheduleMemory& memory,
                                    const std::vector<Positions>& within);

}  // namespace lockstep
