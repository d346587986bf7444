#include "two_buffers.hpp"

#include <algorithm>

using namespace lockstep;

using enum InstructionKind;

// F and B are in the order of 1F1B for a single batch. R and U follow every k-th B.
Schedule two_buffers(int stages, int micro_batches, int per_update) {
    Schedule schedule = empty_schedule("two buffers", {stages, micro_batches, 1});
    for (int stage = 0; stage < stages; ++stage) {
        auto& work = schedule.work[stage];
        const auto add = [&](InstructionKind kind, int i) {
            work.push_back({kind, i});
            work.back().weight_version = std::max(i / per_update - 1, 0);
        };
        const int ahead = std::min(stages - 1 - stage, micro_batches);
        for (int turn = 0; turn < micro_batches + ahead; ++turn) {
            if (turn < micro_batches) add(forward, turn);
            const int back = turn - ahead;
            if (back >= 0) add(backward, back);
            if (back < 0 || (back + 1) % per_update != 0) continue;
            work.push_back({reduce_gradients});
            work.push_back({optimizer_step});
        }
    }
    return schedule;
}

std::vector<Kept> kept_versions(const std::vector<Instruction>& list) {
    std::vector<Kept> versions(1);
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
        const Instruction& work = list[position];
        const int newest = static_cast<int>(versions.size()) - 1;
        // An update also needs the newest version, from which it makes the next one.
        if (work.kind == optimizer_step) {
            versions[newest].dropped = position;
            versions.push_back({position, -1});
        } else if (is_computation(work.kind)) {
            const int read = work.weight_version < 0 ? newest : work.weight_version;
            versions[read].dropped = position;
        }
    }
    versions.back().dropped = -1;
    return versions;
}

std::int64_t most_bytes(const Choice& choice, int stages, int stage,
                        const StageBytes& bytes) {
    const int ahead = stages - stage;
    std::int64_t in_flight = ahead;
    std::int64_t versions = 2;
    if (choice.scheme == Scheme::flush) {
        in_flight = std::min(ahead, choice.per_update);
        versions = 1;
    }
    if (choice.scheme == Scheme::stash) versions = ahead;
    return versions * bytes.weights + in_flight * bytes.activations + bytes.gradients +
           bytes.optimizer;
}

namespace {

bool is_allowed(const Setting& setting, const Choice& choice) {
    const int stages = setting.stages;
    const int least = choice.scheme == Scheme::two_buffers ? stages - 1 : 1;
    if (choice.per_update < least || choice.per_update > setting.most_per_update)
        return false;
    int late = 0;
    if (choice.scheme == Scheme::stash) late = stages - 1;
    if (choice.scheme == Scheme::two_buffers) late = 1;
    if (late > setting.most_late) return false;
    for (int stage = 0; stage < stages; ++stage)
        if (most_bytes(choice, stages, stage, setting.bytes[stage]) > setting.memory)
            return false;
    return true;
}

/// Returns the time between two updates.
std::int64_t period(const Setting& setting, const Choice& choice) {
    const int bubble = choice.scheme == Scheme::flush ? setting.stages - 1 : 0;
    return (choice.per_update + bubble) * (setting.forward + setting.backward) +
           setting.update;
}

}  // namespace

std::optional<Choice> fastest(const Setting& setting) {
    std::optional<Choice> best;
    const auto consider = [&](const Choice& choice) {
        if (!is_allowed(setting, choice)) return;
        if (!best || period(setting, choice) * best->per_update <
                         period(setting, *best) * choice.per_update)
            best = choice;
    };
    consider({Scheme::stash, 1});
    for (int k = 1; k <= setting.most_per_update; ++k) {
        consider({Scheme::flush, k});
        consider({Scheme::two_buffers, k});
    }
    return best;
}
