#include "src/pipeline/weight_versions.hpp"

namespace lockstep {

WeightVersions::WeightVersions(const Schedule& schedule)
    : schedule_(schedule) {
    for (const std::vector<Instruction>& list : schedule.work) {
        std::vector<int> steps(static_cast<std::size_t>(schedule.chunks),
                               0);
        std::vector<int>& newest = newest_.emplace_back();
        for (const Instruction& each : list) {
            int& chunk = steps[each.chunk];
            newest.push_back(chunk);
            if (each.kind == InstructionKind::optimizer_step) ++chunk;
        }
    }
}

}  // namespace lockstep
