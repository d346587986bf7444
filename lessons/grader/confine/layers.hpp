#pragma once

#include <string>
#include <vector>

namespace lockstep::lessons {

/// One of the layers that isolate a student's program.
struct ConfinementLayer {
    std::string name;  ///< "landlock": a word
    bool is_on = false;
    std::string keeps;  ///< ends the sentence "it keeps a program …"
};

/// Returns the layers of this machine for this user.
std::vector<ConfinementLayer> confinement_layers();

/// Throws MissingError with the missing layers, if there are any.
void require_confinement();

}  // namespace lockstep::lessons
