// Shows your program on all meshes of a few settings: what a device holds, how long a
// step takes, and your choice of mesh. Then shows a step on eight devices as a timeline.

#include <algorithm>
#include <cstdio>
#include <set>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/core/units.hpp"
#include "src/course/not_written.hpp"
#include "src/course/show_run.hpp"
#include "src/nn/flash_attention.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t kGB = 1'000'000'000;

struct Sample {
    const char* name;
    Setting setting;
};

Sample sample(const char* name, const char* preset, int devices_per_node,
              std::int64_t memory_gb) {
    Sample made{name, {}};
    GptSizes& sizes = made.setting.sizes;
    sizes.vocabulary = 32'000;
    sizes.layers = 8;
    made.setting.devices = 8;
    made.setting.cluster = load_cluster(preset);
    made.setting.cluster.devices_per_node = devices_per_node;
    made.setting.cluster.memory_bytes = memory_gb * kGB;
    return made;
}

std::vector<Sample> samples() {
    Sample wide = sample("A wide model on two nodes of four", "v100-data-sheet", 4, 16);
    wide.setting.sizes.vocabulary = 50'000;
    wide.setting.sizes.context = 2048;
    wide.setting.sizes.block = {.hidden = 6144, .heads = 48, .kv_heads = 8};
    wide.setting.sequences = 4;
    Sample nodes =
        sample("Four nodes of four, and a slow network", "a100-data-sheet", 4, 24);
    nodes.setting.devices = 16;
    nodes.setting.sizes.context = 12'288;
    nodes.setting.sizes.block = {.hidden = 4096, .heads = 32};
    nodes.setting.sequences = 4;
    nodes.setting.cluster.between.bytes_per_second = 12.5e9;
    Sample context =
        sample("Long sequences on a node of eight", "a100-data-sheet", 8, 24);
    context.setting.sizes.context = 32'768;
    context.setting.sizes.block = {.hidden = 6144, .heads = 48, .kv_heads = 8};
    context.setting.sequences = 2;
    return {wide, nodes, context};
}

/// Returns a job of one step for a setting. All its tokens are 0: values do not matter.
Job step_of(const Setting& setting) {
    Job job;
    job.sizes = setting.sizes;
    job.kit.core = [](Device& device, const AttentionSizes& sizes) {
        return std::make_unique<FlashAttention>(device, sizes);
    };
    job.dtype = DType::bf16;
    const HostTensor tokens({setting.sizes.context, 1}, DType::i32);
    job.batches = {std::vector<Sequence>(setting.sequences, {tokens, tokens})};
    job.optimizer = [](std::vector<Parameter*> parameters) {
        return make_optimizer<AdamW>(std::move(parameters), AdamWOptions{});
    };
    return job;
}

std::string text_of(const Axes& axes) {
    std::string text;
    for (const Mesh::Axis& axis : axes)
        if (axis.size > 1)
            text +=
                fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
    return text;
}

struct Line {
    std::string mesh;
    Picoseconds time = 0;
    std::int64_t held = 0;
    std::string refused;
};

Line try_mesh(const Setting& setting, const Axes& axes) {
    const Job job = step_of(setting);
    sim::ClusterOptions options;
    options.ranks = setting.devices;
    options.spec = setting.cluster;
    options.spec.memory_bytes = 0;
    options.spec.host_copy = {};
    options.numbers = false;
    try {
        const RunReport report = sim::make_cluster(options)->run(
            [&](Rank& rank) { adapters::train(rank, job, axes); });
        return {text_of(axes), report.makespan(), report.most_held(), ""};
    } catch (const UsageError& error) {
        return {text_of(axes), 0, 0, error.what()};
    }
}

std::vector<Line> try_all(const Setting& setting) {
    std::vector<Line> lines;
    std::set<std::string> tried;
    for (int tp = 1; tp <= setting.devices; ++tp)
        for (int cp = 1; tp * cp <= setting.devices; ++cp) {
            const int dp = setting.devices / (tp * cp);
            if (dp * cp * tp != setting.devices || setting.sequences % dp != 0) continue;
            Axes axes{{"cp", cp}, {"dp", dp}, {"tp", tp}};
            do {
                if (tried.insert(text_of(axes)).second)
                    lines.push_back(try_mesh(setting, axes));
            } while (std::ranges::next_permutation(axes, {}, &Mesh::Axis::name).found);
        }
    std::ranges::stable_sort(lines, {}, &Line::time);
    return lines;
}

void show(const Sample& sample) {
    const Setting& setting = sample.setting;
    fmt::print(
        "{}: {:.1f} billion parameters, {} sequences of {} tokens, {} GB a "
        "device\n\n",
        sample.name, static_cast<double>(setting.sizes.parameters()) * 1e-9,
        setting.sequences, setting.sizes.context, setting.cluster.memory_bytes / kGB);
    std::string chosen;
    try {
        chosen = text_of(adapters::choose(setting));
    } catch (const NotWritten& missing) {
        fmt::print("not written yet: {}\n", missing.what());
    }
    for (const Line& line : try_all(setting)) {
        if (!line.refused.empty()) continue;
        fmt::print("  {:<22}{:>10}{:>9.1f} GB{}{}\n", line.mesh, time_text(line.time),
                   static_cast<double>(line.held) * 1e-9,
                   line.held > setting.cluster.memory_bytes ? "  does not fit" : "",
                   line.mesh == chosen ? "  <- your choice" : "");
    }
    fmt::print("\n");
}

int show_timeline() {
    Setting setting;
    setting.sizes = {256, 256, 2, {.hidden = 256, .heads = 8}};
    setting.sequences = 4;
    const Job job = step_of(setting);
    sim::ClusterOptions options;
    options.ranks = 8;
    options.spec = load_cluster("classroom");
    options.spec.devices_per_node = 4;
    options.trace = true;
    options.check = sim::CheckLevel::full;
    const Axes axes{{"dp", 2}, {"cp", 2}, {"tp", 2}};
    return show_run(
        *sim::make_cluster(options),
        [&](Rank& rank) { adapters::train(rank, job, axes); }, "mesh");
}

}  // namespace

int main() {
    try {
        for (const Sample& each : samples())
            show(each);
    } catch (const NotWritten& missing) {
        fmt::print(stderr, "not written yet: {}\n", missing.what());
        return 1;
    } catch (const FaultError& mistake) {
        fmt::print(stderr, "{}\n", mistake.diagnosis().text());
        return 1;
    }
    return show_timeline();
}
