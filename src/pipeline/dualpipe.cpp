#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep {

namespace {

/// The work of a stage on two streams of micro-batches. Stream 0 goes from this stage to
/// the middle of the pipeline; stream 1 comes from the middle.
class DualWork {
  public:
    /// The chunk and the first micro-batch of each stream.
    DualWork(std::array<int, 2> chunks, std::array<int, 2> first)
        : chunks_(chunks), next_forward_(first), next_backward_(first) {}

    void forward(int stream) {
        work_.push_back(
            {InstructionKind::forward, next_forward_[stream]++, chunks_[stream]});
    }
    void backward(int stream) {
        work_.push_back(
            {InstructionKind::backward, next_backward_[stream]++, chunks_[stream]});
    }
    /// The first half of a backward; weight() adds the second half.
    void backward_input(int stream) {
        work_.push_back(
            {InstructionKind::backward_input, next_backward_[stream]++, chunks_[stream]});
        halves_.push_back(work_.back());
    }
    void weight() {
        work_.push_back(halves_.front());
        work_.back().kind = InstructionKind::backward_weight;
        halves_.pop_front();
    }
    /// A forward and a backward that overlap.
    void pair(int forwards, int backwards) {
        forward(forwards);
        backward(backwards);
        work_.back().together = true;
    }
    std::vector<Instruction> take() { return std::move(work_); }

  private:
    std::array<int, 2> chunks_;
    std::array<int, 2> next_forward_;
    std::array<int, 2> next_backward_;
    std::deque<Instruction> halves_;
    std::vector<Instruction> work_;
};

/// Adds all work of a stage, in order. `stage` is counted from an end of the pipeline (0)
/// to its middle (`half` - 1). Each stream has `count` micro-batches.
// lesson: dualpipe-schedule
void fill(DualWork& work, int half, int stage, int count) {
    const int behind = half - 1 - stage;  // stages from here to the middle
    const bool middle = behind == 0;
    for (int i = 0; i < 2 * behind; ++i)
        work.forward(0);
    for (int i = 0; i <= stage; ++i) {
        work.forward(0);
        work.forward(1);
    }
    for (int i = 0; i < behind; ++i) {
        work.backward_input(1);
        work.weight();
        work.forward(1);
    }
    for (int i = 0; i < count - 2 * half + stage + 1; ++i) {
        if (i == 0 && middle) {
            work.forward(0);  // the backward waits for this stage's own forward
            work.backward(1);
        } else {
            work.pair(0, 1);
        }
        work.pair(1, 0);
    }
    for (int i = 0; i < behind; ++i) {
        work.backward(1);
        work.pair(1, 0);
    }
    // More backwards: first `stage` + 1 whole ones, then `stage` + 1 first halves.
    for (int i = 0; i < 2 * (stage + 1); ++i) {
        const int stream = i % 2 == 0 ? 1 : 0;
        if (i <= stage)
            work.backward(stream);
        else
            work.backward_input(stream);
    }
    for (int i = 0; i < behind; ++i) {
        work.weight();
        work.backward_input(0);
    }
    for (int i = 0; i <= stage; ++i)
        work.weight();
}
// lesson: end

}  // namespace

Schedule dualpipe_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_two_ways("dualpipe", shape);
    const int p = shape.stages;
    const int count = shape.micro_batches / 2;
    require(shape.micro_batches % 2 == 0 && count >= p,
            "dualpipe needs an even number of micro-batches, at least 2 p; {} for {} "
            "stages were asked for",
            shape.micro_batches, p);
    for (int stage = 0; stage < p; ++stage) {
        // The upper half is mirrored: there stream 0 goes up.
        const bool mirrored = stage >= p / 2;
        DualWork work(mirrored ? std::array{1, 0} : std::array{0, 1},
                      mirrored ? std::array{count, 0} : std::array{0, count});
        fill(work, p / 2, std::min(stage, p - 1 - stage), count);
        schedule.work[stage] = work.take();
    }
    end_step(schedule);
    return schedule;
}

Schedule dualpipe_v_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_waves("dualpipe-v", shape);
    const int p = shape.stages;
    require(
        shape.micro_batches >= 2 * p,
        "dualpipe-v needs at least 2 p micro-batches; {} for {} stages were asked for",
        shape.micro_batches, p);
    for (int stage = 0; stage < p; ++stage) {
        DualWork work({0, 1}, {0, 0});
        fill(work, p, stage, shape.micro_batches);
        schedule.work[stage] = work.take();
    }
    end_step(schedule);
    return schedule;
}

}  // namespace lockstep
