#include <string>
#include <sys/stat.h>
#include <vector>

#include "src/core/require.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/cost/collectives.hpp"
#include "src/cost/virtual_time.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

namespace {

ClusterSpec load(const std::string& text) {
    const TemporaryFolder folder;
    return load_cluster(folder.file("cluster.json", text).string());
}

void check_refused(const std::string& text, const std::vector<std::string>& words) {
    try {
        (void)load(text);
        FAIL("accepted: " << text);
    } catch (const UsageError& error) {
        const std::string sentence = error.what();
        for (const std::string& word : words) {
            INFO("'" << word << "' in: " << sentence);
            CHECK(sentence.find(word) != std::string::npos);
        }
        CHECK(sentence.find('\n') == std::string::npos);
    }
}

}  // namespace

TEST_CASE("every preset has a name, a source and usable figures", "[cost]") {
    for (const std::string& name : cluster_preset_names()) {
        const ClusterSpec spec = load_cluster(name);
        CHECK(spec.name == name);
        CHECK_FALSE(spec.source.empty());
        CHECK(spec.devices_per_node >= 1);
        if (spec.phases) continue;
        CHECK(spec.flops(DType::f32) > spec.flops(DType::f64));
        CHECK(spec.inside.bytes_per_second > spec.between.bytes_per_second);
        CHECK(message_time(spec.inside, 1000) < message_time(spec.between, 1000));
    }
}

TEST_CASE("a cluster file changes only the keys that it names", "[cost]") {
    const ClusterSpec spec =
        load(R"({"base": "h100", "name": "mine", "memory_bytes": 1000,
        "inside": {"alpha_seconds": 2e-6, "bytes_per_second": 1e9}, "network_ports": 2,
        "phases": {"forward": 1, "backward_weight": 3},
        "stragglers": [{"rank": 3, "compute": 4}, {"rank": 0, "links": 1.5}],
        "host": {"memory_bytes": 500, "memory_bytes_per_second": 1e9},
        "host_links": 4})");
    CHECK(spec.name == "mine");
    CHECK(spec.memory_bytes == 1000);
    CHECK(spec.network_ports == 2);
    CHECK(spec.flops_f32 == load_cluster("h100-data-sheet").flops_f32);
    CHECK(message_time(spec.inside, 1000) == 3'000'000);
    REQUIRE(spec.phases);
    CHECK(spec.phases->backward_weight == 3);
    CHECK(spec.phases->backward_input == 0);
    CHECK(spec.compute_factor(3) == 4);
    CHECK(spec.link_factor(3) == 1);
    CHECK(spec.link_factor(0) == 1.5);
    CHECK(spec.compute_factor(1) == 1);
    CHECK(spec.host.memory_bytes == 500);
    CHECK(spec.host.flops_f32 == load_cluster("h100-data-sheet").host.flops_f32);
    CHECK(spec.host_links == 4);
    CHECK(staging_time(spec.host, 500) == 1'000'000);
    CHECK(operation_time(spec.host, 0, 3000, DType::bf16) == 3'000'000);
}

TEST_CASE("an error in a cluster file names the key", "[cost][errors]") {
    check_refused("{", {"is not JSON"});
    check_refused("[]", {"is not a JSON object"});
    check_refused(R"({"flops_f32": "fast"})", {"flops_f32", "is not a number"});
    check_refused(R"({"flops_f32": -1})", {"flops_f32", "from 0"});
    check_refused(R"({"flops_f32": 1e400})", {"cluster.json", "too large"});
    check_refused(R"({"inside": {"alpha_seconds": 1e30}})", {"inside.alpha_seconds"});
    check_refused(R"({"inside": {"bytes_per_second": 1e-20}})",
                  {"inside.bytes_per_second"});
    check_refused(R"({"speed": 1})", {"speed", "is not known"});
    check_refused(R"({"inside": {"alpha": 1}})", {"inside.alpha", "alpha_seconds"});
    check_refused(R"({"inside": 3})", {"inside", "is not a JSON object"});
    check_refused(R"({"devices_per_node": 0})", {"devices_per_node", "from 1"});
    check_refused(R"({"devices_per_node": 1.5})", {"devices_per_node", "whole number"});
    check_refused(R"({"base": "moon"})", {"base", "classroom"});
    check_refused(R"({"phases": {"sideways": 1}})",
                  {"phases.sideways", "backward_input"});
    check_refused(R"({"stragglers": {"rank": 1}})", {"stragglers", "list"});
    check_refused(R"({"stragglers": [{"compute": 4}]})", {"stragglers[0]", "no rank"});
    check_refused(R"({"stragglers": [{"rank": 1}, {"rank": 1}]})",
                  {"stragglers[1]", "repeats rank 1"});
    check_refused(R"({"stragglers": [{"rank": 1, "compute": 0.5}]})",
                  {"stragglers[0].compute", "from 1 to 100"});
    check_refused(R"({"stragglers": [{"rank": 1, "speed": 2}]})",
                  {"stragglers[0].speed", "rank, compute and links"});
    check_refused(R"({"host": {"cores": 4}})", {"host.cores", "memory_bytes"});
    check_refused(R"({"host": {"flops_f32": -1}})", {"host.flops_f32"});
}

