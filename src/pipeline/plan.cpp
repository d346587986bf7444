#include "src/pipeline/plan.hpp"

#include "src/pipeline/validate.hpp"

namespace lockstep {

namespace {

Schedule prepared(const Schedule& schedule) {
    if (!schedule.has_messages()) return with_messages(schedule);
    require_valid(schedule);
    return schedule;
}

}  // namespace

PipelinePlan::PipelinePlan(const Schedule& schedule)
    : PipelinePlan(AsItIs{}, prepared(schedule)) {}

PipelinePlan PipelinePlan::unchecked(Schedule schedule) {
    return {AsItIs{}, std::move(schedule)};
}

PipelinePlan::PipelinePlan(AsItIs /*tag*/, Schedule schedule)
    : schedule_(std::move(schedule)),
      index_(schedule_),
      versions_(schedule_) {}

}  // namespace lockstep
