#pragma once

#include "src/pipeline/messages.hpp"
#include "src/pipeline/weight_versions.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep {

/// A schedule made ready to be executed: valid, and with its messages. Made
/// once, and shared by all stages that run in this process.
class PipelinePlan {
  public:
    /// Adds messages where there are none, planned for forwards and halves
    /// of backward that all take the same time. Throws UsageError where the
    /// schedule has a problem.
    explicit PipelinePlan(const Schedule& schedule);
    /// As it is, though it may deadlock, or worse: to see what becomes of
    /// it. Throws UsageError only where a number is out of range, or there
    /// are no messages.
    static PipelinePlan unchecked(Schedule schedule);

    PipelinePlan(const PipelinePlan&) = delete;
    PipelinePlan& operator=(const PipelinePlan&) = delete;

    const Schedule& schedule() const { return schedule_; }
    const WorkIndex& index() const { return index_; }
    const WeightVersions& versions() const { return versions_; }

  private:
    struct AsItIs {};
    PipelinePlan(AsItIs, Schedule schedule);

    Schedule schedule_;
    WorkIndex index_;
    WeightVersions versions_;
};

}  // namespace lockstep
