#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/mesh/handout/adapters.hpp"
#include "src/comm/mesh_shape.hpp"
#include "src/core/philox.hpp"
#include "src/nn/flash_attention.hpp"

// How a job and a setting go from the grader to a rank's process: as numbers.

namespace lockstep::lessons::mesh {

using Numbers = std::map<std::string, std::int64_t>;

/// What a job is made of, and what a rank leaves of it.
struct GivenJob {
    GptSizes sizes;
    DType dtype = DType::f64;
    std::int64_t seed = 1;
    int steps = 1;
    int sequences = 1;
    std::int64_t most_norm = 0;  ///< in thousandths
    /// Sgd, whose step is the gradient's; else AdamW.
    bool by_sgd = false;
    bool leaves_weights = true;
};

constexpr SgdOptions kSgd{0.5, 0, 0};
/// So large an epsilon that the gradient's size counts: AdamW forgives a factor
/// otherwise.
constexpr AdamWOptions kAdamW{0.02, 0.9, 0.999, 0.01, 0.1};

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
    each_number(job.sizes, visit);
    visit("dtype", job.dtype);
    visit("seed", job.seed);
    visit("steps", job.steps);
    visit("sequences", job.sequences);
    visit("most norm", job.most_norm);
    visit("by sgd", job.by_sgd);
    visit("leaves weights", job.leaves_weights);
}

/// In whole billions, millions and picoseconds, since no number on the line is large.
template <typename Visit>
void each_number(ClusterSpec& spec, Visit visit) {
    const auto scaled = [&](const char* name, auto& value, double unit) {
        std::int64_t whole = std::llround(static_cast<double>(value) / unit);
        visit(name, whole);
        value = static_cast<std::remove_reference_t<decltype(value)>>(
            static_cast<double>(whole) * unit);
    };
    constexpr double kMillion = 1e6, kBillion = 1e9, kPicosecond = 1e-12;
    scaled("flops f32", spec.flops_f32, kBillion);
    scaled("flops f64", spec.flops_f64, kBillion);
    scaled("flops bf16", spec.flops_bf16, kBillion);
    scaled("memory bytes a second", spec.memory_bytes_per_second, kMillion);
    scaled("memory bytes", spec.memory_bytes, kBillion);
    scaled("launch", spec.launch_seconds, kPicosecond);
    visit("devices per node", spec.devices_per_node);
    scaled("inside alpha", spec.inside.alpha_seconds, kPicosecond);
    scaled("inside bytes a second", spec.inside.bytes_per_second, kMillion);
    scaled("between alpha", spec.between.alpha_seconds, kPicosecond);
    scaled("between bytes a second", spec.between.bytes_per_second, kMillion);
    visit("network ports", spec.network_ports);
}

template <typename Visit>
void each_number(Setting& setting, Visit visit) {
    each_number(setting.sizes, visit);
    visit("sequences", setting.sequences);
    visit("devices", setting.devices);
    each_number(setting.cluster, visit);
}

template <typename Given>
Numbers numbers_of(Given given) {
    Numbers numbers;
    each_number(given, [&](const char* name, const auto& value) {
        numbers[name] = static_cast<std::int64_t>(value);
    });
    return numbers;
}

template <typename Given>
Given from_numbers(const Numbers& numbers) {
    Given given;
    each_number(given, [&]<typename T>(const char* name, T& value) {
        value = static_cast<T>(numbers.at(name));
    });
    return given;
}

inline Axes axes_from(const Numbers& numbers) {
    Axes axes(3);
    for (const char* name : {"dp", "cp", "tp"})
        axes.at(numbers.at(std::string("place of ") + name)) = {
            name, static_cast<int>(numbers.at(name))};
    return axes;
}

/// "dp 2 x tp 4": the axes that have several ranks, in their order.
inline std::string text_of(const Axes& axes) {
    std::vector<std::string> texts;
    for (const Mesh::Axis& axis : axes)
        if (axis.size > 1) texts.push_back(fmt::format("{} {}", axis.name, axis.size));
    return texts.empty() ? "one rank" : fmt::format("{}", fmt::join(texts, " x "));
}

/// A job on a mesh.
struct MeshCase {
    Axes axes;
    GivenJob job{};

    int ranks() const { return MeshShape(axes).ranks(); }
    int size(const std::string& axis) const { return MeshShape(axes).size(axis); }
    std::string name() const {
        std::string text = fmt::format("{}, {} sequences", text_of(axes), job.sequences);
        if (job.sizes.tied) text += ", tied";
        if (job.sizes.block.kv_heads > 0)
            text += fmt::format(", {} heads of keys", job.sizes.block.kv_heads);
        return text;
    }
    /// Axes stand among the numbers by their names, with their places.
    Numbers numbers() const {
        Numbers numbers = numbers_of(job);
        for (std::size_t place = 0; place < axes.size(); ++place) {
            numbers[axes[place].name] = axes[place].size;
            numbers["place of " + axes[place].name] = static_cast<std::int64_t>(place);
        }
        return numbers;
    }
};

/// Sequence `index` of all steps.
inline Sequence drawn_sequence(const GivenJob& job, int index) {
    const RandomStream stream(static_cast<std::uint64_t>(job.seed),
                              fmt::format("sequence {}", index));
    const auto token = [&](std::int64_t place) {
        return static_cast<double>(stream.bits(static_cast<std::uint64_t>(place)) %
                                   static_cast<std::uint64_t>(job.sizes.vocabulary));
    };
    const std::int64_t length = job.sizes.context;
    Sequence sequence{HostTensor({length, 1}, DType::i32),
                      HostTensor({length, 1}, DType::i32)};
    for (std::int64_t i = 0; i < length; ++i) {
        sequence.tokens.set(i, token(i));
        sequence.next.set(i, token(i + 1));
    }
    return sequence;
}

inline std::unique_ptr<Optimizer> given_optimizer(bool by_sgd,
                                                  std::vector<Parameter*> parameters) {
    if (by_sgd) return make_optimizer<Sgd>(std::move(parameters), kSgd);
    return make_optimizer<AdamW>(std::move(parameters), kAdamW);
}

/// Attention by the online softmax, which keeps no weights.
inline GptKit given_kit() {
    GptKit kit;
    kit.core = [](Device& device, const AttentionSizes& sizes) {
        return std::make_unique<FlashAttention>(device, sizes);
    };
    return kit;
}

inline Job job_of(const GivenJob& given) {
    Job job;
    job.sizes = given.sizes;
    job.kit = given_kit();
    job.dtype = given.dtype;
    job.seed = static_cast<std::uint64_t>(given.seed);
    job.most_norm = static_cast<double>(given.most_norm) / 1000;
    job.optimizer = [by_sgd = given.by_sgd](std::vector<Parameter*> parameters) {
        return given_optimizer(by_sgd, std::move(parameters));
    };
    for (int step = 0; step < given.steps; ++step) {
        std::vector<Sequence>& batch = job.batches.emplace_back();
        for (int i = 0; i < given.sequences; ++i)
            batch.push_back(drawn_sequence(given, step * given.sequences + i));
    }
    return job;
}

}  // namespace lockstep::lessons::mesh
