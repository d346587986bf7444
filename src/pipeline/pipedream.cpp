// Pipelines that do not stop: forwards of the next batch go on while weights change, so
// that no time is lost in filling and draining, and gradients are of older weights.

#include <algorithm>

#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep {

namespace {

/// The version of the weights that a micro-batch reads on a stage, both ways.
using VersionOf = int (*)(const PipelineShape& shape, int stage, int micro_batch);

/// Forwards that a stage is ahead of its backwards.
int ahead_of(const PipelineShape& shape, int stage) {
    return shape.stages - 1 - stage;
}

// lesson: pipedream-versions
/// The newest there is: backwards of the micro-batches before have made it.
int newest(const PipelineShape& shape, int stage, int micro_batch) {
    return std::max(micro_batch - ahead_of(shape, stage), 0);
}

/// On all stages that of the first, where it is the oldest (vertical sync).
int that_of_the_first(const PipelineShape& shape, int /*stage*/, int micro_batch) {
    return newest(shape, 0, micro_batch);
}

/// The one before the newest that its batch could read everywhere (double buffering).
int one_batch_old(const PipelineShape& shape, int /*stage*/, int micro_batch) {
    return std::max(micro_batch / shape.per_update - 1, 0);
}
// lesson: end

/// Finds the middle that repeats: from a forward on which all stages come to behind their
/// warm-up, and whose backward reads no version from before the first update.
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

    /// The stage comes to the forward of this micro-batch.
    void note(int stage, int micro_batch) {
        const int position = static_cast<int>(schedule_.work[stage].size());
        if (micro_batch == first_) period_.first[stage].first = position;
        if (micro_batch == first_ + each_) period_.first[stage].last = position;
    }
    /// If there is one at least.
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
Schedule endless(const std::string& name, const PipelineShape& shape,
                 VersionOf version_of) {
    Schedule schedule = empty_schedule(name, shape);
    const int m = shape.micro_batches;
    Middle middle(schedule, shape);
    for (int stage = 0; stage < shape.stages; ++stage) {
        auto& work = schedule.work[stage];
        int updates = 0;
        const auto add = [&](InstructionKind kind, int i) {
            const int version = version_of(shape, stage, i);
            work.push_back({kind, i, 0, version == updates ? -1 : version});
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

}  // namespace

namespace {

PipelineShape behind_every_micro_batch(const char* name, PipelineShape shape) {
    require(shape.per_update <= 1,
            "{} updates the weights behind every micro-batch; {} an update are what "
            "pipedream-2bw has",
            name, shape.per_update);
    shape.per_update = 1;
    return shape;
}

}  // namespace

Schedule pipedream_schedule(const PipelineShape& shape) {
    constexpr const char* kName = "pipedream";
    return endless(kName, behind_every_micro_batch(kName, shape), newest);
}

Schedule pipedream_vertical_schedule(const PipelineShape& shape) {
    constexpr const char* kName = "pipedream-vertical";
    return endless(kName, behind_every_micro_batch(kName, shape), that_of_the_first);
}

Schedule pipedream_2bw_schedule(const PipelineShape& asked) {
    const auto problem = size_problem(asked);
    require(!problem, [&] { return *problem; });
    PipelineShape shape = asked;
    const int least = std::min(shape.stages, shape.micro_batches);
    if (shape.per_update == 0)
        for (shape.per_update = least; shape.micro_batches % shape.per_update != 0;)
            ++shape.per_update;
    require(shape.per_update >= least,
            "pipedream-2bw with {} micro-batches an update on {} stages: with fewer than "
            "stages two versions of the weights are not enough",
            shape.per_update, shape.stages);
    require(shape.micro_batches % shape.per_update == 0,
            "pipedream-2bw updates the weights behind every {} micro-batches; {} are no "
            "multiple of that",
            shape.per_update, shape.micro_batches);
    return endless("pipedream-2bw", shape, one_batch_old);
}

}  // namespace lockstep
