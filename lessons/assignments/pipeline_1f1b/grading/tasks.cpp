#include "adapters.hpp"
#include "src/course/task.hpp"
#include "src/pipeline/schedule_json.hpp"

namespace lockstep {

namespace {

/// The schedule as text, asked for twice.
Task written(Schedule (*make)(const TaskInputs& in)) {
    return [make](Rank& /*rank*/, const TaskInputs& in, TaskOutputs& out) {
        out.texts["schedule"] = schedule_json(make(in));
        out.texts["again"] = schedule_json(make(in));
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
