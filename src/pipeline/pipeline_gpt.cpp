#include "src/pipeline/pipeline_gpt.hpp"

#include <algorithm>
#include <limits>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// For each j: the cost of layers [0, j) cut into parts, and the layer with which the
/// last part begins.
struct Cuts {
    std::vector<double> cost;
    std::vector<std::vector<int>> begins;  ///< by part
};

/// Finds the cheapest cuts. A cut costs join(cost of earlier parts, cost of the last
/// part).
template <typename Join>
Cuts best_cuts(const std::vector<double>& sums, int parts, Join&& join) {
    const std::size_t ends = sums.size();
    Cuts cuts{std::vector<double>(ends, kImpossible), {}};
    cuts.cost[0] = 0;
    for (int part = 0; part < parts; ++part) {
        std::vector<double> cost(ends, kImpossible);
        std::vector<int> begin(ends, 0);
        for (std::size_t end = 1; end < ends; ++end)
            for (std::size_t from = 0; from < end; ++from) {
                const double sum = join(cuts.cost[from], sums[end] - sums[from]);
                if (sum >= cost[end]) continue;
                cost[end] = sum;
                begin[end] = static_cast<int>(from);
            }
        cuts.cost = std::move(cost);
        cuts.begins.push_back(std::move(begin));
    }
    return cuts;
}

}  // namespace

std::vector<LayerRange> cut_layers(const std::vector<std::int64_t>& costs, int parts) {
    require(parts >= 1 && static_cast<std::size_t>(parts) <= costs.size(),
            "{} layers cannot be cut into {} parts; each part needs one", costs.size(),
            parts);
    std::vector<double> sums{0};
    for (const std::int64_t cost : costs) {
        require(cost >= 0, "a layer costs {}; none may cost less than 0", cost);
        sums.push_back(sums.back() + static_cast<double>(cost));
    }

    const double dearest = best_cuts(sums, parts, [](double before, double last) {
                               return std::max(before, last);
                           }).cost.back();
    const Cuts even = best_cuts(sums, parts, [&](double before, double last) {
        return last > dearest ? kImpossible : before + last * last;
    });

    std::vector<LayerRange> ranges;
    int last = static_cast<int>(costs.size());
    for (int part = parts; part-- > 0;) {
        const int first = even.begins[part][last];
        ranges.push_back({first, last});
        last = first;
    }
    std::ranges::reverse(ranges);
    return ranges;
}

namespace {

/// Returns the multiplications for a token in an MLP, or in a gate and the experts that
/// it chooses.
std::int64_t mlp_products(const BlockSizes& block) {
    const ExpertSizes& experts = block.experts;
    const std::int64_t columns =
        experts.count > 0 ? experts.gate.chosen * block.expert_columns() + experts.shared
                          : block.inner_columns();
    return block.hidden * (experts.count + block.mlp_matrices() * columns);
}

}  // namespace

std::vector<std::int64_t> gpt_layer_flops(const GptSizes& sizes, std::int64_t length,
                                          std::int64_t batch) {
    const BlockSizes& block = sizes.block;
    const std::int64_t tokens = length * batch;
    const std::int64_t h = block.hidden;
    // The first term is queries, keys, values and output; the second is scores and
    // weighted sums of values.
    const std::int64_t keys = h / block.heads * block.attention().key_heads();
    std::int64_t attention = 4 * tokens * h * (h + keys) + 4 * tokens * length * h;
    if (const LatentSizes& latent = block.latent; latent.query_rank > 0)
        attention =
            2 * tokens *
            (latent_parameters(h, block.heads, latent) +
             length * block.heads * (latent.width + latent.rotary + latent.value));
    std::vector<std::int64_t> flops(static_cast<std::size_t>(sizes.layer_count()), 0);
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer)
        flops[static_cast<std::size_t>(sizes.first_block() + layer)] =
            attention + 2 * tokens * mlp_products(sizes.block_of(layer));
    flops.back() = 2 * tokens * h * sizes.vocabulary;
    return flops;
}

