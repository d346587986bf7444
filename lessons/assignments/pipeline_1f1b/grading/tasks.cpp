#include "adapters.hpp"
#include "src/core/require.hpp"
#include "src/course/task.hpp"
#include "src/pipeline/schedule_json.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep {

namespace {

/// As text, which has no place for a number that cannot be.
std::string json_of(const Schedule& schedule) {
    const auto problem = find_bad_number(schedule);
    require(!problem, [&] { return problem->sentence; });
    return schedule_json(schedule);
}

/// The schedule as text, asked for twice.
Task written(Schedule (*make)(const TaskInputs& in)) {
    return [make](Rank& /*rank*/, const TaskInputs& in, TaskOutputs& out) {
        out.texts["schedule"] = json_of(make(in));
        out.texts["again"] = json_of(make(in));
    };
}

}  // namespace

Tasks tasks() {
    return {
        {"one_forward_one_backward", written([](const TaskInputs& in) {
             return adapters::one_forward_one_backward(in.integer("stages"),
                                                       in.integer("micro_batches"));
         })},
        {"with_memory_limit", written([](const TaskInputs& in) {
             return adapters::with_memory_limit(
                 in.integer("stages"), in.integer("micro_batches"), in.integer("limit"));
         })},
        {"split_backward", written([](const TaskInputs& in) {
             return adapters::split_backward(
                 in.integer("stages"), in.integer("micro_batches"), in.integer("limit"));
         })}};
}

}  // namespace lockstep
