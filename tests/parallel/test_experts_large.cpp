// Mixtral and DeepSeek-V3 on 256 and 1,024 devices that compute only shapes: pipelines
// whose stages shard experts, and replicas with ZeRO-1.

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/published_sizes.hpp"
#include "src/nn/recompute.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kLength = 4096;  // tokens of a micro-batch; one sequence

struct Layout {
    int pp = 1, dp = 1, ep = 1;
    int micro_batches = 1;

    int ranks() const { return pp * dp * ep; }
};

RunReport step_of(const GptSizes& sizes, const Layout& layout) {
    const PipelinePlan plan(make_schedule("1f1b", {layout.pp, layout.micro_batches, 1}));
    sim::ClusterOptions options;
    options.ranks = layout.ranks();
    options.workers = 1;
    options.numbers = false;
    options.spec = load_cluster("h100-data-sheet");
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        // Ranks of "ep" are neighbours, so all experts of a stage are on few nodes.
        Mesh mesh(rank.world(),
                  {{"pp", layout.pp}, {"dp", layout.dp}, {"ep", layout.ep}});
        Communicator& line = mesh["pp"];
        const Schedule& schedule = plan.schedule();
        const GptKit kit = expert_parallel({}, mesh, {"ep"});
        const GptStage stage =
            make_gpt_stage({device, DType::bf16, 1, ""}, sizes, schedule, line.rank(),
                           cut_gpt(sizes, schedule), kit);
        for (const auto& chunk : stage.chunks)
            recompute_modules(*chunk, 0, chunk->size());
        Pipeline pipeline(device, line, plan, stage.modules(),
                          gpt_boundary(sizes, DType::bf16, kit));
        pipeline.reduce_over(mesh, {"dp", "ep"});
        const auto all = stage.parameters();
        const auto numbers = [&](bool of_experts) {
            std::int64_t sum = 0;
            for (const Parameter* parameter : all)
                if (of_experts != is_partial_along(mesh.plane({"dp", "ep"}), *parameter))
                    sum += parameter->shape().elements();
            return static_cast<double>(sum);
        };
        rank.keep_value("experts", numbers(true));
        rank.keep_value("others", numbers(false));
        const auto sync = zero_1_by_places(device, mesh, {"dp", "ep"}, all,
                                           {.sizes = BucketSizes::all_in_one()});
        const auto optimizer = make_optimizer<AdamW>(sync->shards(), AdamWOptions{});
        pipeline.sync_by({sync.get()});
        pipeline.update_by({optimizer.get()});
        const Tensor ids = device.empty({kLength, 1}, DType::i32);
        const std::vector<MicroBatch> batches(
            static_cast<std::size_t>(layout.micro_batches),
            {ids, ids, 1.0 / (layout.dp * layout.ep * layout.micro_batches)});
        pipeline.run(kit.loss(sizes), batches);
    });
}

/// Returns how many numbers one replica has. Counts each rank's experts, and the rest of
/// each stage once.
std::int64_t numbers_in(const RunReport& report, const Layout& layout) {
    std::int64_t numbers = 0;
    for (int stage = 0; stage < layout.pp; ++stage)
        for (int rank = 0; rank < layout.ep; ++rank) {
            const int index = stage * layout.dp * layout.ep + rank;
            const RankReport& rank_report = report.ranks[static_cast<std::size_t>(index)];
            numbers += static_cast<std::int64_t>(rank_report.series.at("experts")[0]);
            if (rank == 0)
                numbers += static_cast<std::int64_t>(rank_report.series.at("others")[0]);
        }
    return numbers;
}

/// Checks the bytes of copies to experts and back: forward, recomputation, backward.
void check_bytes(const GptSizes& sizes, const Layout& layout, const RunReport& report) {
    const PipelinePlan plan(make_schedule("1f1b", {layout.pp, layout.micro_batches, 1}));
    const auto cut = cut_gpt(sizes, plan.schedule());
    const std::int64_t copies = sizes.block.experts.gate.chosen * kLength;
    REQUIRE(copies % sizes.block.experts.count == 0);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
        const LayerRange& own =
            cut[static_cast<std::size_t>(rank / (layout.dp * layout.ep))];
        std::int64_t layers = 0;
        for (int layer = own.first; layer < own.last; ++layer) {
            const std::int64_t block = layer - sizes.first_block();
            layers += block >= sizes.dense_blocks && block < sizes.layers;
        }
        std::int64_t sent = 0;
        for (const Traffic& traffic :
             report.ranks[static_cast<std::size_t>(rank)].traffic)
            if (traffic.group == "ep" && traffic.verb == "send")
                sent += traffic.bytes_sent;
        REQUIRE(sent == layout.micro_batches * layers * 6 * copies / layout.ep *
                            (layout.ep - 1) * sizes.block.hidden * 2);
    }
}

/// Checks a step, and returns a line with its time and peak memory.
std::string check_step(const char* name, const GptSizes& sizes, const Layout& layout) {
    const RunReport report = step_of(sizes, layout);
    CHECK(numbers_in(report, layout) == sizes.parameters());
    check_bytes(sizes, layout, report);
    std::int64_t peak = 0;
    for (const RankReport& rank : report.ranks)
        peak = std::max(peak, rank.memory.peak);
    return fmt::format("{} on {} devices: {:.3f} s a step, {:.2f} GiB", name,
                       layout.ranks(), static_cast<double>(report.makespan()) / 1e12,
                       static_cast<double>(peak) / (1 << 30));
}

}  // namespace

TEST_CASE("DeepSeek-V3 has 671 billion parameters, and a token uses 37.6 billion",
          "[parallel][experts]") {
    // DeepSeek-AI 2024, 2412.19437, abstract. Without the module for the second token,
    // the published weights have 671,026,419,200 numbers: our parameters, and a bias for
    // each of 256 experts in 58 gates.
    const GptSizes sizes = deepseek_v3(kLength);
    CHECK(sizes.parameters() == 671'026'404'352);
    CHECK(sizes.active_parameters() == 37'552'282'624);
    // The table of tokens does not count, because a token reads only one of its rows.
    CHECK(sizes.active_parameters() - sizes.vocabulary * sizes.block.hidden ==
          36'625'603'584);
}

TEST_CASE("Mixtral on 32 devices holds, and sends, what the formulas say",
          "[parallel][experts]") {
    check_step("Mixtral", mixtral_8x7b(kLength), {2, 2, 8, 2});
}

TEST_CASE("Mixtral and DeepSeek-V3 run on 256 and 1,024 devices", "[.large]") {
    WARN(check_step("Mixtral", mixtral_8x7b(kLength), {4, 8, 8, 8}));
    WARN(check_step("DeepSeek-V3", deepseek_v3(kLength), {16, 1, 16, 16}));
    WARN(check_step("Mixtral", mixtral_8x7b(kLength), {4, 32, 8, 8}));
    WARN(check_step("DeepSeek-V3", deepseek_v3(kLength), {16, 1, 64, 16}));
}

}  // namespace lockstep::test
