#include "lessons/grader/confine/layers.hpp"

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/grader/confine/claimed_user.hpp"
#include "lessons/grader/confine/fence.hpp"
#include "lessons/grader/confine/room.hpp"
#include "lessons/grader/confine/system_calls.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

std::vector<ConfinementLayer> confinement_layers() {
    std::vector<ConfinementLayer> layers{
        {"seccomp", SystemCallFilter::works(),
         "to system calls of a program that computes"},
        {"landlock", Fence::version() > 0,
         "to its own files and the system's, and away from other processes"},
        {"namespaces", Room::works(),
         "to a space of its own, without other files, processes, or a network"}};
    if (::geteuid() == 0)
        layers.push_back({"user", ClaimedUser::works(), "to a user of its own"});
    return layers;
}

void require_confinement() {
    std::vector<std::string> missing;
    for (const ConfinementLayer& layer : confinement_layers())
        if (!layer.is_on)
            missing.push_back(
                fmt::format("{} (keeps a program {})", layer.name, layer.keeps));
    if (!missing.empty())
        throw MissingError(fmt::format(
            "--require-confinement: this machine, or this user on it, has no {}",
            fmt::join(missing, "; no ")));
}

}  // namespace lockstep::lessons
