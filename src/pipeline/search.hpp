#pragma once

#include <vector>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/known_order.hpp"
#include "src/pipeline/schedule.hpp"
#include "src/pipeline/times.hpp"

namespace lockstep {

/// The result of search_order().
struct FoundOrder {
    Schedule schedule;
    std::vector<KnownOrder> known;  ///< whatever their memory; the smallest bubble first
};

/// Returns the generators' schedules that do the same work as `work`, on the same stages,
/// in other orders.
std::vector<KnownOrder> known_orders(const Schedule& work, const ScheduleTimes& times,
                                     const ScheduleMemory& memory);

/// Searches for an order of the same work in which no stage holds more than `limit`. The
/// search minimizes the bubble, then the makespan. In each chunk, micro-batches keep the
/// order of `work`, or are in the order of their numbers.
///
/// The search begins with the best known order that fits, so its result is never worse.
/// Simulated annealing (Kirkpatrick et al. 1983, Science 220) then changes the order.
/// Each trial moves one instruction of one stage. A better order is kept; a worse one is
/// kept with a probability that falls. The result need not be the optimum. The same call
/// finds the same order. Takes seconds: 100,000 trials, fewer for large schedules.
///
/// Throws UsageError if the schedule cannot run, has messages, pairs or versions of
/// weights, updates weights before its end, or has more than 30,000 instructions. Also
/// throws UsageError if no order fits into `limit`.
FoundOrder search_order(const Schedule& work, const ScheduleTimes& times,
                        const ScheduleMemory& memory, double limit);

}  // namespace lockstep
