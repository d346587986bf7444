#include "lessons/assignments/mesh/grading/settings.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "sim/cluster.hpp"
#include "src/device/ledger.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace lockstep::lessons::mesh {

namespace {

/// Returns a GPT of 8 layers whose heads have 128 columns.
GptSizes gpt(std::int64_t vocabulary, std::int64_t hidden, std::int64_t kv_heads,
             std::int64_t context) {
    return {vocabulary,
            context,
            8,
            {.hidden = hidden, .heads = hidden / 128, .kv_heads = kv_heads}};
}

// In some settings of each kind the axis tp belongs inside a node, in others it does not;
// in some the mesh that is fastest elsewhere does not fit. So no rule without an estimate
// is good in most settings (tests/grader/test_mesh_settings.cpp).
std::vector<Setting> settings_of(Kind kind) {
    const auto v100 = [](std::int64_t memory) {
        return cluster_of("v100", 4, memory, 3'000);
    };
    const auto a100 = [](int node, std::int64_t memory, std::int64_t network) {
        return cluster_of("a100", node, memory, network);
    };
    switch (kind) {
        // A whole model does not fit on a device. The number of tokens decides whether
        // weights or activations are more bytes to send.
        case Kind::wide:
            return {{gpt(32'000, 6144, 8, 2048), 2, 8, v100(16)},
                    {gpt(32'000, 6144, 8, 2048), 16, 8, v100(16)},
                    {gpt(32'000, 6144, 8, 4096), 8, 8, v100(11)}};
        // The network between nodes is slow compared with the links inside them.
        case Kind::nodes:
            return {{gpt(32'000, 4096, 0, 8192), 4, 16, a100(4, 10, 3'000)},
                    {gpt(32'000, 4096, 4, 2048), 4, 16, a100(8, 8, 3'000)},
                    {gpt(32'000, 4096, 4, 4096), 2, 16, a100(8, 8, 3'000)},
                    {gpt(32'000, 4096, 0, 4096), 2, 16, a100(4, 8, 3'000)},
                    {gpt(32'000, 4096, 0, 8192), 4, 16, a100(8, 8, 3'000)}};
        // Sequences are so long that few meshes fit into memory.
        case Kind::context:
            return {{gpt(32'000, 4096, 0, 65'536), 1, 8, a100(4, 24, 12'000)},
                    {gpt(32'000, 6144, 8, 32'768), 2, 8, a100(2, 24, 6'000)},
                    {gpt(32'000, 6144, 8, 32'768), 2, 8, a100(4, 24, 6'000)},
                    {gpt(32'000, 4096, 0, 32'768), 2, 8, a100(2, 24, 6'000)}};
    }
    return {};
}

}  // namespace

std::string name_of(Kind kind) {
    return kind == Kind::wide ? "wide" : kind == Kind::nodes ? "nodes" : "context";
}

std::vector<NamedSetting> variants_of(Kind kind, const Varied& varied) {
    constexpr double kMillion = 1e6;  // given.hpp sends whole MB/s
    std::vector<NamedSetting> all;
    for (Setting& each : settings_of(kind)) {
        GptSizes& sizes = each.sizes;
        double& network = each.cluster.between.bytes_per_second;
        sizes.vocabulary += varied.vocabulary;
        network = std::round(network * varied.network / kMillion) * kMillion;
        const std::string name = fmt::format(
            "{}, h {}, {} sequences of {} tokens, {} heads of keys, {} words, {} GB, "
            "nodes of {}, {:.5g} GB/s between them",
            name_of(kind), sizes.block.hidden, each.sequences, sizes.context,
            sizes.block.attention().key_heads(), sizes.vocabulary,
            each.cluster.memory_bytes / 1'000'000'000, each.cluster.devices_per_node,
            network * 1e-9);
        all.push_back({name, each});
    }
    return all;
}

GivenJob step_of(const Setting& setting, const Axes& axes) {
    return {.axes = axes,
            .sizes = setting.sizes,
            .dtype = DType::bf16,
            .sequences = setting.sequences};
}

std::vector<Axes> possible_meshes(const Setting& setting) {
    const std::int64_t key_heads = setting.sizes.block.attention().key_heads();
    std::vector<Axes> all;
    for (int dp = 1; dp <= setting.devices; ++dp)
        for (int cp = 1; dp * cp <= setting.devices; ++cp) {
            const int tp = setting.devices / (dp * cp);
            if (dp * cp * tp != setting.devices || setting.sequences % dp != 0 ||
                setting.sizes.context % (std::int64_t{2} * cp) != 0 ||
                key_heads % tp != 0)
                continue;
            Axes axes{{"cp", cp}, {"dp", dp}, {"tp", tp}};
            do {
                all.push_back(axes);
            } while (std::ranges::next_permutation(axes, {}, &Mesh::Axis::name).found);
        }
    return all;
}

RunReport cost_of(const Setting& setting, const Program& program) {
    sim::ClusterOptions options;
    options.ranks = setting.devices;
    options.spec = setting.cluster;
    options.numbers = false;
    options.workers = 1;
    options.check = sim::CheckLevel::cheap;
    return sim::make_cluster(options)->run(program);
}

namespace {

/// Runs one step of the library's own program.
RunReport run_library(const Setting& setting, const Axes& axes) {
    const Job job = job_of(step_of(setting, axes));
    MeshOptions spread;
    spread.axes = axes;
    spread.micro_batches = setting.sequences / MeshShape(axes).size("dp");
    spread.zero = 1;
    spread.kit = job.kit;
    const MeshPlan plan(job.sizes, spread);
    const auto program = [&](Rank& rank) {
        GptOnMesh gpt(rank, plan, job.dtype, job.seed);
        const auto optimizer = job.optimizer(gpt.sync().shards());
        std::vector<MicroBatch> own;
        for (int i = 0; i < spread.micro_batches; ++i) {
            const Sequence& any = job.batches[0][0];  // any sequence: shapes only
            own.push_back(gpt.micro_batch(any.tokens, any.next));
        }
        gpt.step(own, *optimizer);
    };
    return cost_of(setting, program);
}

}  // namespace

std::vector<Tried> fitting_meshes(const Setting& setting) {
    std::vector<Tried> all;
    std::set<std::string> tried;
    for (const Axes& axes : possible_meshes(setting)) {
        if (!tried.insert(text_of(axes)).second) continue;
        try {
            all.push_back({axes, run_library(setting, axes)});
        } catch (const OutOfMemoryError&) {
            // This mesh does not fit.
        }
    }
    std::ranges::stable_sort(all, {},
                             [](const Tried& one) { return one.report.makespan(); });
    return all;
}

}  // namespace lockstep::lessons::mesh
