#include <algorithm>

#include "src/pipeline/generators.hpp"

namespace lockstep {

namespace {

/// The order of forwards and the order of backwards, the same on every stage. Each round
/// of micro-batches goes through all chunks in turn: forward from the first, backward
/// from the last.
class Turns {
  public:
    /// Makes the maximum number of rounds with at least p micro-batches each. Their sizes
    /// differ by at most one.
    explicit Turns(const PipelineShape& shape) {
        const int m = shape.micro_batches;
        const int rounds = std::max(m / shape.stages, 1);
        largest_ = (m + rounds - 1) / rounds;
        int first = 0;
        for (int round = 0; round < rounds; ++round) {
            const int size = m / rounds + (round < m % rounds ? 1 : 0);
            for (int chunk = 0; chunk < shape.chunks; ++chunk)
                for (int i = first; i < first + size; ++i) {
                    forward_.push_back({InstructionKind::forward, i, chunk});
                    backward_.push_back(
                        {InstructionKind::backward, i, shape.chunks - 1 - chunk});
                }
            first += size;
        }
    }

    int count() const { return static_cast<int>(forward_.size()); }
    int largest_round() const { return largest_; }
    const Instruction& forward(int k) const { return forward_[k]; }
    const Instruction& backward(int k) const { return backward_[k]; }

  private:
    int largest_ = 0;
    std::vector<Instruction> forward_;
    std::vector<Instruction> backward_;
};

}  // namespace

// lesson: interleaved-schedule
Schedule interleaved_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("interleaved", shape);
    const int p = shape.stages;
    const Turns turns(shape);
    for (int stage = 0; stage < p; ++stage) {
        auto& work = schedule.work[stage];
        // Warm-up: forwards until the first backward reaches this stage.
        const int ahead =
            std::min(2 * (p - 1 - stage) + (shape.chunks - 1) * turns.largest_round(),
                     turns.count());
        for (int k = 0; k < ahead; ++k)
            work.push_back(turns.forward(k));
        for (int k = ahead; k < turns.count(); ++k) {
            work.push_back(turns.forward(k));
            work.push_back(turns.backward(k - ahead));
        }
        for (int k = turns.count() - ahead; k < turns.count(); ++k)
            work.push_back(turns.backward(k));
    }
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
