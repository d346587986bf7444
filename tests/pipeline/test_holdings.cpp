#include <algorithm>
#include <numeric>
#include <set>

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

/// PipeDream (Harlap et al. 2018, 1806.03377): 1F1B without flush. Weights are updated
/// after every backward, and a backward reads the version that its forward read.
Schedule pipedream(int stages, int micro_batches) {
    Schedule schedule = empty_schedule("pipedream", {stages, micro_batches, 1});
    for (int stage = 0; stage < stages; ++stage) {
        auto& work = schedule.work[static_cast<std::size_t>(stage)];
        const int ahead = std::min(stages - stage - 1, micro_batches);
        for (int micro_batch = 0; micro_batch < ahead; ++micro_batch)
            work.push_back({Kind::forward, micro_batch});
        for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
            if (micro_batch + ahead < micro_batches)
                work.push_back({Kind::forward, micro_batch + ahead});
            work.push_back(
                {Kind::backward, micro_batch, 0, std::max(0, micro_batch - ahead)});
            work.push_back({Kind::optimizer_step});
        }
    }
    return schedule;
}

/// What a stage holds after an instruction, counted independently, by chunk:
/// micro-batches before backward and between its halves, and versions of weights (the
/// newest, and versions that are read later).
struct Counted {
    std::vector<int> before;
    std::vector<int> between;
    std::vector<int> versions;

    double memory(const Schedule& schedule, int stage, const ScheduleMemory& kept) const {
        double sum = 0;
        for (std::size_t chunk = 0; chunk < before.size(); ++chunk) {
            const KeptMemory& amounts =
                kept.of_part(schedule.part(stage, static_cast<int>(chunk)));
            sum += before[chunk] * amounts.activations +
                   between[chunk] * amounts.for_weights +
                   versions[chunk] * amounts.weights;
        }
        return sum;
    }
};

Counted held_after(const Schedule& schedule, Place last) {
    const std::vector<int> none(static_cast<std::size_t>(schedule.chunks), 0);
    Counted held{none, none, none};
    std::vector<int> newest = none;
    std::vector<std::set<int>> later(none.size());
    std::vector<int> seen = none;
    for (int i = 0; i < static_cast<int>(schedule.of_stage(last.stage).size()); ++i) {
        const Instruction& instruction = schedule.at({last.stage, i});
        const auto chunk = static_cast<std::size_t>(instruction.chunk);
        const int read =
            instruction.weight_version >= 0 ? instruction.weight_version : seen[chunk];
        if (instruction.kind == Kind::optimizer_step) ++seen[chunk];
        if (i > last.position) {
            if (is_computation(instruction.kind)) later[chunk].insert(read);
            continue;
        }
        newest[chunk] = seen[chunk];
        held.before[chunk] += instruction.kind == Kind::forward;
        held.before[chunk] -= instruction.kind == Kind::backward ||
                              instruction.kind == Kind::backward_input;
        held.between[chunk] += instruction.kind == Kind::backward_input;
        held.between[chunk] -= instruction.kind == Kind::backward_weight;
    }
    for (std::size_t chunk = 0; chunk < none.size(); ++chunk) {
        held.versions[chunk] = 1;
        for (const int version : later[chunk])
            held.versions[chunk] += version < newest[chunk];
    }
    return held;
}

/// While a pair runs, the stage holds what the forward adds, and still holds what the
/// backward will free.
double most_while_running(const Schedule& schedule, Place place,
                          const ScheduleMemory& kept) {
    const Positions together = schedule.together(place);
    const Place before{place.stage, together.first - 1};
    Counted held = held_after(schedule, before);
    double more = 0;
    for (int i = together.first; i < together.last; ++i) {
        const Instruction& instruction = schedule.at({place.stage, i});
        const KeptMemory& amounts =
            kept.of_part(schedule.part(place.stage, instruction.chunk));
        if (instruction.kind == Kind::forward) more += amounts.activations;
        if (instruction.kind == Kind::backward ||
            instruction.kind == Kind::backward_input)
            more += amounts.recomputed;
    }
    return held.memory(schedule, place.stage, kept) + more;
}

Holdings peak_by_hand(const Schedule& schedule, int stage, const ScheduleMemory& kept) {
    Holdings peak;
    const auto sum = [](const std::vector<int>& counts) {
        return std::accumulate(counts.begin(), counts.end(), 0);
    };
    for (int i = -1; i < static_cast<int>(schedule.of_stage(stage).size()); ++i) {
        const Place place{stage, i};
        const Counted held = held_after(schedule, place);
        const bool pair = i >= 0 && schedule.together(place).count() == 2 &&
                          is_computation(schedule.at(place).kind);
        peak.in_flight = std::max(peak.in_flight, sum(held.before));
        peak.between = std::max(peak.between, sum(held.between));
        peak.weight_versions =
            std::max(peak.weight_versions, *std::ranges::max_element(held.versions));
        if (!pair || schedule.together(place).last == i + 1)
            peak.memory = std::max(peak.memory, held.memory(schedule, stage, kept));
        if (i < 0) continue;
        peak.memory = std::max(peak.memory, most_while_running(schedule, place, kept));
        if (pair && schedule.at(place).kind == Kind::forward)
            peak.in_flight = std::max(
                peak.in_flight,
                sum(held_after(schedule, {stage, schedule.together(place).first - 1})
                        .before) +
                    1);
    }
    return peak;
}

}  // namespace

TEST_CASE("the most that stages hold equals a count after each instruction",
          "[pipeline]") {
    Random random(7);
    for (int draw = 0; draw < 400; ++draw) {
        const Schedule schedule =
            random_schedule(random, {draw % 2 == 0, draw % 3 == 0, draw % 5 == 0});
        if (find_problem(schedule)) continue;
        std::vector<KeptMemory> each(
            static_cast<std::size_t>(draw % 2 == 0 ? 1 : schedule.part_count()));
        for (KeptMemory& amounts : each)
            amounts = {static_cast<double>(random.below(5)),
                       static_cast<double>(random.below(5)),
                       static_cast<double>(random.below(3)),
                       static_cast<double>(random.below(3))};
        const ScheduleMemory kept(each);
        const std::vector<Holdings> found = peak_holdings(schedule, kept);
        REQUIRE(found.size() == schedule.work.size());
        for (int stage = 0; stage < schedule.stages; ++stage) {
            CAPTURE(draw, stage, lines_of(schedule));
            const Holdings& holdings = found[static_cast<std::size_t>(stage)];
            const Holdings expected = peak_by_hand(schedule, stage, kept);
            CHECK(holdings.in_flight == expected.in_flight);
            CHECK(holdings.between == expected.between);
            CHECK(holdings.weight_versions == expected.weight_versions);
            CHECK_THAT(holdings.memory, WithinAbs(expected.memory, 1e-12));
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
