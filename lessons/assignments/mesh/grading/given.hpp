#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/mesh/handout/adapters.hpp"
#include "src/comm/mesh_shape.hpp"
#include "src/core/philox.hpp"
#include "src/nn/flash_attention.hpp"

// The grader sends a job and a setting to a rank's process as numbers.

namespace lockstep::lessons::mesh {

using Numbers = std::map<std::string, std::int64_t>;

/// A job on a mesh.
struct GivenJob {
    Axes axes;
    GptSizes sizes{};
    DType dtype = DType::f64;  ///< bf16 in shapes-only runs
    std::int64_t seed = 1;
    int steps = 1;  ///< if there are several, gradients are clipped
    int sequences = 1;
    /// If true, uses SGD, whose step is proportional to the gradient; otherwise AdamW.
    bool by_sgd = false;
};

constexpr double kMostNorm = 0.3;
constexpr SgdOptions kSgd{0.5, 0, 0};
/// With so large an epsilon, the step depends on the gradient's size. With a small one,
/// AdamW would hide a wrong factor.
constexpr AdamWOptions kAdamW{0.02, 0.9, 0.999, 0.01, 0.1};

/// Visits a name as a number: its index in the list of all possible names.
template <typename Visit>
void each_number(std::string& name, const std::string& what,
                 const std::vector<std::string>& all, Visit visit) {
    auto place = std::ranges::find(all, name) - all.begin();
    visit(what, place);
    name = all.at(static_cast<std::size_t>(place));
}

template <typename Visit>
void each_number(GptSizes& sizes, Visit visit) {
    visit("vocabulary", sizes.vocabulary);
    visit("context", sizes.context);
    visit("layers", sizes.layers);
    visit("hidden", sizes.block.hidden);
    visit("heads", sizes.block.heads);
    visit("kv heads", sizes.block.kv_heads);
    visit("tied", sizes.tied);
}

template <typename Visit>
void each_number(GivenJob& job, Visit visit) {
    job.axes.resize(3);
    for (int place = 0; Mesh::Axis & axis : job.axes) {
        const std::string which = fmt::format("axis {}", place++);
        each_number(axis.name, which, {"dp", "cp", "tp"}, visit);
        visit("size of " + which, axis.size);
    }
    each_number(job.sizes, visit);
    visit("dtype", job.dtype);
    visit("seed", job.seed);
    visit("steps", job.steps);
    visit("sequences", job.sequences);
    visit("by sgd", job.by_sgd);
}

/// Returns a preset with this size of a node, memory (GB), and rate between nodes (MB/s).
inline ClusterSpec cluster_of(const std::string& preset, int devices_per_node,
                              std::int64_t memory, std::int64_t network) {
    ClusterSpec spec = load_cluster(preset + "-data-sheet");
    spec.name = preset;
    spec.devices_per_node = devices_per_node;
    spec.memory_bytes = memory * 1'000'000'000;
    spec.between.bytes_per_second = static_cast<double>(network) * 1e6;
    spec.host_copy = {};
    return spec;
}

/// Memory is sent in GB, and the network's rate in MB/s.
template <typename Visit>
void each_number(Setting& setting, Visit visit) {
    each_number(setting.sizes, visit);
    visit("sequences", setting.sequences);
    visit("devices", setting.devices);
    ClusterSpec& spec = setting.cluster;
    std::int64_t memory = spec.memory_bytes / 1'000'000'000;
    std::int64_t network = std::llround(spec.between.bytes_per_second * 1e-6);
    each_number(spec.name, "preset", cluster_preset_names(), visit);
    visit("devices per node", spec.devices_per_node);
    visit("memory", memory);
    visit("network", network);
    spec = cluster_of(spec.name, spec.devices_per_node, memory, network);
}

template <typename Given>
Numbers numbers_of(Given given) {
    Numbers numbers;
    each_number(given, [&](const std::string& name, const auto& value) {
        numbers[name] = static_cast<std::int64_t>(value);
    });
    return numbers;
}

template <typename Given>
Given from_numbers(const Numbers& numbers) {
    Given given;
    each_number(given, [&]<typename T>(const std::string& name, T& value) {
        value = static_cast<T>(numbers.at(name));
    });
    return given;
}

/// Returns the axes that have several ranks, in their order: "dp 2 x tp 4".
inline std::string text_of(Axes axes) {
    std::erase_if(axes, [](const Mesh::Axis& axis) { return axis.size == 1; });
    return axes.empty() ? "one rank" : MeshShape(axes).text();
}

/// Returns a random sequence; `index` counts the sequences of all steps.
inline Sequence drawn_sequence(const GivenJob& job, int index) {
    const RandomStream stream(static_cast<std::uint64_t>(job.seed),
                              fmt::format("sequence {}", index));
    const std::int64_t length = job.sizes.context;
    HostTensor tokens({length + 1, 1}, DType::i32);
    for (std::int64_t i = 0; i <= length; ++i)
        tokens.set(i,
                   static_cast<double>(stream.bits(static_cast<std::uint64_t>(i)) %
                                       static_cast<std::uint64_t>(job.sizes.vocabulary)));
    return {tokens.rows(0, length), tokens.rows(1, length)};
}

inline Job job_of(const GivenJob& given) {
    Job job;
    job.sizes = given.sizes;
    // FlashAttention does not store the attention weights.
    job.kit.core = [](Device& device, const AttentionSizes& sizes) {
        return std::make_unique<FlashAttention>(device, sizes);
    };
    job.dtype = given.dtype;
    job.seed = static_cast<std::uint64_t>(given.seed);
    job.most_norm = given.steps > 1 ? kMostNorm : 0;
    job.optimizer =
        [by_sgd = given.by_sgd](
            std::vector<Parameter*> parameters) -> std::unique_ptr<Optimizer> {
        if (by_sgd) return make_optimizer<Sgd>(std::move(parameters), kSgd);
        return make_optimizer<AdamW>(std::move(parameters), kAdamW);
    };
    for (int step = 0; step < given.steps; ++step) {
        std::vector<Sequence>& batch = job.batches.emplace_back();
        for (int i = 0; i < given.sequences; ++i)
            batch.push_back(drawn_sequence(given, step * given.sequences + i));
    }
    return job;
}

}  // namespace lockstep::lessons::mesh
