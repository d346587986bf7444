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
    /// Optimizer steps between other work, and versions of weights.
    bool weight_versions = false;
    /// Sends and receives, anywhere between production and use, in one order for all
    /// stages.
    bool messages = false;
    /// Groups of neighbouring messages in an order that all stages share; pairs of a
    /// forward and a neighbouring backward.
    bool together = false;
    /// One queue for each direction, if there are no groups of messages.
    bool by_direction = false;
};

/// Up to 6 stages, 8 micro-batches and 3 chunks. The chunks are looped, in a V, shuffled,
/// or the same parts on two stages. The order of work is random, but all work comes after
/// what it needs. Backwards are whole or in halves. Schedules with groups may deadlock.
Schedule random_schedule(Random& random, const RandomScheduleOptions& options = {});

/// Different for every stage, some 0; `message` is 0 if `messages` is not set.
std::vector<Durations> random_durations(Random& random, int stages, bool messages);

/// One time for all, or different times for every stage or every part, for everything
/// that can take time. Some links are slow.
ScheduleTimes random_times(Random& random, const Schedule& schedule);

}  // namespace lockstep::test
