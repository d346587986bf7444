#include "src/pipeline/timer.hpp"

#include "src/core/require.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep {

namespace {

double ratio(Picoseconds part, Picoseconds whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Place Timing::begins_after(Place place) const {
    do
        place = causes[place.stage][place.position];
    while (place && !takes_time(place));
    return place;
}

double Timing::bubble_over_total() const {
    return ratio(bubble(), longest);
}

double Timing::bubble_over_ideal() const {
    return ratio(bubble(), ideal);
}

double Timing::utilisation() const {
    Picoseconds busy = 0;
    for (const StageTiming& stage : stages)
        busy += stage.busy;
    return ratio(busy, makespan) / static_cast<double>(stages.size());
}

Timing time_schedule(const Schedule& schedule, const ScheduleTimes& times) {
    times.require_fit(schedule);
    Examination found = examine_schedule(schedule, times);
    if (found.problem) throw UsageError(found.problem->sentence);
    return std::move(found.timing);
}

}  // namespace lockstep
