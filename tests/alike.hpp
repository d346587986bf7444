#pragma once

#include "src/trial/outcome.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

/// Checks that every tensor differs from the expected tensor by at most `bound` times the
/// expected tensor's largest element. A failure names the tensor that differs most.
template <typename Results>
void check_alike(const Results& got, const Results& expected, double bound = 1e-12) {
    const Difference worst = difference(got, expected);
    CAPTURE(worst.name, worst.at, worst.absolute);
    CHECK(worst.relative <= bound);
}

}  // namespace lockstep::test
