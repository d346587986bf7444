// Pipelines without a flush: forwards of the next batch run while weights change. No time
// is lost in filling and draining, but gradients are computed with older weights.

#include <algorithm>

#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep {

namespace {

/// Returns how many forwards a stage runs ahead of its backwards.
int ahead_of(const PipelineShape& shape, int stage) {
    return shape.stages - 1 - stage;
}

/// Sets which weights an instruction reads; `updates` updates come before it.
using Reads = void (*)(const PipelineShape& shape, int stage, int updates,
                       Instruction& work);

/// Names the version, unless it is the newest.
void read_version(int version, int updates, Instruction& work) {
    if (version != updates) work.weight_version = version;
}

// lesson: pipedream-versions
/// Forward reads the newest version, which earlier backwards have made.
/// Backward reads the same version, which the stage has kept.
int newest_forward(const PipelineShape& shape, int stage, int micro_batch) {
    return std::max(micro_batch - ahead_of(shape, stage), 0);
}
void stashed(const PipelineShape& shape, int stage, int updates, Instruction& work) {
    read_version(newest_forward(shape, stage, work.micro_batch), updates, work);
}

/// All stages read the version that stage 0 reads, the oldest version.
void vertical(const PipelineShape& shape, int /*stage*/, int updates, Instruction& work) {
    read_version(newest_forward(shape, 0, work.micro_batch), updates, work);
}

/// Micro-batches of batch k read version k - 1, which all stages have.
void two_buffers(const PipelineShape& shape, int /*stage*/, int updates,
                 Instruction& work) {
    read_version(std::max(work.micro_batch / shape.per_update - 1, 0), updates, work);
}

/// Both directions read the newest version, so backward mixes two versions.
void unstashed(const PipelineShape& shape, int stage, int updates, Instruction& work) {
    const int read = newest_forward(shape, stage, work.micro_batch);
    work.mixes_weights = work.kind == InstructionKind::backward && read != updates;
}

/// Forward reads a prediction of the weights that backward will read.
void predicted(const PipelineShape& /*shape*/, int /*stage*/, int updates,
               Instruction& work) {
    if (work.kind == InstructionKind::backward || work.micro_batch == updates) return;
    work.weight_version = work.micro_batch;
    work.estimated = true;
}

/// Backward reads an estimate of the weights that forward has read.
void corrected(const PipelineShape& shape, int stage, int updates, Instruction& work) {
    const int read = newest_forward(shape, stage, work.micro_batch);
    if (work.kind == InstructionKind::forward || read == updates) return;
    work.weight_version = read;
    work.estimated = true;
}
// lesson: end

/// Finds the middle that repeats. It begins with a forward after the warm-up of all
/// stages. From there on, each version that is read grows by one from copy to copy.
class Middle {
  public:
    Middle(Schedule& schedule, const PipelineShape& shape)
        : schedule_(schedule), each_(shape.per_update), period_{shape.per_update, 0, {}} {
        const int p = shape.stages;
        const int settled = std::max(2 * (p - 1), each_ + p - 1);
        first_ = (settled + each_ - 1) / each_ * each_;
        period_.times = (shape.micro_batches - first_) / each_;
        period_.first.resize(schedule.work.size());
    }

    /// Call it before the stage's forward of this micro-batch is added.
    void note(int stage, int micro_batch) {
        const int position = static_cast<int>(schedule_.work[stage].size());
        if (micro_batch == first_) period_.first[stage].first = position;
        if (micro_batch == first_ + each_) period_.first[stage].last = position;
    }
    /// Marks the schedule's middle, if the schedule has at least one copy of it.
    void mark() {
        if (period_.times < 1) return;
        for (std::size_t stage = 0; stage < schedule_.work.size(); ++stage)
            if (period_.first[stage].last == 0)
                period_.first[stage].last =
                    static_cast<int>(schedule_.work[stage].size());
        schedule_.period = period_;
    }

  private:
    Schedule& schedule_;
    int each_;
    Period period_;
    int first_ = 0;
};

/// 1F1B without a flush. Weights change once the gradients of `per_update` micro-batches
/// are summed up.
// lesson: pipedream-schedule
Schedule endless(const std::string& name, const PipelineShape& shape, Reads reads) {
    Schedule schedule = empty_schedule(name, shape);
    const int m = shape.micro_batches;
    Middle middle(schedule, shape);
    for (int stage = 0; stage < shape.stages; ++stage) {
        auto& work = schedule.work[stage];
        int updates = 0;
        const auto add = [&](InstructionKind kind, int i) {
            work.push_back({kind, i});
            reads(shape, stage, updates, work.back());
        };
        const int ahead = std::min(ahead_of(shape, stage), m);
        for (int i = 0; i < ahead; ++i)
            add(InstructionKind::forward, i);
        for (int i = 0; i < m; ++i) {
            middle.note(stage, i + ahead);
            if (i + ahead < m) add(InstructionKind::forward, i + ahead);
            add(InstructionKind::backward, i);
            if ((i + 1) % shape.per_update != 0) continue;
            work.push_back({InstructionKind::reduce_gradients});
            work.push_back({InstructionKind::optimizer_step});
            ++updates;
        }
    }
    middle.mark();
    return schedule;
}
// lesson: end

Schedule behind_every_micro_batch(const char* name, PipelineShape shape, Reads reads) {
    require(shape.per_update <= 1,
            "{} updates the weights after every micro-batch; to update them after every "
            "{} micro-batches, use pipedream-2bw",
            name, shape.per_update);
    shape.per_update = 1;
    return endless(name, shape, reads);
}

}  // namespace

Schedule pipedream_schedule(const PipelineShape& shape) {
    return behind_every_micro_batch("pipedream", shape, stashed);
}

Schedule pipedream_vertical_schedule(const PipelineShape& shape) {
    return behind_every_micro_batch("pipedream-vertical", shape, vertical);
}

Schedule unstashed_schedule(const PipelineShape& shape) {
    return behind_every_micro_batch("unstashed", shape, unstashed);
}

Schedule spectrain_schedule(const PipelineShape& shape) {
    return behind_every_micro_batch("spectrain", shape, predicted);
}

Schedule pipemare_schedule(const PipelineShape& shape) {
    return behind_every_micro_batch("pipemare", shape, corrected);
}

Schedule pipedream_2bw_schedule(const PipelineShape& shape) {
    const auto problem = size_problem(shape);
    require(!problem, [&] { return *problem; });
    PipelineShape made = shape;
    if (made.per_update == 0)
        for (made.per_update = std::min(made.stages, made.micro_batches);
             made.micro_batches % made.per_update != 0;)
            ++made.per_update;
    // Stage 0 begins batch b with p - 1 micro-batches in flight. If all of them belong
    // to batch b - 1, then batch b - 2 is done and has made version b - 1.
    require(made.per_update >= std::min(made.stages - 1, made.micro_batches),
            "pipedream-2bw with {} micro-batches an update on {} stages: two versions of "
            "the weights need at least {} micro-batches an update",
            made.per_update, made.stages, made.stages - 1);
    require(made.micro_batches % made.per_update == 0,
            "pipedream-2bw updates the weights after every {} micro-batches; {} is not a "
            "multiple of that",
            made.per_update, made.micro_batches);
    return endless("pipedream-2bw", made, two_buffers);
}

}  // namespace lockstep
