#include "schedules.hpp"

#include <algorithm>

using namespace lockstep;

using enum InstructionKind;

namespace {

std::vector<Instruction>& work_of(Schedule& schedule, int stage) {
    return schedule.work[stage];
}

}  // namespace

Schedule one_forward_one_backward(int stages, int micro_batches) {
    Schedule schedule = empty_schedule("1f1b", {stages, micro_batches, 1});
    for (int stage = 0; stage < stages; ++stage) {
        auto& work = work_of(schedule, stage);
        // The turns before the first backward: one for each later stage.
        const int ahead = std::min(stages - 1 - stage, micro_batches);
        for (int turn = 0; turn < micro_batches + ahead; ++turn) {
            if (turn < micro_batches) work.push_back({forward, turn});
            if (turn >= ahead) work.push_back({backward, turn - ahead});
        }
    }
    end_step(schedule);
    return schedule;
}

// Time is cut into turns of one forward and one backward. Micro-batches start in groups
// of at most `limit`, one turn apart. A group starts when the first micro-batch of the
// previous group is back at stage 0, p turns after its own start.
Schedule with_memory_limit(int stages, int micro_batches, int limit) {
    Schedule schedule = empty_schedule("limited", {stages, micro_batches, 1});
    const int group = std::min(limit, stages);
    const auto turn_of = [&](int i) { return i / group * stages + i % group; };
    for (int stage = 0; stage < stages; ++stage) {
        auto& work = work_of(schedule, stage);
        const int way = stages - 1 - stage;  // turns between a forward and its backward
        int next = 0;
        for (int i = 0; i < micro_batches; ++i) {
            while (next < micro_batches && turn_of(next) <= turn_of(i) + way)
                work.push_back({forward, next++});
            work.push_back({backward, i});
        }
    }
    end_step(schedule);
    return schedule;
}

// Before its first I, each stage fills its bubble with forwards, until the first
// micro-batch is back from the last stage. If memory is left, the W are delayed.
Schedule split_backward(int stages, int micro_batches, int limit) {
    Schedule schedule = empty_schedule("split", {stages, micro_batches, 1});
    const int behind = std::min(limit, 2 * stages - 1) - 1;  // from a forward to its W
    for (int stage = 0; stage < stages; ++stage) {
        auto& work = work_of(schedule, stage);
        const int ahead = std::min(2 * (stages - 1 - stage), behind - stage);
        const auto add = [&](InstructionKind kind, int i) {
            if (i >= 0 && i < micro_batches) work.push_back({kind, i});
        };
        for (int turn = 0; turn < micro_batches + behind; ++turn) {
            add(forward, turn);
            add(backward_input, turn - ahead);
            add(backward_weight, turn - behind);
        }
    }
    end_step(schedule);
    return schedule;
}
