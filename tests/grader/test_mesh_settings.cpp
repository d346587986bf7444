// Tests the assignment `mesh`: in each setting a solution can reach the required values.

#include <algorithm>
#include <map>

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
        }
}

namespace {

using Rule = Axes (*)(const Setting& setting);

int key_heads(const Setting& setting) {
    return static_cast<int>(setting.sizes.block.attention().key_heads());
}

/// As much tp as heads of keys allow, half of that for long sequences, and cp.
Axes much_tp(const Setting& setting) {
    int tp = std::min(key_heads(setting), setting.devices);
    if (setting.sizes.context > 4096) tp = std::min(tp, setting.devices / 2);
    return {{"dp", 1}, {"cp", setting.devices / tp}, {"tp", tp}};
}

/// As much tp as a node and heads of keys allow, then dp, and cp.
Axes tp_in_nodes(const Setting& setting) {
    const int tp =
        std::min({key_heads(setting), setting.cluster.devices_per_node, setting.devices});
    const int dp = std::min(setting.devices / tp, setting.sequences);
    return {{"dp", dp}, {"cp", setting.devices / tp / dp}, {"tp", tp}};
}

/// The same, with cp instead of dp for long sequences.
Axes tp_in_nodes_or_cp(const Setting& setting) {
    if (setting.sizes.context < 20'000) return tp_in_nodes(setting);
    const int tp = std::min(
        {key_heads(setting), setting.cluster.devices_per_node, setting.devices / 2});
    return {{"dp", 1}, {"cp", setting.devices / tp}, {"tp", tp}};
}

/// As little tp as possible across nodes, and dp or cp in them.
Axes little_tp(const Setting& setting) {
    const int dp = std::min(setting.devices / 2, setting.sequences);
    return {{"tp", 2}, {"cp", setting.devices / 2 / dp}, {"dp", dp}};
}

/// Returns the points of a mesh, if the library's own program runs on it.
double points_of(const Axes& axes, const std::vector<Tried>& all) {
    const auto found = std::ranges::find(
        all, text_of(axes), [](const Tried& one) { return text_of(one.axes); });
    if (found == all.end()) return 0;
    const auto best = static_cast<double>(all.front().report.makespan());
    const double times = static_cast<double>(found->report.makespan()) / best;
    return times > 1.6 ? 2 : times > 1.25 ? 6 : 13;
}

}  // namespace

TEST_CASE("A rule without an estimate gets less than half of the points on average",
          "[grader][mesh][slow]") {
    std::map<Kind, std::vector<std::vector<Tried>>> tried;
    for (const Kind kind : {Kind::wide, Kind::nodes, Kind::context})
        for (const NamedSetting& named : variants_of(kind, {}))
            tried[kind].push_back(fitting_meshes(named.setting));
    for (const Rule rule : {much_tp, tp_in_nodes, tp_in_nodes_or_cp, little_tp}) {
        double points = 0;
        for (const auto& [kind, meshes] : tried) {
            const std::vector<NamedSetting> variants = variants_of(kind, {});
            double of_kind = 0;
            for (std::size_t i = 0; i < variants.size(); ++i)
                of_kind += points_of(rule(variants[i].setting), meshes[i]);
            points += of_kind / static_cast<double>(variants.size());
        }
        INFO(points);
        CHECK(points < 39.0 / 2);
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
