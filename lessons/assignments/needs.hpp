#pragma once

#include <string>

#include <fmt/format.h>

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

/// As Judge::needs.
template <typename Before>
void needs(const Judge& judge, const std::string& id, Before before) {
    judge.needs(id, before);
}

}  // namespace lockstep::lessons
