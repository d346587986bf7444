// Tests the assignment `mesh`: in each setting a solution can reach the required values.

#include <algorithm>

#include "lessons/assignments/mesh/grading/settings.hpp"
#include "lessons/assignments/mesh/handout/mesh.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons::mesh;

namespace {

RunReport run_reference(const Setting& setting, const Axes& axes) {
    const Job job = job_of(step_of(setting, axes));
    return cost_of(setting, [&](Rank& rank) { train(rank, job, axes); });
}

std::vector<NamedSetting> all_settings(const Varied& varied) {
    std::vector<NamedSetting> all;
    for (const Kind kind : {Kind::wide, Kind::nodes, Kind::context})
        for (NamedSetting& named : variants_of(kind, varied))
            all.push_back(std::move(named));
    return all;
}

}  // namespace

TEST_CASE("In each setting the reference chooses a mesh that gets all points",
          "[grader][mesh][slow]") {
    for (const Varied& varied : {Varied{}, Varied{1.3, 2048}})
        for (const NamedSetting& named : all_settings(varied)) {
            INFO(named.name);
            const std::vector<Tried> all = fitting_meshes(named.setting);
            REQUIRE(all.size() > 1);
            const Axes axes = choose(named.setting);
            INFO(text_of(axes));
            const auto found = std::ranges::find(
                all, text_of(axes), [](const Tried& one) { return text_of(one.axes); });
            REQUIRE(found != all.end());
            const Picoseconds best = all.front().report.makespan();
            // The chosen mesh may be 10 % slower than the best, and the program 25 %.
            CHECK(found->report.makespan() <= best + best / 10);
            const RunReport own = run_reference(named.setting, axes);
            CHECK(own.makespan() <= best + best * 24 / 100);
            CHECK(own.most_held() <= named.setting.cluster.memory_bytes);
            // A bad choice must cost points: some meshes are much slower than the best.
            if (!named.name.starts_with(name_of(Kind::context)))
                CHECK(all.back().report.makespan() > best + best * 6 / 10);
        }
}

TEST_CASE("A setting that is sent as numbers is the same afterwards", "[grader][mesh]") {
    for (const Varied& varied : {Varied{}, Varied{1.17, 1040}})
        for (const NamedSetting& named : all_settings(varied)) {
            INFO(named.name);
            const auto back = from_numbers<Setting>(numbers_of(named.setting));
            CHECK(numbers_of(back) == numbers_of(named.setting));
            CHECK(back.sizes.parameters() == named.setting.sizes.parameters());
            CHECK(back.cluster.memory_bytes == named.setting.cluster.memory_bytes);
            CHECK(back.cluster.between.bytes_per_second ==
                  named.setting.cluster.between.bytes_per_second);
            CHECK(choose(back) == choose(named.setting));
            for (const auto& [name, number] : numbers_of(named.setting))
                CHECK(std::abs(number) < std::int64_t{1} << 31);
            // Indices into a flat buffer of all parameters must fit into 32 bits.
            CHECK(named.setting.sizes.parameters() < std::int64_t{1} << 32);
        }
}
