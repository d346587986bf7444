// Schedules that can run, with one thing changed. Compares the library's findings with
// those of the slow check in naive_check.hpp.

#include <algorithm>
#include <optional>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/longest_path.hpp"
#include "tests/pipeline/naive_check.hpp"
#include "tests/pipeline/random_schedule.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

enum class Mutation {
    drop,
    twice,
    swap,
    move,
    micro_batch,
    chunk,
    kind,
    version,
    steal,
    together,
    queues,
    estimate,
    mix
};

constexpr int kMutations = 13;

Place random_place(Random& random, const Schedule& schedule) {
    while (true) {
        const int stage = random.below(schedule.stages);
        const int size = static_cast<int>(schedule.of_stage(stage).size());
        if (size > 0) return {stage, random.below(size)};
    }
}

bool computes(InstructionKind kind) {
    return kind <= InstructionKind::backward_weight;
}

void mutate(Random& random, Schedule& schedule, Mutation mutation) {
    if (schedule.instructions() == 0) return;
    const Place place = random_place(random, schedule);
    auto& work = schedule.work[static_cast<std::size_t>(place.stage)];
    const auto at = work.begin() + place.position;
    const Instruction instruction = *at;
    const int size = static_cast<int>(work.size());
    switch (mutation) {
        case Mutation::drop:
            work.erase(at);
            break;
        case Mutation::twice:
            work.insert(work.begin() + random.below(size + 1), instruction);
            break;
        case Mutation::swap:
            if (place.position + 1 < size) std::swap(*at, *(at + 1));
            break;
        case Mutation::move:
            work.erase(at);
            work.insert(work.begin() + random.below(size), instruction);
            break;
        case Mutation::micro_batch:
            if (has_micro_batch(instruction.kind))
                at->micro_batch = random.between(-1, schedule.micro_batches);
            break;
        case Mutation::chunk:
            at->chunk = random.between(-1, schedule.chunks);
            break;
        case Mutation::kind:
            if (has_micro_batch(instruction.kind))
                at->kind = static_cast<InstructionKind>(random.below(8));
            if (!computes(at->kind)) at->weight_version = -1;
            break;
        case Mutation::version:
            if (computes(instruction.kind)) at->weight_version = random.between(-1, 3);
            break;
        case Mutation::steal: {
            work.erase(at);
            auto& other =
                schedule.work[static_cast<std::size_t>(random.below(schedule.stages))];
            other.insert(other.begin() + random.below(static_cast<int>(other.size()) + 1),
                         instruction);
            break;
        }
        case Mutation::together:
            at->together = !instruction.together;
            break;
        case Mutation::estimate:
            if (computes(instruction.kind)) at->estimated = !instruction.estimated;
            break;
        case Mutation::mix:
            if (computes(instruction.kind))
                at->mixes_weights = !instruction.mixes_weights;
            break;
        case Mutation::queues:
            schedule.queues = MessageQueues::by_direction;
            break;
    }
}

void mutate_anyhow(Random& random, Schedule& schedule) {
    mutate(random, schedule, static_cast<Mutation>(random.below(kMutations)));
}

std::optional<ScheduleProblem> check_against_naive(const Schedule& schedule) {
    auto problem = find_problem(schedule);
    CAPTURE(schedule.parts, lines_of(schedule));
    CAPTURE((problem ? problem->sentence : "no problem"));
    CHECK(problem.has_value() == !can_run(schedule));
    if (problem && !problem->cycle.empty())
        CHECK(cycle_is_real(schedule, problem->cycle));
    return problem;
}

/// Calls `check` with some schedules and, for each, every place that can be changed.
template <typename Check>
void for_each_place(Check&& check) {
    const Schedule in_turn = one_forward_one_backward_schedule({3, 5, 1});
    const Schedule halves = zb_h1_schedule({3, 5, 1});
    const Schedule chunks = interleaved_schedule({2, 4, 2});
    for (const Schedule& schedule : {in_turn, halves, chunks, with_messages(in_turn),
                                     with_messages(halves), with_messages(chunks)})
        for (int stage = 0; stage < schedule.stages; ++stage)
            for (int i = 0; i < static_cast<int>(schedule.of_stage(stage).size()); ++i) {
                const Place place{stage, i};
                if (!has_micro_batch(schedule.at(place).kind)) continue;
                CAPTURE(schedule.name, schedule.has_messages(), schedule.where(place));
                check(schedule, place);
            }
}

/// Returns the schedule's problem; it is empty if there is none.
ScheduleProblem problem_of(const Schedule& schedule) {
    return find_problem(schedule).value_or(ScheduleProblem{});
}

}  // namespace