std::vector<LayerRange> cut_gpt(const GptSizes& sizes, const Schedule& schedule) {
    return cut_layers(gpt_layer_flops(sizes, sizes.context, 1), schedule.part_count());
}

std::vector<Module*> GptStage::modules() const {
    std::vector<Module*> list;
    for (const auto& chunk : chunks)
        list.push_back(chunk.get());
    return list;
}

std::vector<Parameter*> GptStage::parameters() const {
    std::vector<Parameter*> all;
    for (const auto& chunk : chunks) {
        const std::vector<Parameter*> part = chunk->parameters();
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

namespace {

void require_cut(const GptSizes& sizes, const Schedule& schedule,
                 const std::vector<LayerRange>& cut) {
    require(cut.size() == static_cast<std::size_t>(schedule.part_count()),
            "schedule '{}' has {} parts, but the GPT is cut into {}", schedule.name,
            schedule.part_count(), cut.size());
    int next = 0;
    for (const LayerRange& range : cut) {
        require(range.first == next && range.last >= range.first,
                "a part has layers {} to {} of the GPT; it is expected to "
                "begin with layer {}",
                range.first, range.last, next);
        next = range.last;
    }
    require(next == sizes.layer_count(), "the last part ends with layer {} of {}", next,
            sizes.layer_count());
}

/// Throws UsageError if a tied GPT is updated before the end: a table that two chunks
/// read has only one version at a time.
void require_end_updates(const GptSizes& sizes, const Schedule& schedule, int stage) {
    bool updated = false;
    for (const Instruction& work : schedule.of_stage(stage)) {
        updated = updated || work.kind == InstructionKind::optimizer_step;
        require(!sizes.tied || !updated || !has_micro_batch(work.kind),
                "schedule '{}' updates stage {}'s weights before its last micro-batch is "
                "done; a GPT whose head is tied to its table needs updates at the end "
                "only",
                schedule.name, stage);
    }
}

/// Returns the stages that hold the first and the last part.
std::vector<int> ends_of(const Schedule& schedule) {
    std::vector<int> ends(2);
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
            const int part = schedule.part(stage, chunk);
            if (part == 0) ends[0] = stage;
            if (part == schedule.last_part()) ends[1] = stage;
        }
    return ends;
}

}  // namespace

GptStage make_gpt_stage(const ParameterInit& init, const GptSizes& sizes,
                        const Schedule& schedule, int stage,
                        const std::vector<LayerRange>& cut, const GptKit& kit) {
    require_cut(sizes, schedule, cut);
    const std::vector<int> ends = ends_of(schedule);
    require_end_updates(sizes, schedule, stage);
    GptStage made;
    made.chunks.resize(static_cast<std::size_t>(schedule.chunks));
    // In order of parts, so that a head finds its table.
    Parameter* table = nullptr;
    for (int part = 0; part < schedule.part_count(); ++part)
        for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
            if (schedule.part(stage, chunk) != part) continue;
            const LayerRange& range = cut[part];
            auto& layers = made.chunks[chunk];
            layers = make_gpt_layers(init, sizes, range.first, range.last, kit, table);
            if (!table) table = find_parameter(*layers, init.child(kGptTable).name);
        }
    if (sizes.tied && ends[0] != ends[1]) made.tied = table;
    return made;
}

PartBoundary gpt_boundary(const GptSizes& sizes, DType dtype, const GptKit& kit) {
    return {
        [hidden = sizes.block.hidden, stretch = kit.stretch](const MicroBatch& batch) {
            const Shape& ids = batch.input.shape();
            return Shape{stretch.share_of(ids[0], "a GPT"), ids[1], hidden};
        },
        dtype};
}

std::unique_ptr<Communicator> tie_gpt(Pipeline& pipeline, const GptStage& stage,
                                      const Schedule& schedule, Communicator& line,
                                      SourceLine at) {
    const std::vector<int> ends = ends_of(schedule);
    if (ends[0] == ends[1]) return nullptr;
    auto sharers = line.subgroup(ends, "tied", at);
    if (sharers && stage.tied) pipeline.tie(*stage.tied, *sharers, at);
    return sharers;
}

}  // namespace lockstep
