#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/longest_path.hpp"
#include "tests/pipeline/naive_check.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Lines = std::vector<std::string>;

/// Megatron's interleaved order for p = 2, m = 4, v = 2 with two published mistakes: the
/// warm-up is (p - s - 1) + (v - 1) p, and backward runs the chunks in forward's order.
const Lines kBackwardNotReversed{
    "F0 F1 F0.1 F1.1 B0 F2 B1 F3 B0.1 F2.1 B1.1 F3.1 B2 B3 B2.1 B3.1",
    "F0 F1 F0.1 B0 F1.1 B1 F2 B0.1 F3 B1.1 F2.1 B2 F3.1 B3 B2.1 B3.1"};

/// 1F1B over p v virtual stages. A stage runs the lists of its chunks one after another.
const Lines kChunksConcatenated{
    "F0 F1 F2 F3 B0 B1 B2 B3 F0.1 F1.1 B0.1 F2.1 B1.1 F3.1 B2.1 B3.1",
    "F0 F1 F2 B0 F3 B1 B2 B3 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1"};

/// For orders of work: returns whether `next`, or a later instruction on its stage, makes
/// the data that `waiting` needs.
bool need_stands_behind(const Schedule& schedule, Place waiting, Place next) {
    const Instruction& instruction = schedule.at(waiting);
    const bool forward = instruction.kind == InstructionKind::forward;
    const int part = schedule.part(waiting) + (forward ? -1 : 1);
    const auto& work = schedule.of_stage(next.stage);
    for (int i = next.position; i < static_cast<int>(work.size()); ++i)
        if (work[static_cast<std::size_t>(i)].kind == instruction.kind &&
            work[static_cast<std::size_t>(i)].micro_batch == instruction.micro_batch &&
            schedule.part({next.stage, i}) == part)
            return true;
    return false;
}

/// Checks a deadlock's message and cycle, and returns the cycle.
std::vector<Place> checked_deadlock(const Schedule& schedule,
                                    const std::string& progress) {
    const auto problem = find_problem(schedule);
    REQUIRE(problem.has_value());
    CAPTURE(problem->sentence);
    CHECK(tells(problem->sentence, {"deadlock", progress}));
    CHECK(cycle_is_real(schedule, problem->cycle));
    for (const Place place : problem->cycle)
        CHECK(tells(problem->sentence, {"stage " + std::to_string(place.stage),
                                        text_of(schedule.at(place))}));
    return problem->cycle;
}

void check_order_deadlock(const Schedule& schedule, const std::string& progress) {
    const std::vector<Place> cycle = checked_deadlock(schedule, progress);
    for (std::size_t i = 0; i < cycle.size(); ++i)
        CHECK(need_stands_behind(schedule, cycle[i], cycle[(i + 1) % cycle.size()]));
}

/// Returns the problem of the lines; empty if the naive check finds none.
std::string wrong_with(const PipelineShape& shape, const Lines& lines) {
    const Schedule schedule = written_schedule(shape, lines);
    const auto problem = find_problem(schedule);
    CAPTURE(lines);
    CHECK(problem.has_value() == !can_run(schedule));
    return problem ? problem->sentence : "";
}

}  // namespace

TEST_CASE("an interleaved order whose backward does not reverse the chunks deadlocks",
          "[pipeline]") {
    check_order_deadlock(written_schedule({2, 4, 2}, kBackwardNotReversed), "7 of 32");
}

TEST_CASE("1F1B of virtual stages, one chunk after another, deadlocks", "[pipeline]") {
    check_order_deadlock(written_schedule({2, 4, 2}, kChunksConcatenated), "7 of 32");
}

TEST_CASE("1F1B with messages in place deadlocks in sends that face each other",
          "[pipeline]") {
    for (int p = 2; p <= 8; ++p)
        for (int m = 2; m <= 16; ++m) {
            CAPTURE(p, m);
            const Schedule schedule =
                with_messages_in_place(one_forward_one_backward_schedule({p, m, 1}));
            const std::vector<Place> cycle =
                checked_deadlock(schedule, "of " + std::to_string(2 * p * m));
            for (const Place place : cycle)
                CHECK(is_message(schedule.at(place).kind));
        }
}

