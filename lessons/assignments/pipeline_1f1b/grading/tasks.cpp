#include "adapters.hpp"
#include "lessons/assignments/leave_schedule.hpp"

namespace lockstep {

Tasks tasks() {
    return {
        {"one_forward_one_backward", leaves_schedule([](const TaskInputs& in) {
             return adapters::one_forward_one_backward(in.integer("stages"),
                                                       in.integer("micro_batches"));
         })},
        {"with_memory_limit", leaves_schedule([](const TaskInputs& in) {
             return adapters::with_memory_limit(
                 in.integer("stages"), in.integer("micro_batches"), in.integer("limit"));
         })},
        {"split_backward", leaves_schedule([](const TaskInputs& in) {
             return adapters::split_backward(
                 in.integer("stages"), in.integer("micro_batches"), in.integer("limit"));
         })}};
}

}  // namespace lockstep
