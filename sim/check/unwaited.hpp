#pragma once

#include <optional>

#include "sim/team.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

// Communications that nobody waits for. A batch that is done while its rank waits for it,
// as nearly all are, leaves no trace; others are listed with their member until the rank
// waits for them, or for a later one of the same communicator.

/// The batch is done, and still knows its operations; its rank does not wait for it.
void note_unwaited(Member& member, const Batch& batch);

/// Its rank has waited for its batch `number`, and so for those before.
inline void note_waited(Member& member, std::uint64_t number) {
    if (member.unwaited == nullptr) return;
    std::vector<Unwaited>& unwaited = *member.unwaited;
    std::size_t waited = 0;
    while (waited < unwaited.size() && unwaited[waited].number <= number)
        ++waited;
    unwaited.erase(unwaited.begin(),
                   unwaited.begin() + static_cast<std::ptrdiff_t>(waited));
    if (unwaited.empty()) member.unwaited.reset();
}

/// What was never waited for (F19), now that every rank has ended and nothing is left
/// open.
std::optional<Diagnosis> explain_unwaited(const Engine& engine);

}  // namespace lockstep::sim
