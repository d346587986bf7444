#include "src/core/source_line.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

SourceLine line_of_caller(SourceLine at = SourceLine::here()) {
    return at;
}

}  // namespace

TEST_CASE("a default argument gives the caller's line, as a path from the project's root",
          "[core]") {
    const int line = __LINE__ + 1;
    const SourceLine at = line_of_caller();
    CHECK(at.line == line);
    CHECK(at.text() == "tests/core/test_source_line.cpp:" + std::to_string(line));
    CHECK(at == SourceLine{at.file, line});
    CHECK_FALSE(at == line_of_caller());
}

TEST_CASE("a file from elsewhere keeps its name", "[core]") {
    CHECK(SourceLine{"ring.cpp", 7}.text() == "ring.cpp:7");
}

}  // namespace lockstep::test
