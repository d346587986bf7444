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

/// Cuts n layers, which cost that much each, into so many parts of neighbours that the
/// dearest part is as cheap as can be, and then the others as even (by their squares, as
/// far as a double holds them). Each part has a layer at least. By dynamic programming,
/// in n * n * parts steps; the dearest part's cost is exact up to 2^53. Throws UsageError
/// if there are more parts than layers, or a cost is negative.
std::vector<LayerRange> cut_layers(const std::vector<std::int64_t>& costs, int parts);

/// Returns the cost of each layer's forward in a GPT, for `length` tokens and `batch`
/// sequences: the flops of its matrix products, which are nearly all.
std::vector<std::int64_t> gpt_layer_flops(const GptSizes& sizes, std::int64_t length,
                                          std::int64_t batch);

/// Its layers cut into a schedule's parts, balanced by those costs. Throws
/// UsageError if there are more parts than layers.
std::vector<LayerRange> cut_gpt(const GptSizes& sizes, const Schedule& schedule);

/// One device of a pipeline holds this of a GPT.
struct GptStage {
    std::vector<std::unique_ptr<Sequential>> chunks;
    /// This stage's table, if it has one and the GPT is tied and its first
    /// and last layer are on different stages. Else null.
    Parameter* tied = nullptr;

    std::vector<Module*> modules() const;
    std::vector<Parameter*> parameters() const;
};

/// Chunks of a stage, of the kit's parts; `cut` has the layers of each chunk's part of
/// the model. Throws UsageError if it has not as many as the schedule, or is not all of
/// the GPT; and for a tied GPT if the schedule updates weights before its end.
GptStage make_gpt_stage(const ParameterInit& init, const GptSizes& sizes,
                        const Schedule& schedule, int stage,
                        const std::vector<LayerRange>& cut, const GptKit& kit = {});

/// (s, b, h) between its parts, or the kit's stretch of the s tokens of a micro-batch.
PartBoundary gpt_boundary(const GptSizes& sizes, DType dtype, const GptKit& kit = {});

/// Ties the stage's table to its other copy: every rank of `line` calls it. Gives the
/// communicator of the two, to be kept as long as the pipeline and the table; null on
/// ranks that hold neither end. A step then has one all-reduce of the table more.
std::unique_ptr<Communicator> tie_gpt(Pipeline& pipeline, const GptStage& stage,
                                      const Schedule& schedule, Communicator& line,
                                      SourceLine at = SourceLine::here());

}  // namespace lockstep
