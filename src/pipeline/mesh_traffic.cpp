#include "src/pipeline/mesh_traffic.hpp"

#include "src/core/require.hpp"
#include "src/parallel/context_traffic.hpp"

namespace lockstep {

namespace {

/// The quantities in the formulas.
struct Terms {
    const GptSizes& sizes;
    const MeshOptions& options;
    std::int64_t cp, tp;
    std::int64_t replicas;  ///< ranks with the same part of the parameters
    std::int64_t tokens;    ///< tokens of a micro-batch, on one rank
    MicroBatchShape shape;

    std::int64_t hidden() const { return sizes.block.hidden; }
    /// Bytes of one activation of a micro-batch, on one rank without SequenceParallel.
    std::int64_t activation() const { return tokens * hidden() * bytes_of(shape.dtype); }
};

/// Returns the bytes that a tensor group sends for one micro-batch, through all stages.
std::int64_t tensor_pass(const Terms& terms) {
    const std::int64_t at_block = terms.options.sequence ? 10 : 8;
    const std::int64_t at_head = terms.options.sequence ? 3 : 2;
    const std::int64_t statistics = bytes_of(computed_in(terms.shape.dtype));
    return (terms.tp - 1) *
           ((at_block * terms.sizes.layers + 2 + at_head) * terms.activation() +
            6 * terms.tokens * statistics);
}

/// Returns how many parameters every rank of a tensor group holds whole: parameters of
/// norms and positions, and biases that are added after a sum.
std::int64_t held_alike(const GptSizes& sizes) {
    const BlockSizes& block = sizes.block;
    const std::int64_t norm = block.hidden * (block.norm == NormKind::layer_norm ? 2 : 1);
    const std::int64_t behind_sums =
        block.bias ? block.hidden * (block.mlp == MlpKind::gelu ? 2 : 1) : 0;
    const std::int64_t positions =
        sizes.learns_positions() ? sizes.context * block.hidden : 0;
    return sizes.layers * (2 * norm + behind_sums) + norm + positions;
}

/// Returns how many rows of a table a tensor group holds together, with padding.
std::int64_t table_rows(const Terms& terms) {
    return (terms.sizes.vocabulary + terms.tp - 1) / terms.tp * terms.tp;
}

/// Returns the stage of each part of the model.
std::vector<int> stages_of_parts(const MeshPlan& plan) {
    const Schedule& schedule = plan.pipeline().schedule();
    require(schedule.part_count() == schedule.stages * schedule.chunks,
            "formulas of a mesh are known for schedules that have each part of the model "
            "on one stage; {} has some on two",
            plan.options().schedule);
    std::vector<int> stages(static_cast<std::size_t>(schedule.part_count()));
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (int chunk = 0; chunk < schedule.chunks; ++chunk)
            stages[static_cast<std::size_t>(schedule.part(stage, chunk))] = stage;
    return stages;
}

bool has_two_tables(const Terms& terms, const std::vector<int>& stages) {
    return !terms.sizes.tied || stages.front() != stages.back();
}

/// Returns how many parameters one replica's ranks hold together.
std::int64_t held_together(const Terms& terms, const std::vector<int>& stages) {
    const std::int64_t alike = held_alike(terms.sizes);
    const std::int64_t table = terms.sizes.vocabulary * terms.hidden();
    const std::int64_t without_tables =
        terms.sizes.parameters() - table * (terms.sizes.tied ? 1 : 2);
    return without_tables + (terms.tp - 1) * alike +
           (has_two_tables(terms, stages) ? 2 : 1) * table_rows(terms) * terms.hidden();
}

/// Returns how many numbers a rank sends in one block's attention, forward and backward.
std::int64_t attention_sent(const Terms& terms) {
    const BlockSizes& block = terms.sizes.block;
    const ContextShape shape{static_cast<int>(terms.cp),
                             terms.shape.length,
                             terms.shape.batch,
                             block.heads / terms.tp,
                             block.attention().key_heads() / terms.tp,
                             block.hidden / block.heads};
    return sent_forward(terms.options.context, shape).elements +
           sent_backward(terms.options.context, shape).elements;
}

/// Returns how many pairs of neighbouring parts are on different stages.
std::int64_t boundaries(const std::vector<int>& stages) {
    std::int64_t count = 0;
    for (std::size_t part = 1; part < stages.size(); ++part)
        count += stages[part] != stages[part - 1] ? 1 : 0;
    return count;
}

void require_formulas(const MeshPlan& plan) {
    const MeshOptions& options = plan.options();
    require(plan.sizes().block.experts.count == 0 && options.zero <= 1 && !options.sync &&
                options.recompute == MeshOptions::Recompute::nothing,
            "mesh_traffic: formulas are known for a GPT without experts and "
            "recomputation, and for ZeRO's stages 0 and 1");
}

Terms terms_of(const MeshPlan& plan, const MicroBatchShape& shape) {
    const std::int64_t cp = plan.size("cp");
    return {plan.sizes(),
            plan.options(),
            cp,
            plan.size("tp"),
            std::int64_t{plan.replicas()} * cp,
            shape.length / cp * shape.batch,
            shape};
}

}  // namespace

std::int64_t parameters_on_mesh(const MeshPlan& plan) {
    require(plan.sizes().block.experts.count == 0,
            "parameters_on_mesh: the formula is for a GPT without experts");
    const Terms terms = terms_of(plan, {});
    return terms.replicas * held_together(terms, stages_of_parts(plan));
}

MeshTraffic mesh_traffic(const MeshPlan& plan, const MicroBatchShape& shape) {
    const MeshOptions& options = plan.options();
    require_formulas(plan);
    const Terms terms = terms_of(plan, shape);
    const std::vector<int> stages = stages_of_parts(plan);
    const std::int64_t bytes = bytes_of(shape.dtype);
    // Each micro-batch passes through all stages once, on each rank along cp.
    const std::int64_t passes = plan.micro_batches() * terms.cp;
    // With ZeRO, a replica sums only its shard along the other axes.
    const std::int64_t sums = options.zero == 0 ? terms.replicas : 1;
    MeshTraffic traffic;
    traffic.tp = passes * tensor_pass(terms);
    if (options.sequence)
        traffic.tp += sums * 2 * (terms.tp - 1) * held_alike(terms.sizes) * bytes;
    traffic.cp = passes * terms.tp * terms.sizes.layers * attention_sent(terms) * bytes;
    const std::int64_t messages = passes * 2 * boundaries(stages) * terms.activation();
    const bool scattered = options.sequence || options.scatter_messages;
    traffic.pp = messages * (scattered ? 1 : terms.tp);
    if (options.scatter_messages && !options.sequence)
        traffic.tp += (terms.tp - 1) * messages;
    traffic.replicas = 2 * (terms.replicas - 1) * held_together(terms, stages) * bytes;
    if (terms.sizes.tied && has_two_tables(terms, stages))
        traffic.tied = sums * 2 * table_rows(terms) * terms.hidden() * bytes;
    return traffic;
}

namespace {

std::int64_t& axis_of(MeshTraffic& sent, const std::string& group) {
    if (group == "pp") return sent.pp;
    if (group == "cp") return sent.cp;
    if (group == "tp") return sent.tp;
    if (group == "tied") return sent.tied;
    // A line of dp, or a plane of the replicas: "dp x ep x cp".
    const bool of_replicas = group == "dp" || group.find(" x ") != std::string::npos;
    require(of_replicas,
            "mesh_traffic: {} is no group of a GPT on a mesh without experts", group);
    return sent.replicas;
}

}  // namespace

MeshTraffic mesh_traffic(const RunReport& report) {
    MeshTraffic sent;
    for (const RankReport& rank : report.ranks)
        for (const Traffic& traffic : rank.traffic)
            if (traffic.group != "world")
                axis_of(sent, traffic.group) += traffic.bytes_sent;
    return sent;
}

}  // namespace lockstep
