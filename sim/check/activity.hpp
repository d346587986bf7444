#pragma once

#include <string>
#include <vector>

#include "sim/team.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// A rank when the run is quiet: it has ended, or it waits.
struct Activity {
    int rank = 0;
    /// The operation that cannot go on; null if the rank has ended.
    const Posted* posted = nullptr;
    /// The ranks that it waits for.
    std::vector<int> awaits;

    bool ended() const { return posted == nullptr; }
};

Activity activity_of(const Engine& engine, int rank);

/// Returns what keeps a rank of `team` from an operation of it that another waits for:
/// one that has ended may have left an operation there, never waited for, that others
/// queue behind.
Activity activity_in(const Engine& engine, int rank, const Team& team);

/// "all_reduce(sum, 1000 x f32) #3 of world".
std::string text_of(const Posted& posted);
std::string text_of(const PastOperation& past);

/// Returns a rank's last operations, oldest first, without the one that it is in now, if
/// any.
std::vector<std::string> history_of(const Engine& engine, int rank, const Posted* now);

/// Returns what several ranks do, equal ones together, with the history of the first of
/// each party.
std::vector<Diagnosis::Party> parties_of(const Engine& engine,
                                         const std::vector<Activity>& activities);

/// Fills in what is missing of a diagnosis without a time: that, what its parties did
/// before, what the others are doing, and what they hold if a device is full (F30).
void complete(const Engine& engine, Diagnosis& diagnosis);

/// Returns what all ranks do that are not in `told`.
std::vector<Diagnosis::Party> others_of(const Engine& engine,
                                        const std::vector<int>& told);

}  // namespace lockstep::sim
