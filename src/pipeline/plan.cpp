#include "src/pipeline/plan.hpp"

#include "src/core/require.hpp"
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
    if (const auto bad = find_bad_number(schedule))
        throw UsageError(bad->sentence);
    require(schedule.has_messages() || schedule.stages == 1, [&] {
        return "schedule '" + schedule.name +
               "' has no messages; with_messages_in_place() adds some";
    });
    return {AsItIs{}, std::move(schedule)};
}

PipelinePlan::PipelinePlan(AsItIs /*tag*/, Schedule schedule)
    : schedule_(std::move(schedule)),
      index_(schedule_),
      versions_(schedule_) {}

}  // namespace lockstep