TEST_CASE("a part on two stages gets equal updates after a reduction", "[pipeline]") {
    const auto problem = [](const std::string& one, const std::string& other) {
        Schedule schedule = written_schedule({2, 2, 1}, {one, other});
        schedule.parts = {{0}, {0}};
        const auto found = find_problem(schedule);
        return found ? found->sentence : "";
    };
    CHECK(problem("F0 B0 R U", "F1 B1 R U") == "");
    CHECK(problem("F0 B0 R", "F1 B1 R") == "");
    CHECK(problem("F0 B0", "F1 B1") == "");
    CHECK(tells(problem("F0 B0 U", "F1 B1 U"),
                {"stage 0, instruction 3", "another stage also holds part 0",
                 "put an R between"}));
    CHECK(tells(problem("F0 B0 R U", "F1 B1 R"),
                {"stage 0, instruction 4", "stage 1", "does not update"}));
    CHECK(tells(problem("F0 B0 R", "F1 B1 R U"),
                {"stage 1, instruction 4", "stage 0", "does not update"}));
    CHECK(tells(problem("F0 B0", "F1 B1 U"),
                {"stage 1, instruction 3", "put an R between"}));
    CHECK(tells(problem("F0 B0 R U F1 B1 U", "R U"),
                {"stage 0, instruction 7", "put an R between"}));
}

TEST_CASE("a backward is told to read the same estimate as its forward", "[pipeline]") {
    const auto problem = find_problem(written_schedule({1, 1, 1}, {"F0@~3 B0 U"}));
    REQUIRE(problem);
    CHECK(tells(problem->sentence, {"an estimate of version 3", "\"@~3\""}));
}

TEST_CASE("stages that wait for one another are all named", "[pipeline]") {
    // Stage 0 waits for stage 2, stage 2 for stage 1, and stage 1 for stage 0.
    const Schedule ring = written_schedule(
        {3, 2, 2}, {"F0 F0.1 F1 F1.1 B0.1 B1.1 B0 B1", "F1 F0 F0.1 F1.1 B0.1 B1.1 B0 B1",
                    "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1"});
    check_order_deadlock(ring, "1 of 24");
    CHECK(find_problem(ring).value().cycle.size() == 3);
    // Two chunks of one stage are in the wrong order, so the stage waits for itself.
    const auto itself = find_problem(written_schedule({1, 1, 2}, {"F0.1 F0 B0.1 B0"}));
    REQUIRE(itself.has_value());
    CHECK(tells(itself->sentence, {"stage 0", "F0.1", "F0"}));
}

TEST_CASE("an order that can run has nothing wrong", "[pipeline]") {
    CHECK(wrong_with({1, 1, 1}, {"F0 B0"}) == "");
    CHECK(wrong_with({1, 1, 1}, {"F0 I0 W0"}) == "");
    CHECK(wrong_with({2, 2, 1}, {"F1 F0 B0 B1", "F1 I1 F0 I0 W1 W0 R U"}) == "");
    CHECK(wrong_with({2, 1, 1}, {"F0 SA0 RG0 B0", "RA0 F0 B0 SG0"}) == "");
    CHECK(wrong_with({2, 1, 1}, {"F0 RG0 SA0 B0", "RA0 F0 B0 SG0"}) != "");
}

