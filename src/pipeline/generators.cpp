#include "src/pipeline/generators.hpp"

#include <algorithm>

#include <fmt/ranges.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

struct Generator {
    const char* name;
    Schedule (*make)(const PipelineShape& shape);
    bool takes_chunks;
};

constexpr Generator kGenerators[] = {
    {"naive", naive_schedule, false},
    {"gpipe", gpipe_schedule, false},
    {"1f1b", one_forward_one_backward_schedule, false},
    {"interleaved", interleaved_schedule, true},
    {"zb-h1", zb_h1_schedule, false},
    {"zb-h2", zb_h2_schedule, false},
};

}  // namespace

const std::vector<std::string>& schedule_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> list;
        for (const Generator& each : kGenerators)
            list.emplace_back(each.name);
        return list;
    }();
    return names;
}

Schedule make_schedule(const std::string& name, const PipelineShape& shape) {
    const Generator* found = std::ranges::find_if(
        kGenerators, [&](const Generator& each) { return name == each.name; });
    require(found != std::end(kGenerators), "unknown schedule '{}'; there are {}", name,
            fmt::join(schedule_names(), ", "));
    require(shape.chunks <= 1 || found->takes_chunks,
            "{} has one chunk a stage; {} were asked for, which interleaved has", name,
            shape.chunks);
    return found->make(shape);
}

}  // namespace lockstep
