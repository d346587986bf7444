// Operations that data parallelism must change. A program that does not change them must
// train differently from one device, and its remedy must train as one device does.

#include <map>

#include "lessons/02_data_parallel/not_parallel.hpp"
#include "tests/catch.hpp"

using namespace lockstep::lessons;

namespace {

struct Said {
    std::string alone;
    std::string beside_one_device;
};

/// What full checking finds in each program with a mistake.
const std::map<std::string, Said> kExpected{
    {"batch_statistics", {"F24", "F24"}},
    {"mean_loss", {"F28", "F28"}},
    {"dropout", {"F29", "F29"}},
    {"clipping", {"", "not what one device gets"}},
};

}  // namespace

TEST_CASE("each remedy of an operation that is not parallel trains as one device does",
          "[lessons][sim]") {
    const int ranks = GENERATE(2, 3, 4, 5);
    for (const std::string& what : kNotParallel) {
        CAPTURE(what, ranks);
        const NotParallelOutcome outcome = try_not_parallel(what, ranks);
        CHECK(outcome.cured <= 1e-12);
        CHECK(outcome.mistaken >= 1e-2);
        const Said& expected = kExpected.at(what);
        CHECK(outcome.found == expected.alone);
        CHECK(outcome.found_beside_one_device == expected.beside_one_device);
        CHECK(outcome.found_in_cure == "");
    }
}

TEST_CASE("a single rank makes none of these mistakes", "[lessons][sim]") {
    for (const std::string& what : kNotParallel) {
        CAPTURE(what);
        const NotParallelOutcome outcome = try_not_parallel(what, 1);
        CHECK(outcome.cured == 0);
        CHECK(outcome.mistaken == 0);
        CHECK(outcome.found == "");
        CHECK(outcome.found_beside_one_device == "");
        CHECK(outcome.found_in_cure == "");
    }
}
