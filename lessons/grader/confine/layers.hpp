#pragma once

#include <string>
#include <vector>

namespace lockstep::lessons {

/// One of the things that keep a student's program to itself.
struct ConfinementLayer {
    std::string name;  ///< "landlock": a word
    bool on = false;
    std::string keeps;  ///< what it keeps the program from, or to
};

/// The layers, as they are on this machine for this user.
std::vector<ConfinementLayer> confinement_layers();

/// Throws MissingError that names the layers which are not there, if any is not.
void require_confinement();

}  // namespace lockstep::lessons
