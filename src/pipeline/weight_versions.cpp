#include "src/pipeline/weight_versions.hpp"

namespace lockstep {

using enum InstructionKind;

WeightVersions::WeightVersions(const Schedule& schedule) : schedule_(schedule) {
    for (const std::vector<Instruction>& list : schedule.work) {
        std::vector<int> steps(static_cast<std::size_t>(schedule.chunks), 0);
        std::vector<int>& newest = newest_.emplace_back();
        newest.reserve(list.size());
        for (const Instruction& each : list) {
            int& chunk = steps[each.chunk];
            newest.push_back(chunk);
            if (each.kind == optimizer_step) ++chunk;
        }
    }
}

std::vector<std::vector<std::vector<WeightUse>>> weight_uses(const Schedule& schedule) {
    const WeightVersions versions(schedule);
    const std::vector<WeightUse> none(static_cast<std::size_t>(schedule.micro_batches));
    std::vector uses(static_cast<std::size_t>(schedule.stages),
                     std::vector(static_cast<std::size_t>(schedule.chunks), none));
    for (int stage = 0; stage < schedule.stages; ++stage) {
        // Micro-batches whose gradients wait for their chunk's step.
        std::vector<std::vector<int>> waiting(static_cast<std::size_t>(schedule.chunks));
        for (const Place place : schedule.places(stage)) {
            const Instruction& work = schedule.at(place);
            std::vector<WeightUse>& chunk = uses[stage][work.chunk];
            if (work.kind == forward)
                chunk[work.micro_batch].forward = versions.read(place);
            if (work.kind == backward || work.kind == backward_input)
                chunk[work.micro_batch].backward = versions.read(place);
            if (work.kind == backward || work.kind == backward_weight)
                waiting[work.chunk].push_back(work.micro_batch);
            if (work.kind != optimizer_step) continue;
            for (const int micro_batch : waiting[work.chunk])
                chunk[micro_batch].updated = versions.newest(place);
            waiting[work.chunk].clear();
        }
    }
    return uses;
}

}  // namespace lockstep
