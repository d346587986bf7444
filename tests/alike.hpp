#pragma once

#include "src/trial/outcome.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

/// Checks that no tensor is farther from the one that is expected than `bound`, relative
/// to its largest element, and says which one is.
template <typename Results>
void check_alike(const Results& got, const Results& expected, double bound = 1e-12) {
    const Difference worst = difference(got, expected);
    CAPTURE(worst.name, worst.at, worst.absolute);
    CHECK(worst.relative <= bound);
}

}  // namespace lockstep::test
