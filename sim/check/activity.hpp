#pragma once

#include <string>
#include <vector>

#include "sim/team.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// The state of a rank when the run is quiet: it waits, or it has ended.
struct Activity {
    int rank = 0;
    /// The operation that cannot go on; null if the rank has ended.
    const Posted* posted = nullptr;
    /// The ranks that this rank waits for.
    std::vector<int> awaits;

    bool ended() const { return posted == nullptr; }
};

Activity activity_of(const Engine& engine, int rank);

/// Returns what delays this rank's operation on `team`, for which another rank waits. A
/// rank may have ended without a wait for an operation on `team`; later operations queue
/// behind that operation.
Activity activity_in(const Engine& engine, int rank, const Team& team);

/// "all_reduce(sum, 1000 x f32) #3 of world".
std::string text_of(const Posted& posted);
std::string text_of(const PastOperation& past);
/// "train.cpp:12", or "train.cpp:12 (src/parallel/zero_1.cpp:60)" if the program called a
/// strategy.
std::string where(const Posted& posted);

/// Returns a rank's last operations, oldest first, without its current operation `now`
/// (or null).
std::vector<std::string> history_of(const Engine& engine, int rank, const Posted* now);

/// Returns what several ranks do. Ranks that do the same form one party, which has the
/// history of its first rank.
std::vector<Diagnosis::Party> parties_of(const Engine& engine,
                                         const std::vector<Activity>& activities);

/// Completes a diagnosis. If the run used wait_any, says so. If a device is full (F30),
/// adds how much memory the other devices hold. If the diagnosis has no time, adds the
/// time, the history of its parties and the activity of the other ranks.
void complete(const Engine& engine, Diagnosis& diagnosis);

/// Returns the activity of all ranks that are not in `told`.
std::vector<Diagnosis::Party> others_of(const Engine& engine,
                                        const std::vector<int>& told);

}  // namespace lockstep::sim
