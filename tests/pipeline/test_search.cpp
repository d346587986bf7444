// Compares orders found by search with all orders of small schedules.

#include <algorithm>
#include <limits>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/search.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

double most_held(const Schedule& schedule, const ScheduleMemory& memory = {}) {
    double most = 0;
    for (const Holdings& peak : peak_holdings(schedule, memory))
        most = std::max(most, peak.memory);
    return most;
}

/// Adds all orders of a stage's F, I and W of some micro-batches. Each kind stays in
/// order.
void add_orders(int micro_batches, std::vector<Instruction> list, int f, int i, int w,
                std::vector<std::vector<Instruction>>& all) {
    if (w == micro_batches) all.push_back(list);
    const auto go_on = [&](InstructionKind kind, int micro_batch, int f2, int i2,
                           int w2) {
        list.push_back({kind, micro_batch});
        add_orders(micro_batches, list, f2, i2, w2, all);
        list.pop_back();
    };
    if (f < micro_batches) go_on(InstructionKind::forward, f, f + 1, i, w);
    if (i < f) go_on(InstructionKind::backward_input, i, f, i + 1, w);
    if (w < i) go_on(InstructionKind::backward_weight, w, f, i, w + 1);
}

/// Tries all orders on two stages, and returns the least bubble of those that stay within
/// the limit of memory.
Picoseconds least_bubble(const Schedule& work, const ScheduleTimes& times, double limit) {
    std::vector<std::vector<Instruction>> orders;
    add_orders(work.micro_batches, {}, 0, 0, 0, orders);
    Schedule tried = empty_schedule("tried", {2, work.micro_batches});
    Picoseconds least = std::numeric_limits<Picoseconds>::max();
    for (const auto& first : orders)
        for (const auto& second : orders) {
            tried.work = {first, second};
            if (most_held(tried) > limit) continue;
            const Examination found = examine_schedule(tried, times);
            if (!found.problem) least = std::min(least, found.timing.bubble());
        }
    return least;
}

Picoseconds bubble_of(const Schedule& schedule, const ScheduleTimes& times = {{}}) {
    return time_schedule(schedule, times).bubble();
}

}  // namespace

TEST_CASE("no order of a small schedule is better than the one that is found",
          "[pipeline]") {
    for (const int m : {1, 2, 3})
        for (const double limit : {1, 2, 3})
            for (const Durations& durations :
                 {Durations{1, 1, 1}, {3, 2, 1}, {1, 2, 4}}) {
                const Schedule work = zb_h1_schedule({2, m});
                CAPTURE(m, limit, durations.forward);
                const FoundOrder found = search_order(work, {durations}, {}, limit);
                CHECK(bubble_of(found.schedule, {durations}) ==
                      least_bubble(work, {durations}, limit));
                CHECK(most_held(found.schedule) <= limit);
            }
}

TEST_CASE("a found order is valid, fits, and is no worse than the known ones",
          "[pipeline]") {
    for (const char* name : {"1f1b", "zb-h1", "zb-v", "chimera", "interleaved"})
        for (const double limit : {1.5, 2.0, 3.0, 4.0, 6.0, 8.0}) {
            CAPTURE(name, limit);
            const int chunks = std::string(name) == "interleaved" ? 2 : 1;
            const Schedule work = make_schedule(name, {4, 6, chunks});
            const double v = work.chunks;
            const ScheduleMemory memory(KeptMemory{1 / v, 1 / v});
            const FoundOrder found = search_order(work, {{2, 1, 1}}, memory, limit);
            CHECK_FALSE(find_problem(found.schedule).has_value());
            CHECK_FALSE(find_problem(with_messages(found.schedule)).has_value());
            CHECK(found.schedule.instructions() == work.instructions());
            CHECK(found.schedule.parts == work.parts);
            CHECK(most_held(found.schedule, memory) <= limit);
            for (const KnownOrder& known : found.known)
                if (known.memory <= limit)
                    CHECK(bubble_of(found.schedule, {{2, 1, 1}}) <= known.bubble);
        }
}

TEST_CASE("between ZB-H1 and ZB-H2 more memory gives less bubble, step by step",
          "[pipeline]") {
    const Schedule work = zb_h1_schedule({4, 8});
    const std::vector<Picoseconds> bubbles{3, 2, 1, 0};
    for (int more = 0; more <= 3; ++more) {
        const FoundOrder found = search_order(work, {{}}, {}, 4 + more);
        CHECK(bubble_of(found.schedule) <= bubbles[static_cast<std::size_t>(more)]);
    }
}

TEST_CASE("stages may halve their backwards or not", "[pipeline]") {
    const Schedule work =
        written_schedule({3, 6}, {"F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
                                  "F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3 "
                                  "F4 I4 W4 F5 I5 W5",
                                  "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"});
    const FoundOrder found = search_order(work, {{}}, {}, 3);
    CHECK(bubble_of(found.schedule) <= 6);
    CHECK(most_held(found.schedule) <= 3);
    // Instructions at the end of a step must stay there. Here there are none.
    CHECK(found.schedule.instructions() == work.instructions());
}

TEST_CASE("the same search finds the same order", "[pipeline]") {
    const Schedule work = zb_v_schedule({3, 5});
    const auto lines = [&] {
        return lines_of(
            search_order(work, {{3, 2, 2}}, KeptMemory{0.5, 0.5}, 2).schedule);
    };
    CHECK(lines() == lines());
}

TEST_CASE("known orders have the same work", "[pipeline]") {
    const auto names = [](const Schedule& work) {
        std::vector<std::string> found;
        for (const KnownOrder& each : known_orders(work, {{}}, {}))
            found.push_back(each.name);
        std::ranges::sort(found);
        return found;
    };
    using Names = std::vector<std::string>;
    CHECK(names(zb_h2_schedule({3, 6})) == Names{"zb-h1", "zb-h2"});
    CHECK(names(v_min_schedule({3, 6})) == Names{"v-half", "v-min", "zb-v"});
    CHECK(names(chimera_schedule({4, 8})) == Names{"chimera"});
    CHECK(names(interleaved_schedule({3, 6, 2})) == Names{"interleaved", "looped-bfs"});
}

TEST_CASE("impossible searches are refused with their place", "[pipeline][errors]") {
    const auto refused = [](const Schedule& work, double limit) {
        return refusal([&] { search_order(work, {{}}, {}, limit); });
    };
    const Schedule work = make_schedule("1f1b", {2, 3});
    CHECK(tells(refused(work, 0.5), {"0.5", "needs 1"}));
    CHECK(tells(refused(with_messages(work), 4), {"stage 0, instruction 2", "messages"}));
    CHECK(tells(refused(make_schedule("1f1b", {2, 4, 1, 2}), 4), {"stage 0", "R and U"}));
    CHECK(tells(refused(make_schedule("pipedream", {2, 4}), 4), {"stage 0", "R and U"}));
    CHECK(tells(refused(make_schedule("dualpipe", {2, 4}), 9), {"stage 0", "pairs"}));
}
