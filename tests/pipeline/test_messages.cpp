#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/pipeline/longest_path.hpp"
#include "tests/pipeline/naive_check.hpp"
#include "tests/pipeline/random_schedule.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Returns a stage's instructions without messages.
std::vector<Instruction> without_messages(const std::vector<Instruction>& work) {
    std::vector<Instruction> kept;
    for (const Instruction& instruction : work)
        if (!is_message(instruction.kind)) kept.push_back(instruction);
    return kept;
}

/// Returns the times of a schedule's instructions without messages.
std::vector<std::vector<TimeSpan>> computed(const Schedule& schedule,
                                            const std::vector<Durations>& durations) {
    const Timing timing = time_schedule(schedule, durations);
    std::vector<std::vector<TimeSpan>> spans(timing.spans.size());
    for (std::size_t stage = 0; stage < spans.size(); ++stage)
        for (std::size_t i = 0; i < timing.spans[stage].size(); ++i)
            if (!is_message(schedule.work[stage][i].kind))
                spans[stage].push_back(timing.spans[stage][i]);
    return spans;
}

/// Returns whether each send follows the computation that makes its data. Only other
/// messages may be between them.
bool sends_follow_their_making(const std::vector<Instruction>& work) {
    const Instruction* last = nullptr;
    for (const Instruction& instruction : work) {
        const bool forward = instruction.kind == InstructionKind::send_activation;
        if (!is_message(instruction.kind)) last = &instruction;
        if (!is_send(instruction.kind)) continue;
        if (last == nullptr || last->micro_batch != instruction.micro_batch ||
            last->chunk != instruction.chunk ||
            forward != (last->kind == InstructionKind::forward))
            return false;
    }
    return true;
}

/// Calls `check` with the schedules of every generator.
template <typename Check>
void for_each_schedule(Check&& check) {
    for (const std::string& name : schedule_names())
        for (const int p : {1, 2, 3, 4, 7, 8, 16})
            for (const int m : {1, 2, 3, 8, 16, 21, 24, 64})
                for (const int v : {1, 2, 4}) {
                    if (!takes(name, {p, m, v})) continue;
                    CAPTURE(name, p, m, v);
                    check(make_schedule(name, {p, m, v}));
                }
}

}  // namespace

TEST_CASE("added messages do not change the order of work", "[pipeline]") {
    Random random(4);
    for (int draw = 0; draw < 500; ++draw) {
        const Schedule work = random_schedule(random, {draw % 2 == 0, false});
        const Schedule messaged =
            with_messages(work, random_durations(random, work.stages, true));
        CAPTURE(draw, lines_of(messaged));
        CHECK(messaged.parts == work.parts);
        CHECK(can_run(messaged));
        for (std::size_t stage = 0; stage < work.work.size(); ++stage) {
            CHECK(without_messages(messaged.work[stage]) == work.work[stage]);
            CHECK(sends_follow_their_making(messaged.work[stage]));
        }
    }
}

TEST_CASE("the sends and receives of a small 1F1B are at the right places",
          "[pipeline]") {
    const Schedule work = one_forward_one_backward_schedule({2, 2, 1});
    CHECK(lines_of(with_messages(work)) ==
          std::vector<std::string>{"F0 SA0 F1 SA1 RG0 B0 RG1 B1 R U",
                                   "RA0 F0 RA1 B0 SG0 F1 B1 SG1 R U"});
    CHECK(lines_of(with_messages_in_place(work)) ==
          std::vector<std::string>{"F0 SA0 F1 SA1 RG0 B0 RG1 B1 R U",
                                   "RA0 F0 B0 SG0 RA1 F1 B1 SG1 R U"});
}

TEST_CASE("planned messages that take no time change no time", "[pipeline]") {
    for_each_schedule([](const Schedule& work) {
        for (const Durations& durations :
             {Durations{1, 1, 1, 0}, {18522, 18086, 9337, 0}, {2, 1, 5, 0}})
            CHECK(computed(with_messages(work, {durations}), {durations}) ==
                  computed(work, {durations}));
    });
    Random random(5);
    for (int draw = 0; draw < 1000; ++draw) {
        const Schedule work = random_schedule(random, {draw % 2 == 0, false});
        auto durations = random_durations(random, work.stages, false);
        for (Durations& stage : durations) {
            ++stage.forward;
            ++stage.backward_input;
            ++stage.backward_weight;
        }
        CAPTURE(draw, lines_of(work));
        CHECK(computed(with_messages(work, durations), durations) ==
              computed(work, durations));
    }
}

