// Catch2, version 3 or 2 (whichever the system has), with its matchers and SKIP. In
// tests, compare numbers with matchers (`REQUIRE_THAT(x, WithinAbs(y, 1e-9))`), which
// both versions have.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>

/// Version 3's SKIP throws. This one prints a warning and returns from the test case.
#define SKIP(why)                   \
    do {                            \
        WARN("skipped: " << (why)); \
        return;                     \
    } while (false)

namespace Catch::Matchers {

/// Has the name that version 3 uses.
// NOLINTNEXTLINE(readability-identifier-naming): version 3's name.
inline auto ContainsSubstring(const std::string& text) {
    return Contains(text);
}

}  // namespace Catch::Matchers
#endif
