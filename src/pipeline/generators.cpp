#include "src/pipeline/generators.hpp"

#include <algorithm>

#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/pipeline/period.hpp"

namespace lockstep {

namespace {

struct Generator {
    const char* name;
    Schedule (*make)(const PipelineShape& shape);
    int most_chunks = 1;  ///< on a stage
    bool flushes = true;  ///< before each update
};

constexpr Generator kGenerators[] = {
    {"naive", naive_schedule},
    {"gpipe", gpipe_schedule},
    {"1f1b", one_forward_one_backward_schedule},
    {"interleaved", interleaved_schedule, kMostChunks},
    {"looped-bfs", looped_breadth_first_schedule, kMostChunks},
    {"hanayo", hanayo_schedule, kMostChunks},
    {"zb-h1", zb_h1_schedule},
    {"zb-h2", zb_h2_schedule},
    {"zb-v", zb_v_schedule, 2},
    {"v-half", v_half_schedule, 2},
    {"v-min", v_min_schedule, 2},
    {"chimera", chimera_schedule, 2},
    {"dualpipe", dualpipe_schedule, 2},
    {"dualpipe-v", dualpipe_v_schedule, 2},
    {"pipedream", pipedream_schedule, 1, false},
    {"pipedream-vertical", pipedream_vertical_schedule, 1, false},
    {"pipedream-2bw", pipedream_2bw_schedule, 1, false},
    {"unstashed", unstashed_schedule, 1, false},
    {"spectrain", spectrain_schedule, 1, false},
    {"pipemare", pipemare_schedule, 1, false},
};

/// Returns the names of the generators that can have `chunks` chunks on a stage.
std::vector<std::string> names_with_at_least(int chunks) {
    std::vector<std::string> names;
    for (const Generator& each : kGenerators)
        if (each.most_chunks >= chunks) names.emplace_back(each.name);
    return names;
}

/// Repeats a step of `per_update` micro-batches until all micro-batches are done.
Schedule step_by_step(const Generator& generator, const PipelineShape& shape) {
    require(shape.micro_batches % shape.per_update == 0,
            "{} flushes after every {} micro-batches; {} is not a multiple of that",
            generator.name, shape.per_update, shape.micro_batches);
    PipelineShape one = shape;
    one.micro_batches = shape.per_update;
    Schedule schedule = generator.make(one);
    Period whole{shape.per_update, 1, {}};
    for (const std::vector<Instruction>& list : schedule.work)
        whole.first.push_back({0, static_cast<int>(list.size())});
    schedule.period = whole;
    return repeated(schedule, shape.micro_batches / shape.per_update);
}

}  // namespace

const std::vector<std::string>& schedule_names() {
    static const std::vector<std::string> names = names_with_at_least(1);
    return names;
}

const std::vector<std::string>& schedules_of_many_chunks() {
    static const std::vector<std::string> names = names_with_at_least(kMostChunks);
    return names;
}

namespace {

const Generator& generator(const std::string& name) {
    const Generator* found = std::ranges::find_if(
        kGenerators, [&](const Generator& each) { return name == each.name; });
    require(found != std::end(kGenerators), "unknown schedule '{}'; there are {}", name,
            fmt::join(schedule_names(), ", "));
    return *found;
}

}  // namespace

Schedule make_schedule(const std::string& name, const PipelineShape& shape) {
    const Generator* found = &generator(name);
    const bool any = found->most_chunks == kMostChunks;
    require(any || shape.chunks <= 1 || shape.chunks <= found->most_chunks,
            "{} has {} a stage, but {} were asked for; these can have more: {}", name,
            found->most_chunks == 1 ? "one chunk" : "two chunks", shape.chunks,
            fmt::join(schedules_of_many_chunks(), ", "));
    require(shape.per_update >= 0,
            "{} micro-batches per update; at least one is expected", shape.per_update);
    const bool steps = found->flushes && shape.per_update > 0;
    return steps ? step_by_step(*found, shape) : found->make(shape);
}

bool flushes(const std::string& name) {
    return generator(name).flushes;
}

namespace {

/// Returns the number of updates on the first stage.
int count_updates(const Schedule& schedule) {
    int updates = 0;
    for (const Instruction& each : schedule.of_stage(0))
        updates += each.kind == InstructionKind::optimizer_step;
    return updates;
}

}  // namespace

std::optional<Schedule> make_endless_schedule(const std::string& name,
                                              PipelineShape shape) {
    if (flushes(name)) return std::nullopt;
    // The generator's own `per_update` must not change with more micro-batches.
    if (const int updates = count_updates(make_schedule(name, shape)))
        shape.per_update = shape.micro_batches / updates;
    for (;; shape.micro_batches *= 2) {
        Schedule schedule = make_schedule(name, shape);
        if (schedule.period) return schedule;
    }
}

}  // namespace lockstep
