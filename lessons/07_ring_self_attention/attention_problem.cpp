#include "lessons/07_ring_self_attention/attention_problem.hpp"

#include "src/nn/flash_attention.hpp"
#include "src/trial/values.hpp"

namespace lockstep::lessons {

namespace {

/// Returns this rank's rows of `whole`.
Tensor dealt(Device& device, const TokenDeal& deal, const AttentionProblem& problem,
             HostTensor (AttentionProblem::*whole)() const, std::int64_t columns) {
    const std::int64_t share = deal.share_of(problem.tokens, "attention");
    const Shape shape{share, problem.batch, columns};
    if (problem.shapes_alone) return device.empty(shape, problem.dtype);
    return device.upload(device.has_numbers() ? dealt_rows((problem.*whole)(), deal)
                                              : HostTensor(shape, problem.dtype));
}

/// Keeps a tensor, unless the run has shapes only.
void keep(Rank& rank, const char* name, const Tensor& tensor) {
    if (rank.device().has_numbers()) rank.keep(name, tensor);
}

}  // namespace

HostTensor AttentionProblem::x() const {
    return normal_values({tokens, batch, columns()}, "attention/x", dtype, seed);
}

HostTensor AttentionProblem::dy() const {
    return normal_values({tokens, batch, sizes.heads * width}, "attention/dy", dtype,
                         seed);
}

ContextShape AttentionProblem::shared_out_to(int ranks) const {
    return {ranks, tokens, batch, sizes.heads, sizes.key_heads(), width};
}

RunReport run_attention(Cluster& cluster, const AttentionProblem& problem,
                        TokenOrder order, const MakeRankAttention& make, Passes passes) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const TokenDeal deal{order, rank.size(), rank.index()};
        const auto attention = make(device, rank.world());
        const Tensor x =
            dealt(device, deal, problem, &AttentionProblem::x, problem.columns());
        Saved saved;
        if (passes == Passes::forward) {
            keep(rank, "y", attention->forward(x, saved));
            return;
        }
        {
            const PhaseScope phase(device, Phase::forward);
            keep(rank, "y", attention->forward(x, saved));
        }
        const Tensor dy = dealt(device, deal, problem, &AttentionProblem::dy,
                                problem.sizes.heads * problem.width);
        const PhaseScope phase(device, Phase::backward);
        keep(rank, "dx", attention->backward(dy, saved));
    });
}

RunReport run_method(Cluster& cluster, const AttentionProblem& problem,
                     ContextMethod method, TokenOrder order, Passes passes) {
    return run_attention(
        cluster, problem, order,
        [&](Device& device, Communicator& group) {
            return make_context_attention(method, device, group, problem.sizes, order);
        },
        passes);
}

RunReport run_core(Cluster& cluster, const AttentionProblem& problem) {
    return run_attention(
        cluster, problem, TokenOrder::contiguous, [&](Device& device, Communicator&) {
            return std::make_unique<CoreAttention>(device, problem.sizes);
        });
}

RunReport run_flash(Cluster& cluster, const AttentionProblem& problem) {
    return run_attention(
        cluster, problem, TokenOrder::contiguous, [&](Device& device, Communicator&) {
            return std::make_unique<FlashAttention>(device, problem.sizes);
        });
}

HostTensor whole_kept(const RunReport& report, const std::string& name,
                      TokenOrder order) {
    std::vector<HostTensor> rows;
    for (const RankReport& rank : report.ranks)
        rows.push_back(rank.kept.at(name));
    return whole_sequence(rows, order);
}

std::int64_t largest_that(const std::function<bool(std::int64_t)>& holds) {
    std::int64_t yes = 0, no = 1;
    while (holds(no)) {
        yes = no;
        no *= 2;
    }
    while (no - yes > 1) {
        const std::int64_t middle = yes + (no - yes) / 2;
        (holds(middle) ? yes : no) = middle;
    }
    return yes;
}

}  // namespace lockstep::lessons