TEST_CASE("work that is missing, double or misplaced is named", "[pipeline][errors]") {
    const auto wrong = [](const Lines& lines) { return wrong_with({2, 2, 1}, lines); };
    const std::string right = "F0 F1 B0 B1";
    CHECK(wrong({right, right}) == "");
    CHECK(tells(wrong({"F0 F1 B0", right}), {"stage 0", "backward", "micro-batch 1"}));
    CHECK(tells(wrong({right, "F0 B0 B1"}), {"stage 1", "forward", "micro-batch 1"}));
    CHECK(tells(wrong({right, "F0 B0"}), {"forward", "micro-batch 1"}));
    CHECK(tells(wrong({right, ""}), {"forward", "micro-batch 0"}));
    CHECK(tells(wrong({right, "F0 F1 F0 B0 B1"}), {"stage 1", "instruction 3", "F0"}));
    CHECK(tells(wrong({right, "F0 F1 B0 B1 B1"}), {"stage 1", "instruction 5", "B1"}));
    CHECK(tells(wrong({right, "F0 B1 F1 B0"}), {"stage 1", "instruction 2", "B1"}));
    CHECK(tells(wrong({"F0 F1 F2 B0 B1", right}), {"stage 0", "F2", "micro-batch 2"}));
    CHECK(tells(wrong({"F0 F1.1 B0 B1", right}), {"stage 0", "F1.1", "chunk 1"}));
    CHECK(tells(wrong({"F0 F1 B0 B1 U.3", right}), {"stage 0", "U.3", "chunk 3"}));
}

TEST_CASE("an instruction of an unknown kind is named", "[pipeline][errors]") {
    Schedule schedule = written_schedule({2, 1, 1}, {"F0 B0", "F0 B0"});
    schedule.work[1][1].kind = static_cast<InstructionKind>(200);
    const auto problem = find_problem(schedule);
    REQUIRE(problem.has_value());
    CHECK(tells(problem->sentence, {"stage 1", "instruction 2 of 2", "kind 200"}));
}

TEST_CASE("both halves of backward exist, in order, and without a whole one",
          "[pipeline][errors]") {
    const auto wrong = [](const std::string& line) {
        return wrong_with({2, 1, 1}, {"F0 B0", line});
    };
    CHECK(wrong("F0 I0 W0") == "");
    CHECK(tells(wrong("F0 I0"), {"stage 1", "backward-weight", "micro-batch 0"}));
    CHECK(tells(wrong("F0 W0"), {"stage 1", "backward-input", "micro-batch 0"}));
    CHECK(tells(wrong("F0 W0 I0"), {"stage 1", "W0"}));
    CHECK(tells(wrong("W0 F0 I0"), {"stage 1", "W0"}));
    CHECK(tells(wrong("F0 B0 I0 W0"), {"stage 1", "I0"}));
    CHECK(tells(wrong("F0 B0 W0"), {"stage 1", "W0"}));
    CHECK(tells(wrong("F0 I0 I0 W0"), {"stage 1", "I0"}));
    CHECK(tells(wrong("F0 I0 W0 W0"), {"stage 1", "W0"}));
}

TEST_CASE("every message exists once, between production and use", "[pipeline][errors]") {
    const auto wrong = [](const Lines& lines) { return wrong_with({2, 1, 1}, lines); };
    const std::string first = "F0 SA0 RG0 B0";
    const std::string last = "RA0 F0 B0 SG0";
    CHECK(wrong({first, last}) == "");
    CHECK(tells(wrong({"F0 RG0 B0", last}), {"stage 1", "RA0", "stage 0"}));
    CHECK(tells(wrong({first, "F0 B0 SG0"}), {"stage 0", "SA0", "stage 1"}));
    CHECK(tells(wrong({first, "RA0 F0 B0"}), {"stage 0", "RG0", "stage 1"}));
    CHECK(tells(wrong({"F0 SA0 B0", last}), {"stage 0", "gradient", "B0"}));
    CHECK(tells(wrong({"SA0 F0 RG0 B0", last}), {"stage 0", "SA0"}));
    CHECK(tells(wrong({first, "F0 RA0 B0 SG0"}), {"stage 1", "RA0"}));
    CHECK(tells(wrong({"F0 SA0 SA0 RG0 B0", last}), {"stage 0", "SA0"}));
    CHECK(tells(wrong({"F0 SA0 RG0 B0 SG0", last}), {"stage 0", "SG0"}));
    CHECK(tells(wrong({"RA0 F0 SA0 RG0 B0", last}), {"stage 0", "RA0"}));
    CHECK(tells(wrong({"F0 B0", "F0 B0 SG0"}), {"stage"}));
}

