#pragma once

#include <string>

#include "sim/cluster.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

/// Checks that full checking finds no mistake in a correct program.
inline void check_silent(int ranks, const Program& program) {
    for (const std::optional<std::uint64_t> seed :
         {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{3}}) {
        World world;
        world.seed = seed;
        world.check = sim::CheckLevel::full;
        CHECK_NOTHROW(make_cluster_in(world, ranks)->run(program));
    }
}

/// Like check_silent(), but in every world.
inline void correct(int ranks, const Program& program) {
    for (World world : all_worlds()) {
        world.check = sim::CheckLevel::full;
        CHECK_NOTHROW(make_cluster_in(world, ranks)->run(program));
    }
}

/// Returns the mistake that full checking finds, which must be the same in all worlds. If
/// it finds nothing, returns a Diagnosis without a class.
inline Diagnosis found_by_full_check(int ranks, const Program& program) {
    Diagnosis first;
    for (World world : all_worlds()) {
        world.check = sim::CheckLevel::full;
        Diagnosis found;
        try {
            make_cluster_in(world, ranks)->run(program);
        } catch (const FaultError& fault) {
            found = fault.diagnosis();
        }
        if (first.fault.empty()) first = found;
        CHECK(found.text() == first.text());
    }
    return first;
}

/// Checks that the text of the diagnosis, without line breaks, contains `words`.
inline void says(const Diagnosis& found, const std::string& words) {
    const std::string text = found.text(1000);
    INFO(text);
    CHECK(text.find(words) != std::string::npos);
}

inline void check_names(const Diagnosis& diagnosis,
                        const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        INFO("'" << word << "' in: " << diagnosis.sentence);
        CHECK(diagnosis.sentence.find(word) != std::string::npos);
    }
}

}  // namespace lockstep::test
