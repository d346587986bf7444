#include "src/pipeline/placements.hpp"

#include "src/core/require.hpp"

namespace lockstep {

Schedule empty_waves(const std::string& name, PipelineShape shape) {
    if (shape.chunks == 1) shape.chunks = 2;
    require(shape.chunks % 2 == 0,
            "{} has an even number of chunks a stage; {} were asked for", name,
            shape.chunks);
    Schedule schedule = empty_schedule(name, shape);
    for (int stage = 0; stage < shape.stages; ++stage)
        for (int chunk = 1; chunk < shape.chunks; chunk += 2)
            schedule.parts[stage][chunk] = (chunk + 1) * shape.stages - 1 - stage;
    return schedule;
}

Schedule empty_two_ways(const std::string& name, PipelineShape shape) {
    if (shape.chunks == 1) shape.chunks = 2;
    Schedule schedule = empty_schedule(name, shape);
    require(shape.stages % 2 == 0,
            "{} has micro-batches that enter at both ends, and an even number of stages "
            "between; {} were asked for",
            name, shape.stages);
    for (int stage = 0; stage < shape.stages; ++stage)
        schedule.parts[stage] = {stage, shape.stages - 1 - stage};
    return schedule;
}

}  // namespace lockstep
