#include "src/pipeline/holdings.hpp"

#include <algorithm>
#include <map>

#include "src/pipeline/walk.hpp"

namespace lockstep {

void Holdings::add(const Instruction& done, const KeptMemory& kept) {
    switch (done.kind) {
        case InstructionKind::forward:
            ++in_flight;
            break;
        case InstructionKind::backward:
            --in_flight;
            break;
        case InstructionKind::backward_input:
            --in_flight;
            ++between;
            break;
        case InstructionKind::backward_weight:
            --between;
            break;
        default:
            return;
    }
    memory = in_flight * kept.activations + between * kept.for_weights;
}

namespace {

/// Weights of one chunk that its micro-batches still read.
class VersionsInUse {
  public:
    void add(const Instruction& done, int version) {
        const bool begins = done.kind == InstructionKind::forward;
        const bool ends = done.kind == InstructionKind::backward ||
                          done.kind == InstructionKind::backward_weight;
        if (begins) ++uses_[version];
        if (ends && --uses_[version] == 0) uses_.erase(version);
    }
    int with(int newest) const {
        return static_cast<int>(uses_.size()) + (uses_.contains(newest) ? 0 : 1);
    }

  private:
    std::map<int, int> uses_;
};

Holdings peak_of(const Schedule& schedule, const WeightVersions& versions, int stage,
                 const KeptMemory& kept) {
    Holdings now;
    Holdings peak;
    std::vector<VersionsInUse> in_use(static_cast<std::size_t>(schedule.chunks));
    for (const Place place : schedule.places(stage)) {
        const Instruction& work = schedule.at(place);
        now.add(work, kept);
        VersionsInUse& chunk = in_use[work.chunk];
        const bool steps = work.kind == InstructionKind::optimizer_step;
        if (has_micro_batch(work.kind) && !is_message(work.kind))
            chunk.add(work, versions.read(place));
        peak.in_flight = std::max(peak.in_flight, now.in_flight);
        peak.between = std::max(peak.between, now.between);
        peak.memory = std::max(peak.memory, now.memory);
        peak.weight_versions = std::max(
            peak.weight_versions, chunk.with(versions.newest(place) + (steps ? 1 : 0)));
    }
    return peak;
}

}  // namespace

std::vector<Holdings> peak_holdings(const Schedule& schedule, const KeptMemory& kept) {
    const WeightVersions versions(schedule);
    std::vector<Holdings> peaks;
    for (int stage = 0; stage < schedule.stages; ++stage)
        peaks.push_back(peak_of(schedule, versions, stage, kept));
    return peaks;
}

}  // namespace lockstep
