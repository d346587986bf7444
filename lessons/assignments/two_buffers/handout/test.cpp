// These tests are public. The grader tests more: other numbers of stages and
// micro-batches, other lists and settings. It also runs your schedules with numbers.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "adapters.hpp"
#include "src/course/public_test.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"
#include "src/pipeline/weight_versions.hpp"

using namespace lockstep;

using enum InstructionKind;

struct Sizes {
    int stages = 1;
    int micro_batches = 1;
    int per_update = 1;
};

/// Expects F and B of each micro-batch, and R and U after every k-th B.
void expect_list(const Schedule& schedule, int stage, const Sizes& sizes) {
    const auto& list = schedule.of_stage(stage);
    const int updates = sizes.micro_batches / sizes.per_update;
    expect_equal(static_cast<int>(list.size()), 2 * sizes.micro_batches + 2 * updates,
                 fmt::format("instructions of stage {}", stage));
    const int count = static_cast<int>(list.size());
    int backwards = 0;
    for (int i = 0; i < count; ++i) {
        if (list[i].kind != backward || ++backwards % sizes.per_update != 0) continue;
        const bool ends = i + 2 < count && list[i + 1].kind == reduce_gradients &&
                          list[i + 2].kind == optimizer_step;
        expect(ends, fmt::format("{}: this is backward number {}; R and U should follow "
                                 "at once",
                                 schedule.where({stage, i}), backwards));
    }
}

/// Expects that all F and B of batch b read version max(0, b - 1).
void expect_versions(const Schedule& schedule, const Sizes& sizes) {
    const auto uses = weight_uses(schedule);
    for (int stage = 0; stage < sizes.stages; ++stage)
        for (int i = 0; i < sizes.micro_batches; ++i) {
            const WeightUse& use = uses[stage][0][i];
            const int version = std::max(0, i / sizes.per_update - 1);
            expect(
                use.forward == version && use.backward == version,
                fmt::format("stage {} reads version {} in F{} and {} in B{}; version {} "
                            "is expected",
                            stage, use.forward, i, use.backward, i, version));
        }
}

void expect_most(std::int64_t got, std::int64_t most, const std::string& what) {
    expect(got <= most, fmt::format("{}: {}; at most {} are expected", what, got, most));
}

void test_schedule(const Sizes& sizes) {
    const Schedule schedule =
        adapters::two_buffers(sizes.stages, sizes.micro_batches, sizes.per_update);
    expect_equal(schedule.stages, sizes.stages, "stages");
    expect_equal(schedule.micro_batches, sizes.micro_batches, "micro-batches");
    const auto problem = find_problem(schedule);
    expect(!problem, problem ? problem->sentence : "it can run");
    for (int stage = 0; stage < sizes.stages; ++stage)
        expect_list(schedule, stage, sizes);
    expect_versions(schedule, sizes);
    const auto peaks = peak_holdings(schedule);
    for (int stage = 0; stage < sizes.stages; ++stage) {
        expect_most(peaks[stage].in_flight,
                    std::min(sizes.stages - stage, sizes.micro_batches),
                    fmt::format("micro-batches in flight on stage {}", stage));
        expect_most(peaks[stage].weight_versions, 2,
                    fmt::format("versions of the weights on stage {}", stage));
    }
    for (const Durations& each : {Durations{1, 1, 1}, {5, 1, 1}})
        expect_most(time_schedule(schedule, {each}).makespan,
                    (sizes.micro_batches + sizes.stages - 1) *
                        (each.of_kind(forward) + each.of_kind(backward)),
                    fmt::format("with t_f = {} and t_b = {}, units of time until all is "
                                "done",
                                each.of_kind(forward), each.of_kind(backward)));
}

/// Tests a stage's list. `text` is the list in the form of a CSV file: "F0,B0,U".
void test_kept(const std::string& text, const std::vector<Kept>& expected) {
    const Schedule schedule = read_schedule_csv(text + "\n", "list.csv");
    const std::vector<Kept> kept = adapters::kept_versions(schedule.of_stage(0));
    expect_equal(static_cast<int>(kept.size()), static_cast<int>(expected.size()),
                 "versions in all");
    for (std::size_t version = 0; version < kept.size(); ++version) {
        expect_equal(kept[version].made, expected[version].made,
                     fmt::format("where version {} is made", version));
        expect_equal(kept[version].dropped, expected[version].dropped,
                     fmt::format("where version {} is used for the last time", version));
    }
}

void test_bytes(const Choice& choice, int stage, std::int64_t expected) {
    expect_equal(adapters::most_bytes(choice, 4, stage, {1'000, 100, 10, 1}), expected,
                 fmt::format("maximum of bytes on stage {} of 4", stage));
}

void expect_choice(const Setting& setting, Scheme scheme, int per_update) {
    const std::optional<Choice> got = adapters::fastest(setting);
    expect(got.has_value(), "there is a choice that is allowed");
    expect_equal(static_cast<int>(got->scheme), static_cast<int>(scheme),
                 "the scheme (0 flush, 1 stash, 2 two buffers)");
    expect_equal(got->per_update, per_update, "micro-batches between two updates");
}

/// Returns a setting of 4 stages. With two buffers, each stage holds at most 2,411 bytes.
Setting setting_of(std::int64_t memory, int most_per_update, int most_late) {
    Setting setting{4, memory, most_per_update, most_late, 1, 2, 1, {}};
    setting.bytes.assign(4, {1'000, 100, 10, 1});
    return setting;
}

void test_schedules(PublicTest& test) {
    for (const Sizes& each :
         {Sizes{2, 6, 2}, {4, 12, 4}, {3, 12, 6}, {4, 9, 3}, {1, 4, 2}, {3, 3, 3}})
        test.check(fmt::format("a10.1 p = {}, m = {}, k = {}", each.stages,
                               each.micro_batches, each.per_update),
                   [&] { test_schedule(each); });
}

void test_memory(PublicTest& test) {
    test.check("a10.2 all read the newest version", [] {
        test_kept("F0,B0,R,U,F1,B1,R,U", {{-1, 3}, {3, 7}, {7, -1}});
    });
    test.check("a10.2 an older version is read, too", [] {
        test_kept("F0,F1,B0,U,F2,B1@0,U,B2@1,U", {{-1, 5}, {3, 7}, {6, 8}, {8, -1}});
    });
    test.check("a10.3 two buffers", [] {
        test_bytes({Scheme::two_buffers, 8}, 0, 2'411);
        test_bytes({Scheme::two_buffers, 8}, 3, 2'111);
    });
    test.check("a10.3 a stash", [] { test_bytes({Scheme::stash, 1}, 0, 4'411); });
    test.check("a10.3 a flush", [] { test_bytes({Scheme::flush, 2}, 0, 1'211); });
}

void test_choices(PublicTest& test) {
    test.check("a10.4 room for all schemes, gradients at most one update late",
               [] { expect_choice(setting_of(10'000, 8, 1), Scheme::two_buffers, 8); });
    test.check("a10.4 room for all schemes, at most two micro-batches for an update",
               [] { expect_choice(setting_of(10'000, 2, 3), Scheme::stash, 1); });
    test.check("a10.4 room for one version",
               [] { expect_choice(setting_of(1'500, 8, 1), Scheme::flush, 8); });
    test.check("a10.4 room for nothing", [] {
        expect(!adapters::fastest(setting_of(1'100, 8, 1)),
               "nothing fits into 1100 bytes");
    });
}

int main() {
    PublicTest test;
    test_schedules(test);
    test_memory(test);
    test_choices(test);
    return test.finish();
}