TEST_CASE("data that stays on its stage has no message", "[pipeline][errors]") {
    // Parts 0, 1 on stages 0, 1 and parts 2, 3 on stages 1, 0: part 1 sends its data to
    // its own stage.
    Schedule turned = written_schedule({2, 1, 2}, {"F0 F0.1 B0.1 B0", "F0 F0.1 B0.1 B0"});
    turned.parts = {{0, 3}, {1, 2}};
    CHECK_FALSE(find_problem(turned).has_value());
    Schedule messaged = with_messages(turned);
    CHECK(lines_of(messaged) == Lines{"F0 SA0 RA0.1 F0.1 B0.1 SG0.1 RG0 B0",
                                      "RA0 F0 F0.1 SA0.1 RG0.1 B0.1 B0 SG0"});
    messaged.work[1].insert(messaged.work[1].begin() + 2, written_work("SA0").front());
    const auto problem = find_problem(messaged);
    REQUIRE(problem.has_value());
    CHECK(tells(problem->sentence, {"stage 1", "SA0"}));
}

TEST_CASE("a micro-batch stays on the stage that began it", "[pipeline][errors]") {
    // Both stages hold both parts, in opposite directions.
    const auto wrong = [](const Lines& lines) {
        Schedule schedule = written_schedule({2, 2, 2}, lines);
        schedule.parts = {{0, 1}, {1, 0}};
        CAPTURE(lines);
        const auto problem = find_problem(schedule);
        CHECK(problem.has_value() == !can_run(schedule));
        return problem ? problem->sentence : "";
    };
    CHECK(wrong({"F0 F1.1 B1.1 B0", "F1.1 F0 B0 B1.1"}) == "");
    CHECK(wrong({"F0 F1.1 B1.1 B1", "F1.1 F0 B0 B0.1"}) != "");
    CHECK(wrong({"F0 F1.1 F1 B1.1 B0", "F1.1 F0 B0 B1.1"}) != "");
}

TEST_CASE("a schedule whose sizes and lists do not agree is refused, not followed",
          "[pipeline][errors]") {
    const Schedule right = one_forward_one_backward_schedule({3, 6, 1});
    const auto refused = [&](auto&& change) {
        Schedule schedule = right;
        change(schedule);
        return refusal([&] { require_valid(schedule); });
    };
    const std::string none = "(nothing was thrown)";
    CHECK(refused([](Schedule&) {}) == none);
    CHECK(
        tells(refused([](Schedule& schedule) { schedule.work.pop_back(); }), {"3", "2"}));
    CHECK(refused([](Schedule& schedule) { schedule.parts.pop_back(); }) != none);
    CHECK(refused([](Schedule& schedule) { schedule.parts[1].clear(); }) != none);
    CHECK(tells(refused([](Schedule& schedule) { schedule.parts[1] = {7}; }), {"7"}));
    CHECK(tells(refused([](Schedule& schedule) { schedule.parts[1] = {-7}; }), {"-7"}));
    CHECK(tells(refused([](Schedule& schedule) {
                    schedule.parts = {{0}, {0}, {2}};
                }),
                {"part", "1"}));
    CHECK(refused([](Schedule& schedule) { schedule.stages = 0; }) != none);
    CHECK(tells(refused([](Schedule& schedule) { schedule.stages = 9; }), {"9"}));
    CHECK(refused([](Schedule& schedule) { schedule.micro_batches = 0; }) != none);
    CHECK(tells(refused([](Schedule& schedule) { schedule.micro_batches = 7; }),
                {"micro-batch 6"}));
    CHECK(refused([](Schedule& schedule) { schedule.chunks = 2; }) != none);
    CHECK(refused([](Schedule& schedule) { schedule = Schedule{}; }) != none);
    CHECK(refused([](Schedule& schedule) { schedule.micro_batches = 2'000'000'000; }) !=
          none);
}

TEST_CASE("a stage that holds a part twice is refused", "[pipeline][errors]") {
    Schedule schedule = gpipe_schedule({2, 1, 1});
    schedule.chunks = 2;
    schedule.parts = {{0, 1}, {2, 2}};
    const auto problem = find_problem(schedule);
    REQUIRE(problem);
    CHECK(problem->sentence == "stage 1 holds part 2 of the model twice");
}
