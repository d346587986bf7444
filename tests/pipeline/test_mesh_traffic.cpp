// The bytes along each axis of a mesh, by formula and counted.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/mesh_traffic.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/pipeline/meshes.hpp"

namespace lockstep::test {

namespace {

constexpr MicroBatchShape kShape{16, 2, DType::bf16};

GptSizes sizes_of(bool tied, std::int64_t kv_heads, bool llama) {
    GptSizes sizes;
    sizes.vocabulary = 50;  // 4 ranks have 13 columns each, the last with padding
    sizes.context = kShape.length;
    sizes.layers = 5;
    sizes.block.hidden = 32;
    sizes.block.heads = 16;
    sizes.block.kv_heads = kv_heads;
    sizes.tied = tied;
    if (llama) {
        sizes.block.norm = NormKind::rms_norm;
        sizes.block.mlp = MlpKind::swiglu;
        sizes.block.inner = 48;
        sizes.block.rotary_base = 10000;
        sizes.block.bias = false;
    }
    return sizes;
}

/// Runs one step that computes only shapes.
RunReport step_of(const MeshPlan& plan, const MicroBatchShape& shape) {
    sim::ClusterOptions options;
    options.ranks = plan.shape().ranks();
    options.numbers = false;
    options.spec.devices_per_node = 4;
    return sim::make_cluster(options)->run([&](Rank& rank) {
        GptOnMesh gpt(rank, plan, shape.dtype, 1);
        const auto optimizer = make_optimizer<AdamW>(gpt.sync().shards(), AdamWOptions{});
        for (const Parameter* parameter : gpt.parameters())
            rank.keep_value("numbers",
                            static_cast<double>(parameter->shape().elements()));
        const Shape ids{shape.length / plan.size("cp"), shape.batch};
        const MicroBatch one{rank.device().empty(ids, DType::i32),
                             rank.device().empty(ids, DType::i32), plan.weight()};
        const std::vector<MicroBatch> batches(
            static_cast<std::size_t>(plan.options().micro_batches), one);
        gpt.step(batches, *optimizer, 1.0);
    });
}

void check_traffic(const MeshOptions& options, const GptSizes& sizes) {
    const MeshPlan plan(sizes, options);
    CAPTURE(plan.shape().text(), options.sequence, options.schedule, options.zero,
            name_of(options.context), sizes.tied, sizes.block.kv_heads);
    const RunReport report = step_of(plan, kShape);
    double numbers = 0;
    for (const RankReport& rank : report.ranks)
        for (const double count : rank.series.at("numbers"))
            numbers += count;
    CHECK(numbers == static_cast<double>(parameters_on_mesh(plan)));
    const MeshTraffic counted = mesh_traffic(report);
    const MeshTraffic formula = mesh_traffic(plan, kShape);
    CHECK(counted.pp == formula.pp);
    CHECK(counted.cp == formula.cp);
    CHECK(counted.tp == formula.tp);
    CHECK(counted.replicas == formula.replicas);
    CHECK(counted.tied == formula.tied);
}

}  // namespace

TEST_CASE("Formulas give the bytes that a mesh holds, and sends along each axis",
          "[pipeline][mesh][costs]") {
    MeshOptions options;
    options.micro_batches = 4;
    options.sequence = GENERATE(false, true);
    options.zero = GENERATE(0, 1);
    options.scatter_messages = GENERATE(false, true);
    std::size_t turn = options.sequence ? 1 : 0;
    for (const auto& [pp, dp, cp, tp] : all_meshes()) {
        options.axes = {{"dp", dp}, {"pp", pp}, {"cp", cp}, {"tp", tp}};
        const bool llama = turn % 3 == 1;
        options.chunks = 1;
        options.schedule = pp == 1 ? "gpipe" : turn % 2 == 0 ? "1f1b" : "zb-h1";
        if (turn % 4 == 1 && pp > 1) {
            options.schedule = "interleaved";
            options.chunks = 2;
        }
        if (turn % 4 == 3 && pp > 1) options.schedule = "zb-v";
        const auto& methods = all_context_methods();
        options.context = methods[turn % methods.size()];
        check_traffic(
            options, sizes_of(turn % 2 == 0, turn % 5 < 2 || cp * tp > 8 ? 0 : 8, llama));
        ++turn;
    }
}

TEST_CASE("Formulas give the bytes that a mesh of 1,024 or 4,096 devices sends",
          "[pipeline][mesh][costs]") {
    MeshOptions options;
    options.sequence = true;
    options.zero = 1;
    options.micro_batches = 2;
    const int dp = GENERATE(16, 64);
    options.axes = {{"dp", dp}, {"pp", 4}, {"cp", 2}, {"tp", 8}};
    GptSizes sizes = sizes_of(true, 8, false);
    sizes.layers = 8;
    sizes.vocabulary = sizes.block.hidden = 1024;
    check_traffic(options, sizes);
}

TEST_CASE("The formulas of bytes refuse sizes that they do not cover",
          "[pipeline][mesh][errors]") {
    MeshOptions options;
    options.axes = {{"dp", 2}};
    options.zero = 2;
    const GptSizes sizes = sizes_of(false, 0, false);
    CHECK(message_of<UsageError>([&] {
              mesh_traffic(MeshPlan(sizes, options), kShape);
          }).find("ZeRO's stages 0 and 1") != std::string::npos);
    options.zero = 0;
    options.axes = {{"pp", 2}, {"tp", 2}};
    options.micro_batches = 4;
    for (const char* schedule : {"chimera", "dualpipe"}) {
        options.schedule = schedule;
        const MeshPlan plan(sizes, options);
        for (const auto& formula : std::vector<std::function<void()>>{
                 [&] { mesh_traffic(plan, kShape); }, [&] { parameters_on_mesh(plan); }})
            CHECK_THAT(message_of<UsageError>(formula),
                       Catch::Matchers::ContainsSubstring(std::string(schedule) +
                                                          " has some on two"));
    }
    RunReport others;
    others.ranks.resize(1);
    others.ranks[0].traffic.emplace_back().group = "mine";
    CHECK_THAT(message_of<UsageError>([&] { mesh_traffic(others); }),
               Catch::Matchers::ContainsSubstring("mine is no group of"));
}

}  // namespace lockstep::test
