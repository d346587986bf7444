#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/nn/gpt.hpp"
#include "src/pipeline/pipeline.hpp"

namespace lockstep {

/// Layers [first, last) of a model.
struct LayerRange {
    int first = 0;
    int last = 0;
    bool operator==(const LayerRange&) const = default;
};

/// Cuts n layers with these costs into `parts` parts of neighbouring layers, at least one
/// layer each. The most expensive part is as cheap as possible; after that, the sum of
/// the squared costs is as small as possible, as far as a double can tell. Takes n * n *
/// parts steps (dynamic programming). The cost of the most expensive part is exact up to
/// 2^53. Throws UsageError if there are more parts than layers, or a cost is negative.
std::vector<LayerRange> cut_layers(const std::vector<std::int64_t>& costs, int parts);

/// Returns the cost of each layer's forward in a GPT, for `length` tokens and `batch`
/// sequences: the flops of its matrix products, which are nearly all of its flops.
std::vector<std::int64_t> gpt_layer_flops(const GptSizes& sizes, std::int64_t length,
                                          std::int64_t batch);

/// Cuts a GPT's layers into a schedule's parts, balanced by gpt_layer_flops(). Throws
/// UsageError if there are more parts than layers.
std::vector<LayerRange> cut_gpt(const GptSizes& sizes, const Schedule& schedule);

/// The layers of a GPT that one device of a pipeline holds.
struct GptStage {
    std::vector<std::unique_ptr<Sequential>> chunks;
    /// The stage's table, if the GPT is tied and its first and last layer are on
    /// different stages. Null in all other cases.
    Parameter* tied = nullptr;

    std::vector<Module*> modules() const;
    std::vector<Parameter*> parameters() const;
};

/// Makes a stage's chunks from the kit. `cut` has the layers of each part of the model.
/// Throws UsageError if `cut` does not have the schedule's number of parts or does not
/// cover the whole GPT, or if the schedule of a tied GPT updates before its end.
GptStage make_gpt_stage(const ParameterInit& init, const GptSizes& sizes,
                        const Schedule& schedule, int stage,
                        const std::vector<LayerRange>& cut, const GptKit& kit = {});

/// Returns the boundary between a GPT's parts: (s, b, h) for a micro-batch. If the kit
/// shards tokens, s is this rank's share of them.
PartBoundary gpt_boundary(const GptSizes& sizes, DType dtype, const GptKit& kit = {});

/// Ties the stage's table to the other copy of the table. Every rank of `line` calls it.
/// Returns the communicator of the two stages; it must outlive the pipeline and the
/// table. Returns null on ranks that hold neither end, and if one stage holds both ends.
/// Each step then has one more all-reduce, of the table's gradient.
std::unique_ptr<Communicator> tie_gpt(Pipeline& pipeline, const GptStage& stage,
                                      const Schedule& schedule, Communicator& line,
                                      SourceLine at = SourceLine::here());

}  // namespace lockstep