TEST_CASE("changed schedules are refused exactly if the naive check refuses them",
          "[pipeline]") {
    struct Row {
        const char* change;
        int draws;
        unsigned seed;
        RandomScheduleOptions (*options)(int draw);
        void (*make)(Random& random, Schedule& schedule);
        int more_run = -1;   ///< more than this number of schedules can run
        int more_lock = -1;  ///< more than this number deadlock in a cycle
    };
    const auto versions_and_messages = [](int draw) -> RandomScheduleOptions {
        return {draw % 2 == 0, draw % 3 == 0};
    };
    const std::vector<Row> rows = {
        {"nothing", 600, 8, versions_and_messages, [](Random&, Schedule&) {}},
        {"one thing", 4000, 9, versions_and_messages, mutate_anyhow, 400, 40},
        {"the order of work and messages", 3000, 10,
         [](int draw) -> RandomScheduleOptions {
             return {false, draw % 2 == 0};
         },
         [](Random& random, Schedule& schedule) {
             for (int i = 0; i < 3; ++i)
                 mutate(random, schedule,
                        random.one_in(2) ? Mutation::swap : Mutation::move);
         },
         -1, 100},
        {"groups, pairs and ends of steps", 4000, 12,
         [](int draw) -> RandomScheduleOptions {
             return {draw % 2 == 0, draw % 5 != 0, draw % 3 != 0, draw % 3 == 0};
         },
         [](Random& random, Schedule& schedule) {
             check_against_naive(schedule);
             mutate_anyhow(random, schedule);
         },
         400, 100},
        {"more than can be repaired", 2000, 11, versions_and_messages,
         [](Random& random, Schedule& schedule) {
             for (int i = 0; i < 8; ++i)
                 mutate_anyhow(random, schedule);
         }}};
    for (const Row& row : rows) {
        Random random(row.seed);
        int still_run = 0;
        int deadlocks = 0;
        for (int draw = 0; draw < row.draws; ++draw) {
            CAPTURE(row.change, draw);
            Schedule schedule = random_schedule(random, row.options(draw));
            row.make(random, schedule);
            const auto problem = check_against_naive(schedule);
            still_run += !problem;
            deadlocks += problem && !problem->cycle.empty();
        }
        CHECK(still_run > row.more_run);
        CHECK(deadlocks > row.more_lock);
    }
}

TEST_CASE("dropped work is named with its stage", "[pipeline][errors]") {
    for_each_place([](const Schedule& schedule, Place place) {
        const Instruction instruction = schedule.at(place);
        Schedule less = schedule;
        auto& work = less.work[static_cast<std::size_t>(place.stage)];
        work.erase(work.begin() + place.position);
        const std::string sentence = problem_of(less).sentence;
        CAPTURE(sentence);
        CHECK(
            tells(sentence, {"micro-batch " + std::to_string(instruction.micro_batch)}));
        CHECK(tells(sentence, {"stage " + std::to_string(place.stage)}));
        // The sentence may name a message's other end, which may be in another chunk.
        if (instruction.chunk == 0 || is_message(instruction.kind)) return;
        const std::string chunk = std::to_string(instruction.chunk);
        CHECK((tells(sentence, {"chunk " + chunk}) || tells(sentence, {"." + chunk})));
    });
}

TEST_CASE("repeated work is named with its stage and place", "[pipeline][errors]") {
    for_each_place([](const Schedule& schedule, Place place) {
        const Instruction instruction = schedule.at(place);
        Schedule more = schedule;
        auto& work = more.work[static_cast<std::size_t>(place.stage)];
        work.insert(work.begin() + place.position, instruction);
        const std::string sentence = problem_of(more).sentence;
        CAPTURE(sentence);
        CHECK(
            tells(sentence, {"stage " + std::to_string(place.stage), text_of(instruction),
                             "instruction " + std::to_string(place.position + 1),
                             "instruction " + std::to_string(place.position + 2)}));
    });
}

TEST_CASE("an instruction with a missing micro-batch or chunk is named",
          "[pipeline][errors]") {
    for_each_place([](const Schedule& schedule, Place place) {
        for (const bool chunk : {false, true})
            for (const int number : {-5, 77}) {
                Schedule wrong = schedule;
                Instruction& instruction =
                    wrong.work[static_cast<std::size_t>(place.stage)]
                              [static_cast<std::size_t>(place.position)];
                (chunk ? instruction.chunk : instruction.micro_batch) = number;
                const ScheduleProblem problem = problem_of(wrong);
                CAPTURE(problem.sentence);
                CHECK(problem.place == place);
                CHECK(tells(problem.sentence,
                            {wrong.where(place), std::to_string(number)}));
            }
    });
}
