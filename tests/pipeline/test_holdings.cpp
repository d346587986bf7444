#include <algorithm>
#include <set>
#include <tuple>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/random_schedule.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::WithinAbs;

namespace {

using Kind = InstructionKind;

/// PipeDream (Harlap et al. 2018, 1806.03377): 1F1B without flush; weights are updated
/// after every backward, which reads those that its forward read.
Schedule pipedream(int stages, int micro_batches) {
    Schedule schedule = empty_schedule("pipedream", {stages, micro_batches, 1});
    for (int stage = 0; stage < stages; ++stage) {
        auto& work = schedule.work[static_cast<std::size_t>(stage)];
        const int ahead = std::min(stages - stage - 1, micro_batches);
        for (int it = 0; it < ahead; ++it)
            work.push_back({Kind::forward, it});
        for (int it = 0; it < micro_batches; ++it) {
            if (it + ahead < micro_batches) work.push_back({Kind::forward, it + ahead});
            work.push_back({Kind::backward, it, 0, std::max(0, it - ahead)});
            work.push_back({Kind::optimizer_step});
        }
    }
    return schedule;
}

/// What a stage holds after each of its first `position + 1` instructions, counted anew.
Holdings held_after(const Schedule& schedule, Place last) {
    std::set<std::tuple<int, int, int>> before;  // chunk, micro-batch, version
    std::set<std::tuple<int, int, int>> between;
    std::vector<int> newest(static_cast<std::size_t>(schedule.chunks), 0);
    for (int i = 0; i <= last.position; ++i) {
        const Instruction& it = schedule.at({last.stage, i});
        int& own = newest[static_cast<std::size_t>(it.chunk)];
        const int read = it.weight_version >= 0 ? it.weight_version : own;
        const std::tuple key{it.chunk, it.micro_batch, read};
        if (it.kind == Kind::optimizer_step) ++own;
        if (it.kind == Kind::forward) before.insert(key);
        if (it.kind == Kind::backward || it.kind == Kind::backward_input)
            before.erase(key);
        if (it.kind == Kind::backward_input) between.insert(key);
        if (it.kind == Kind::backward_weight) between.erase(key);
    }
    Holdings held;
    held.in_flight = static_cast<int>(before.size());
    held.between = static_cast<int>(between.size());
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
        std::set<int> versions{newest[static_cast<std::size_t>(chunk)]};
        for (const auto& kept : {before, between})
            for (const auto& [its_chunk, it, version] : kept)
                if (its_chunk == chunk) versions.insert(version);
        held.weight_versions =
            std::max(held.weight_versions, static_cast<int>(versions.size()));
    }
    return held;
}

Holdings peak_by_hand(const Schedule& schedule, int stage, const KeptMemory& kept) {
    Holdings peak;
    for (int i = 0; i < static_cast<int>(schedule.of(stage).size()); ++i) {
        const Holdings held = held_after(schedule, {stage, i});
        peak.in_flight = std::max(peak.in_flight, held.in_flight);
        peak.between = std::max(peak.between, held.between);
        peak.weight_versions = std::max(peak.weight_versions, held.weight_versions);
        peak.memory = std::max(peak.memory, held.in_flight * kept.activations +
                                                held.between * kept.for_weights);
    }
    return peak;
}

}  // namespace

TEST_CASE("what stages hold at most is what a count after each instruction finds",
          "[pipeline]") {
    Random random(7);
    for (int draw = 0; draw < 400; ++draw) {
        const Schedule schedule = random_schedule(random, {draw % 2 == 0, draw % 3 == 0});
        const KeptMemory kept{static_cast<double>(random.below(5)),
                              static_cast<double>(random.below(5))};
        const std::vector<Holdings> found = peak_holdings(schedule, kept);
        REQUIRE(found.size() == schedule.work.size());
        for (int stage = 0; stage < schedule.stages; ++stage) {
            CAPTURE(draw, stage, lines_of(schedule));
            const Holdings& it = found[static_cast<std::size_t>(stage)];
            const Holdings expected = peak_by_hand(schedule, stage, kept);
            CHECK(it.in_flight == expected.in_flight);
            CHECK(it.between == expected.between);
            CHECK(it.weight_versions == expected.weight_versions);
            CHECK_THAT(it.memory, WithinAbs(expected.memory, 1e-12));
        }
    }
}

TEST_CASE("PipeDream's stage s keeps p - s versions of its weights", "[pipeline]") {
    for (int p = 1; p <= 8; ++p)
        for (const int m : {2 * p - 1, 2 * p, 20}) {
            CAPTURE(p, m);
            const Schedule schedule = pipedream(p, m);
            const auto problem = find_problem(schedule);
            CHECK((problem ? problem->sentence : "") == "");
            CHECK_FALSE(find_problem(with_messages(schedule)).has_value());
            for (int s = 0; s < p; ++s) {
                const Holdings held =
                    peak_holdings(schedule)[static_cast<std::size_t>(s)];
                CHECK(held.weight_versions == p - s);
                CHECK(held.in_flight == p - s);
            }
        }
}

TEST_CASE("a backward that reads other weights than its forward is refused",
          "[pipeline][errors]") {
    for (const int wrong : {-1, 0, 1, 3, 5, 99}) {
        Schedule schedule = pipedream(3, 8);
        const Place place = place_of(schedule, 0, "B4@2");
        schedule.work[0][static_cast<std::size_t>(place.position)].weight_version = wrong;
        CAPTURE(wrong);
        const auto problem = find_problem(schedule);
        REQUIRE(problem.has_value());
        CHECK(problem->place == place);
        CHECK(tells(problem->sentence, {"stage 0", "B4"}));
    }
}

TEST_CASE("nothing reads the weights of an optimizer step that is still to come",
          "[pipeline][errors]") {
    const auto sentence = [](const std::string& line) {
        const auto problem = find_problem(written_schedule({1, 2, 1}, {line}));
        return problem ? problem->sentence : "";
    };
    CHECK(sentence("F0@0 B0@0 U F1@1 B1@1 U") == "");
    CHECK(sentence("F0 F1 B0 U B1@0 U") == "");
    CHECK(sentence("F0 B0 U F1@0 B1@0") == "");
    CHECK(tells(sentence("F0 B0 F1@1 U B1@1"), {"stage 0", "F1@1"}));
    CHECK(tells(sentence("F0@1 B0@1 F1 B1"), {"stage 0", "F0@1"}));
    CHECK(tells(sentence("F0 F1 B0 U B1 U"), {"stage 0", "B1"}));
    CHECK(tells(sentence("F0 F1 B0 U I1@0 W1"), {"stage 0", "W1"}));
}
