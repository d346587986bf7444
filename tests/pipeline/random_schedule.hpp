// Random schedules that can run, and random durations.
#pragma once

#include <random>
#include <vector>

#include "src/pipeline/timer.hpp"

namespace lockstep::test {

/// Gives the same numbers on every system.
class Random {
  public:
    explicit Random(unsigned seed) : engine_(seed) {}
    int below(int count) {
        return static_cast<int>(engine_() % static_cast<unsigned>(count));
    }
    int between(int least, int most) { return least + below(most - least + 1); }
    bool one_in(int count) { return below(count) == 0; }

  private:
    std::mt19937 engine_;
};

struct RandomScheduleOptions {
    /// Adds optimizer steps among the other work, and versions of weights.
    bool weight_versions = false;
    /// Adds sends and receives: after data are made, and before they are used. The
    /// messages have the same order on all stages.
    bool messages = false;
    /// Groups neighbouring messages, in the same order on all stages, and pairs a
    /// forward with a neighbouring backward.
    bool together = false;
    /// Gives messages one queue for each direction, if they are not grouped.
    bool by_direction = false;
};

/// Up to 6 stages, 8 micro-batches and 3 chunks. The chunks are looped, in a V, or
/// shuffled, or two stages have the same parts. The order is random, but work comes after
/// all that it needs. Backwards are whole or in halves. Schedules with groups may
/// deadlock.
Schedule random_schedule(Random& random, const RandomScheduleOptions& options = {});

/// Durations differ between stages; some are 0. `message` is 0 if `messages` is not set.
std::vector<Durations> random_durations(Random& random, int stages, bool messages);

/// Times for everything that can take time: one for all, or different times for every
/// stage or every part. Some links are slow.
ScheduleTimes random_times(Random& random, const Schedule& schedule);

}  // namespace lockstep::test
