#include "adapters.hpp"
#include "lessons/assignments/given_batches.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

Shard shard_of(const TaskInputs& in) {
    return {in.tensor("x"), in.tensor("targets"), in.number("batch rows")};
}

using Gradient = Tensor (*)(Rank&, Module&, const Shard&, std::int64_t);

Task gradient(Gradient function) {
    return [function](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const auto network = given_network(rank.device(), in);
        out.tensors["loss"] =
            function(rank, *network, shard_of(in), in.number("most rows"));
        for (const Parameter* parameter : network->parameters())
            out.tensors[parameter->name()] = parameter->gradient;
    };
}

void train(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto network = given_network(rank.device(), in);
    out.tensors["losses"] =
        adapters::train(rank, *network, shard_of(in), in.number("most rows"),
                        in.integer("steps"), in_thousandths(in, "learning rate"));
    for (const Parameter* parameter : network->parameters())
        out.tensors[parameter->name()] = parameter->value;
}

}  // namespace

Tasks tasks() {
    return {{"shard_gradient", gradient(adapters::shard_gradient)},
            {"batch_gradient", gradient(adapters::batch_gradient)},
            {"train", train}};
}

}  // namespace lockstep