TEST_CASE("messages that take little time do not make the generators' schedules longer",
          "[pipeline]") {
    const std::vector<Durations> measured{{18522, 18086, 9337, 601}};
    for_each_schedule([&](const Schedule& work) {
        const Picoseconds free = time_schedule(work, measured).makespan;
        const Picoseconds sent =
            time_schedule(with_messages(work, measured), measured).makespan;
        CHECK(sent >= free);
        // If messages are sent in both directions at once, some of them wait.
        const bool folded = has_two_chunks(work.name) || work.name == "hanayo";
        CHECK(sent <= (folded ? free + free / 20 : free));
    });
}

TEST_CASE("planned messages never deadlock, however long work really takes",
          "[pipeline]") {
    Random random(6);
    const auto check = [](const Schedule& schedule) {
        CHECK_FALSE(find_problem(schedule).has_value());
        CHECK_FALSE(LongestPath(schedule, {{}}).deadlock());
        CHECK_FALSE(LongestPath(schedule, {{}}, Queues::one_for_all).deadlock());
    };
    for (int draw = 0; draw < 1000; ++draw) {
        const Schedule work = random_schedule(random, {draw % 2 == 0, false});
        const auto planned = random_durations(random, work.stages, draw % 3 != 0);
        CAPTURE(draw, lines_of(work));
        check(with_messages(work, planned));
        check(with_messages(work, {{0, 0, 0, 0}}));
    }
    for_each_schedule([&](const Schedule& work) {
        check(with_messages(work));
        check(with_messages(work, {{3, 5, 2, 4}}));
    });
}

TEST_CASE("messages in place deadlock 1F1B, not GPipe", "[pipeline]") {
    for (int p = 2; p <= 6; ++p)
        for (int m = 1; m <= 12; ++m) {
            CAPTURE(p, m);
            const Schedule in_turn =
                with_messages_in_place(one_forward_one_backward_schedule({p, m, 1}));
            const Schedule gpipe = with_messages_in_place(gpipe_schedule({p, m, 1}));
            // Stage p - 2 sends its second activation while stage p - 1 sends its first
            // gradient.
            CHECK(find_problem(in_turn).has_value() == (m >= 2));
            CHECK(can_run(in_turn) == (m < 2));
            CHECK_FALSE(find_problem(gpipe).has_value());
        }
}

TEST_CASE("messages are not added twice, nor to a schedule that cannot run",
          "[pipeline][errors]") {
    const Schedule work = gpipe_schedule({2, 2, 1});
    const Schedule messaged = with_messages(work);
    CHECK(tells(refusal([&] { with_messages(messaged); }), {"gpipe", "messages"}));
    CHECK(
        tells(refusal([&] { with_messages_in_place(messaged); }), {"gpipe", "messages"}));
    const Schedule wrong = written_schedule({2, 1, 1}, {"F0 B0", "B0 F0"});
    CHECK(tells(refusal([&] { with_messages(wrong); }), {"stage 1", "B0"}));
    CHECK(tells(refusal([&] { with_messages_in_place(wrong); }), {"stage 1", "B0"}));
}

TEST_CASE("impossible durations are refused before messages are planned",
          "[pipeline][errors]") {
    const Schedule work = gpipe_schedule({3, 2, 1});
    const Durations one;
    const Picoseconds much = Picoseconds{1} << 61;
    CHECK(tells(refusal([&] { with_messages(work, std::vector<Durations>{}); }),
                {"0", "3"}));
    CHECK(tells(refusal([&] { with_messages(work, {one, one}); }), {"2", "3"}));
    CHECK(tells(refusal([&] { with_messages(work, {{-1, 1, 1, 0}}); }), {"-1"}));
    CHECK(tells(refusal([&] { with_messages(work, {{1, 1, 1, -4}}); }), {"-4"}));
    CHECK(tells(refusal([&] {
                    with_messages(work, {{much, much, much, much}});
                }),
                {"durations"}));
}
