#pragma once

#include <vector>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/known_order.hpp"
#include "src/pipeline/schedule.hpp"
#include "src/pipeline/times.hpp"

namespace lockstep {

/// search_order() found this.
struct FoundOrder {
    Schedule schedule;
    std::vector<KnownOrder> known;  ///< whatever they hold, the shortest first
};

/// Returns the generators' schedules that do the same work as this one on the same
/// stages, in other orders.
std::vector<KnownOrder> known_orders(const Schedule& work, const ScheduleTimes& times,
                                     const ScheduleMemory& memory);

/// Searches for the order of the same work in which no stage holds more than `limit` and
/// the bubble is least, and of these the one that ends first. In each chunk micro-batches
/// are in the order of the work, or in that of their numbers.
///
/// It begins with the best of the known orders that fit, so it never finds a worse one,
/// and changes it by simulated annealing (Kirkpatrick et al. 1983, Science 220): each
/// trial moves one instruction of one stage, and is kept if it is better, or with a
/// chance that falls. So what it finds need not be the best. The same call finds the same
/// order. Takes seconds: up to 100,000 trials, each of which is timed, and fewer for
/// large schedules.
///
/// Throws UsageError if the schedule cannot run, has messages, pairs or versions of
/// weights, steps before its end, or has more than 30,000 instructions, and if no order
/// holds so little.
FoundOrder search_order(const Schedule& work, const ScheduleTimes& times,
                        const ScheduleMemory& memory, double limit);

}  // namespace lockstep
