// The shapes for which the generators have schedules.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "src/pipeline/generators.hpp"

namespace lockstep::test {

/// Returns whether two stages hold each part.
inline bool goes_both_ways(const std::string& name) {
    return name == "chimera" || name == "dualpipe";
}

/// Returns whether each stage has two chunks, in a V or in pipelines from both ends.
inline bool has_two_chunks(const std::string& name) {
    return goes_both_ways(name) || name == "zb-v" || name == "v-half" ||
           name == "v-min" || name == "dualpipe-v";
}

/// Returns whether a generator has a schedule of this shape.
inline bool takes(const std::string& name, const PipelineShape& shape) {
    const bool any_chunks = name == "interleaved" || name == "looped-bfs";
    if (goes_both_ways(name) && shape.stages % 2 != 0) return false;
    if (name == "dualpipe" && shape.micro_batches % 2 != 0) return false;
    if (name.starts_with("dualpipe") && shape.micro_batches < 2 * shape.stages)
        return false;
    if (shape.chunks == 1 || any_chunks) return true;
    if (name == "hanayo") return shape.chunks % 2 == 0;
    return has_two_chunks(name) && shape.chunks == 2;
}

/// Returns the names of the generators that have a schedule of this shape.
inline std::vector<std::string> names_for(const PipelineShape& shape) {
    std::vector<std::string> names = schedule_names();
    std::erase_if(names, [&](const std::string& name) { return !takes(name, shape); });
    return names;
}

}  // namespace lockstep::test
