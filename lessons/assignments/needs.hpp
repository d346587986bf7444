#pragma once

#include <string>

#include <fmt/format.h>

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

/// Judges what another criterion asks, which has to be right before; if it is not, says
/// only where that is said. What was asked there is not told here.
template <typename Before>
void needs(const Judge& judge, const std::string& id, Before before) {
    Judge asking = judge;
    try {
        before(asking);
    } catch (const Judge::No& no) {
        if (no.mark == Mark::not_written) throw;
        throw Judge::No{no.mark, fmt::format("what {} asks, first", id), "", ""};
    }
}

}  // namespace lockstep::lessons
