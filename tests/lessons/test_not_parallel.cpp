// What is not parallel by itself: each mistake trains otherwise than one device, and each
// cure trains as it does.

#include "lessons/02_data_parallel/not_parallel.hpp"
#include "tests/catch.hpp"

using namespace lockstep::lessons;

namespace {

struct Said {
    std::string alone;
    std::string beside_one_device;
};

/// What full checking says of a mistaken program.
Said expected_of(NotParallel what) {
    switch (what) {
        case NotParallel::batch_statistics:
            return {"F24", "F24"};
        case NotParallel::mean_loss:
            return {"F28", "F28"};
        case NotParallel::dropout:
            return {"F29", "F29"};
        case NotParallel::clipping:
            return {"", "not what one device gets"};
    }
    return {};
}

}  // namespace

TEST_CASE("what is not parallel trains as one device does once it is cured",
          "[lessons][sim]") {
    const int ranks = GENERATE(2, 3, 4, 5);
    for (const NotParallel what : all_not_parallel()) {
        CAPTURE(key_of(what), ranks);
        const NotParallelOutcome outcome = try_not_parallel(what, ranks);
        CHECK(outcome.cured <= 1e-12);
        CHECK(outcome.mistaken >= 1e-2);
        const Said expected = expected_of(what);
        CHECK(outcome.found == expected.alone);
        CHECK(outcome.found_beside_one_device == expected.beside_one_device);
        CHECK(outcome.found_in_cure == "");
    }
}

TEST_CASE("one rank alone makes none of these mistakes", "[lessons][sim]") {
    for (const NotParallel what : all_not_parallel()) {
        CAPTURE(key_of(what));
        const NotParallelOutcome outcome = try_not_parallel(what, 1);
        CHECK(outcome.cured == 0);
        CHECK(outcome.mistaken == 0);
        CHECK(outcome.found == "");
        CHECK(outcome.found_beside_one_device == "");
        CHECK(outcome.found_in_cure == "");
    }
}
