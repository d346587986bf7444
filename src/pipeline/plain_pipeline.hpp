#pragma once

#include <span>
#include <vector>

#include "src/pipeline/pipeline.hpp"

namespace lockstep {

/// One stage of a pipeline, as simple as possible. Read it before Pipeline
/// (pipeline.hpp), which executes every schedule and overlaps messages with computation.
/// Here a stage holds one chunk of the model, runs its instructions one by one, and waits
/// until each message, or group of messages, is done.
///
/// The caller does R and U: the step's gradients are left in the stage's parameters.
class PlainPipeline {
  public:
    /// This device is stage line.rank() and holds `stage`. All arguments must outlive the
    /// pipeline. Throws UsageError unless the plan has line.size() stages, part s on
    /// stage s, one queue of messages, and R and U only at the schedule's end.
    PlainPipeline(Device& device, Communicator& line, const PipelinePlan& plan,
                  Module& stage, PartBoundary boundary);

    /// Runs the schedule once. Returns the sum of weight times loss, (1), on the last
    /// stage; elsewhere the terms that this stage's layers have added to the loss, or
    /// none. Throws UsageError if the number of micro-batches is wrong.
    Tensor run(const Loss& loss, std::span<const MicroBatch> micro_batches);

  private:
    /// A micro-batch on this stage, between its forward and its backward.
    struct Flight {
        Saved saved{};
        Tensor x{}, y{}, dy{}, dx{};
    };

    bool is_first() const { return line_.rank() == 0; }
    bool is_last() const { return line_.rank() == line_.size() - 1; }
    void compute(const Instruction& work, const Loss& loss, const MicroBatch& batch);
    void forward(Flight& flight, const Loss& loss, const MicroBatch& batch);
    void exchange(Positions together, std::span<const MicroBatch> micro_batches);
    void add_to_total(const Tensor& loss);

    Device& device_;
    Communicator& line_;
    const Schedule& schedule_;
    Module& stage_;
    PartBoundary boundary_;
    std::vector<Flight> flights_;  ///< by micro-batch
    Tensor total_;
};

}  // namespace lockstep
