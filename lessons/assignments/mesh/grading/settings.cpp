#include "lessons/assignments/mesh/grading/settings.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "lessons/assignments/cost_of.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace lockstep::lessons::mesh {

namespace {

constexpr std::int64_t kGB = 1'000'000'000;

GptSizes gpt(std::int64_t hidden, std::int64_t kv_heads, std::int64_t context) {
    constexpr std::int64_t kHeadWidth = 128;
    GptSizes sizes;
    sizes.vocabulary = 32'000;
    sizes.context = context;
    sizes.layers = 8;
    sizes.block.hidden = hidden;
    sizes.block.heads = hidden / kHeadWidth;
    sizes.block.kv_heads = kv_heads;
    return sizes;
}

Setting make(const GptSizes& sizes, int sequences, int devices, const char* preset,
             int devices_per_node, std::int64_t memory_gb) {
    Setting setting{sizes, sequences, devices, load_cluster(preset)};
    setting.cluster.devices_per_node = devices_per_node;
    setting.cluster.memory_bytes = memory_gb * kGB;
    return setting;
}

/// Replicas do not fit, and whether weights or activations are more to send depends on
/// how many tokens there are.
std::vector<NamedSetting> wide_variants() {
    std::vector<NamedSetting> all;
    for (const int sequences : {4, 8, 16})
        for (const double network : {6.25e9, 12.5e9}) {
            Setting setting =
                make(gpt(6144, 8, 2048), sequences, 8, "v100", 4, /*memory_gb=*/16);
            setting.sizes.vocabulary = 50'000;
            setting.cluster.between.bytes_per_second = network;
            all.push_back({fmt::format("wide, {} sequences", sequences), setting});
        }
    return all;
}

/// A network that is slow beside the nodes' own links.
std::vector<NamedSetting> nodes_variants() {
    std::vector<NamedSetting> all;
    for (const int node : {4, 8})
        for (const std::int64_t tokens : {12288, 16384})
            for (const double network : {12.5e9, 25e9}) {
                Setting setting = make(gpt(4096, 0, tokens), 4, 16, "a100", node, 24);
                setting.cluster.between.bytes_per_second = network;
                all.push_back(
                    {fmt::format("nodes of {}, {} tokens", node, tokens), setting});
            }
    return all;
}

/// Sequences so long that neither cp nor tp alone makes room for a device.
std::vector<NamedSetting> context_variants() {
    std::vector<NamedSetting> all;
    constexpr std::int64_t kTokens = 32'768;
    for (const int sequences : {2, 4})
        for (const std::int64_t keys : {4, 8})
            all.push_back({fmt::format("context, {} x {} tokens, {} heads of keys",
                                       sequences, kTokens, keys),
                           make(gpt(6144, keys, kTokens), sequences, 8, "a100", 8, 24)});
    return all;
}

}  // namespace

std::string name_of(Kind kind) {
    return kind == Kind::wide ? "wide" : kind == Kind::nodes ? "nodes" : "context";
}

std::vector<NamedSetting> variants_of(Kind kind, const Varied& by) {
    constexpr double kMillion = 1e6;  // on the line they are whole
    std::vector<NamedSetting> all = kind == Kind::wide    ? wide_variants()
                                    : kind == Kind::nodes ? nodes_variants()
                                                          : context_variants();
    for (NamedSetting& each : all) {
        std::int64_t& words = each.setting.sizes.vocabulary;
        double& network = each.setting.cluster.between.bytes_per_second;
        words += by.vocabulary;
        network = std::round(network * by.network / kMillion) * kMillion;
        each.name +=
            fmt::format(", {} words, {:.5g} GB/s between nodes", words, network / kGB);
    }
    return all;
}

MeshCase step_of(const Setting& setting, const Axes& axes) {
    MeshCase step{axes, {}};
    step.job.sizes = setting.sizes;
    step.job.dtype = DType::bf16;
    step.job.sequences = setting.sequences;
    step.job.leaves_weights = false;
    return step;
}

ClusterSpec roomy(const Setting& setting) {
    ClusterSpec spec = setting.cluster;
    spec.memory_bytes *= 8;
    spec.host_copy = {};
    return spec;
}

namespace {

/// One step of the library's own program. Throws UsageError where the mesh cannot be.
RunReport run_library(const MeshCase& step, const ClusterSpec& cluster) {
    const int replicas = step.size("dp");
    require(step.job.sequences % replicas == 0,
            "{} sequences are not dealt equally to {} replicas", step.job.sequences,
            replicas);
    MeshOptions spread;
    spread.axes = step.axes;
    spread.micro_batches = step.job.sequences / replicas;
    spread.zero = 1;
    spread.kit = given_kit();
    const MeshPlan plan(step.job.sizes, spread);
    const HostTensor tokens({step.job.sizes.context, 1}, DType::i32);
    const auto program = [&](Rank& rank) {
        GptOnMesh gpt(rank, plan, step.job.dtype, 0);
        const auto optimizer = given_optimizer(step.job.by_sgd, gpt.sync().shards());
        std::vector<MicroBatch> own;
        for (int i = 0; i < spread.micro_batches; ++i) {
            const Tensor ids = rank.device().upload(dealt_rows(tokens, gpt.tokens()));
            own.push_back({ids, ids, plan.weight()});
        }
        gpt.step(own, *optimizer);
    };
    return cost_of(step.ranks(), program, cluster);
}

}  // namespace

std::vector<Tried> fitting_meshes(const Setting& setting) {
    std::vector<Tried> all;
    std::set<std::string> tried;
    const auto try_mesh = [&](const Axes& axes) {
        if (!tried.insert(text_of(axes)).second) return;
        try {
            Tried one{axes, run_library(step_of(setting, axes), roomy(setting))};
            if (one.report.most_held() <= setting.cluster.memory_bytes)
                all.push_back(std::move(one));
        } catch (const UsageError&) {
            // Heads, tokens or sequences that such a mesh cannot deal out.
        }
    };
    for (int tp = 1; tp <= setting.devices; ++tp)
        for (int cp = 1; tp * cp <= setting.devices; ++cp) {
            const int dp = setting.devices / (tp * cp);
            if (dp * cp * tp != setting.devices) continue;
            Axes axes{{"cp", cp}, {"dp", dp}, {"tp", tp}};
            do {
                try_mesh(axes);
            } while (std::ranges::next_permutation(axes, {}, &Mesh::Axis::name).found);
        }
    std::ranges::stable_sort(all, {},
                             [](const Tried& one) { return one.report.makespan(); });
    return all;
}

}  // namespace lockstep::lessons::mesh
