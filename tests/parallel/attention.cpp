#include "tests/parallel/attention.hpp"

namespace lockstep::test {

HostTensor Problem::x() const {
    HostTensor values = normal_values({tokens, batch, columns()}, "x");
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, scale * values.at(i));
    return values.as(dtype);
}

Case Problem::dealt(TokenOrder order) const {
    const Deal deal = in_order(order);
    return {{{"x", {x(), deal}},
             {"dy", {normal_values({tokens, batch, sizes.heads * width}, "dy"), deal}}},
            {},
            dtype};
}

Outcome attend_by(const Problem& problem, int ranks, TokenOrder order,
                  const MakeAttending& make, sim::CheckLevel check, Passes passes) {
    const Task task = [&](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        pass_through(*make(rank.device(), rank.world()), in, out);
    };
    Case given = problem.dealt(order);
    if (passes == Passes::forward) given.inputs.erase("dy");
    return outcome_of(*classroom(ranks, true, check), task, given);
}

Outcome attend_alone(const Problem& problem) {
    return attend_by(problem, 1, TokenOrder::contiguous,
                     [&](Device& device, Communicator&) {
                         return std::make_unique<CoreAttention>(device, problem.sizes);
                     });
}

Outcome attend_shared(const Problem& problem, int ranks, ContextMethod method,
                      TokenOrder order, sim::CheckLevel check) {
    return attend_by(
        problem, ranks, order,
        [&](Device& device, Communicator& group) {
            return make_context_attention(method, device, group, problem.sizes, order);
        },
        check);
}

sim::ClusterOptions shapes_only(int ranks) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.numbers = false;
    return options;
}

RunReport attend_zeros(const Problem& problem, ContextMethod method, TokenOrder order,
                       Passes passes, sim::ClusterOptions options) {
    return sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto attention =
            make_context_attention(method, device, rank.world(), problem.sizes, order);
        const std::int64_t share = problem.tokens / rank.size();
        const Tensor x =
            device.zeros({share, problem.batch, problem.columns()}, problem.dtype);
        Saved saved;
        const Tensor y = attention->forward(x, saved);
        if (passes == Passes::both)
            attention->backward(device.zeros(y.shape(), y.dtype()), saved);
    });
}

}  // namespace lockstep::test