TEST_CASE("a file can give efficiencies and algorithms", "[cost]") {
    const ClusterSpec spec = load(R"({"memory_bytes": 192e9, "memory_efficiency": 0.5,
        "flops_f32": 1e12, "memory_bytes_per_second": 1e12,
        "product_efficiency": [[64, 0.2], [256, 0.6]],
        "inside": {"bytes_per_second": 1e9, "efficiency": [[1024, 0.25]]},
        "algorithms": [{"name": "fast", "kind": "ring", "base_seconds": 1e-6,
                        "inside_seconds": 2e-6, "inside_efficiency": 0.5}]})");
    CHECK(spec.memory_bytes == 192'000'000'000);
    CHECK(spec.product_efficiency.at(1) == 0.2);
    CHECK(spec.product_efficiency.at(128) == Approx(0.4));
    CHECK(spec.product_efficiency.at(4096) == 0.6);
    CHECK(operation_time(spec, 1000, 0, DType::f32, 4096) == 1667);
    CHECK(operation_time(spec, 1000, 0, DType::f32) == 1000);
    CHECK(operation_time(spec, 0, 1000, DType::f32) == 2000);
    CHECK(message_time(spec.inside, 1000) == 4'000'000);
    // A ring of two: the base, two steps, and the bytes at half of the rate.
    CHECK(collective_time({Verb::all_reduce, 250, 4, 2}, spec, {0, 1}) == 7'000'000);
    check_refused(R"({"memory_bytes": 1.5})", {"memory_bytes", "whole number"});
    check_refused(R"({"memory_bytes": 1e30})", {"memory_bytes", "whole number"});
    check_refused(R"({"product_efficiency": [[64, 0.2], [64, 0.3]]})",
                  {"product_efficiency[1]", "larger"});
    check_refused(R"({"product_efficiency": [[64]]})", {"product_efficiency[0]", "part"});
    check_refused(R"({"product_efficiency": 0.5})", {"product_efficiency", "points"});
    check_refused(R"({"memory_efficiency": 0})", {"memory_efficiency", "0.0001"});
    check_refused(R"({"algorithms": [{"kind": "star"}]})",
                  {"algorithms[0].kind", "'star'", "ring, tree, in_switch, pairs"});
    check_refused(R"({"algorithms": [{"speed": 1}]})",
                  {"algorithms[0].speed", "base_seconds"});
}

TEST_CASE("a preset's data sheet has neither efficiencies nor algorithms", "[cost]") {
    for (const ClusterSpec& preset : cluster_presets()) {
        const ClusterSpec plain = load_cluster(preset.name + "-data-sheet");
        CHECK(plain.name == preset.name + "-data-sheet");
        CHECK(plain.product_efficiency.points.empty());
        CHECK(plain.memory_efficiency == 1);
        CHECK(plain.algorithms.empty());
        CHECK(plain.flops_bf16 == preset.flops_bf16);
    }
}

TEST_CASE("a file that is no cluster file is refused with its name and the reason",
          "[cost][errors]") {
    const TemporaryFolder folder;
    const auto refusal = [](const std::string& path) {
        return message_of<UsageError>([&] { (void)load_cluster(path); });
    };
    CHECK(refusal("no such cluster").ends_with("can be read: No such file or directory"));
    CHECK(refusal("/").ends_with("/: this is not a file"));
    CHECK(refusal("/dev/zero").ends_with("/dev/zero: this is not a file"));

    const std::string pipe = (folder / "pipe.json").string();
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(refusal(pipe) == "cluster file " + pipe + ": this is not a file");

    const std::filesystem::path large =
        folder.file("large.json", std::string((1 << 20) + 1, '['));
    CHECK(refusal(large.string()) ==
          "cluster file " + large.string() +
              " is larger than 1 MiB, the limit for such a file");
}

TEST_CASE("costs that overflow become one largest value", "[cost]") {
    constexpr std::int64_t kMany = std::int64_t{1} << 50;
    const LinkSpec slow{10'000, 1000};
    CHECK(message_time(slow, kMany) == kUncountable);
    CHECK(message_time(slow, 1000) == 10'001 * kSecond);
    CHECK(slowed(kUncountable / 2, 3) == kUncountable);
    CHECK(slowed(kUncountable, 1) == kUncountable);
    ClusterSpec spec;
    spec.inside = spec.between = spec.host_copy = slow;
    spec.memory_bytes_per_second = spec.host.memory_bytes_per_second = 1000;
    CHECK(operation_time(spec, 0, kMany, DType::f32) == kUncountable);
    CHECK(operation_time(spec.host, 0, kMany, DType::f32) == kUncountable);
    CHECK(staging_time(spec.host, kMany) == kUncountable);
    const std::vector<int> members{0, 1, 2, 3};
    for (const Verb verb : {Verb::all_reduce, Verb::all_gather, Verb::broadcast})
        CHECK(collective_time({verb, kMany, 4, 4, 0}, spec, members) == kUncountable);
    CHECK(countable_picoseconds(1e300) == kUncountable);
    CHECK(time_sum(kUncountable - 1, 1) == kUncountable);
    CHECK(time_sum(kUncountable, kUncountable) == kUncountable);
    CHECK(time_product(3, kUncountable / 2) == kUncountable);
    CHECK_NOTHROW(require_countable(kUncountable - 1, 0, SourceLine::here()));
    CHECK_THROWS_AS(require_countable(kUncountable, 0, SourceLine::here()), UsageError);
}

}  // namespace lockstep::test
