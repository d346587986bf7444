#include "src/trial/case.hpp"

#include "src/core/require.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

namespace {

TokenOrder order_of(Deal deal) {
    return deal == Deal::striped  ? TokenOrder::striped
           : deal == Deal::zigzag ? TokenOrder::zigzag
                                  : TokenOrder::contiguous;
}

}  // namespace

Deal in_order(TokenOrder order) {
    return order == TokenOrder::striped  ? Deal::striped
           : order == TokenOrder::zigzag ? Deal::zigzag
                                         : Deal::contiguous;
}

Part part_dealt(Deal deal, const Shape& whole, int rank, int ranks) {
    if (deal == Deal::whole) return whole_part(whole);
    if (deal == Deal::columns) {
        require(whole.columns() % ranks == 0,
                "the columns of {} cannot be divided equally over {} ranks", whole,
                ranks);
        const std::int64_t share = whole.columns() / ranks;
        return column_part(whole, rank * share, share);
    }
    const TokenDeal tokens{order_of(deal), ranks, rank};
    const std::int64_t share = tokens.share_of(whole[0], "dealing rows");
    const TokenRows own = tokens.own(share);
    // The matrix has `each` rows per token: one for each sequence.
    const std::int64_t each = matrix_rows(whole) / whole[0];
    Part part{whole, whole.with_first(share), {}, 0};
    for (std::int64_t token = 0; token < share; ++token)
        part.rows.push_back({token * each, own[token] * each, each});
    return part;
}

namespace {

TaskInputs inputs_of(Rank& rank, const Case& given) {
    TaskInputs in;
    in.numbers = given.numbers;
    for (const auto& [name, input] : given.inputs) {
        const HostTensor& whole = input.whole;
        const Part part =
            part_dealt(input.deal, whole.shape(), rank.index(), rank.size());
        const HostTensor shard = shard_of(whole, part);
        in.parts.emplace(name, part);
        in.tensors.emplace(
            name, rank.device().upload(is_floating(shard.dtype()) ? shard.as(given.dtype)
                                                                  : shard));
    }
    return in;
}

void keep_outputs(Rank& rank, const TaskOutputs& out) {
    if (!rank.device().has_numbers()) return;
    for (const auto& [name, tensor] : out.tensors) {
        const auto part = out.parts.find(name);
        if (part == out.parts.end())
            rank.keep(name, tensor);
        else
            rank.keep(name, tensor, part->second);
    }
    for (const auto& [name, value] : out.values)
        rank.keep(name, rank.device().upload(value));
}

}  // namespace

Outcome outcome_of(Cluster& cluster, const Task& task, const Case& given,
                   Mistakes mistakes) {
    return outcome_of(
        cluster,
        [&](Rank& rank) {
            TaskOutputs out;
            task(rank, inputs_of(rank, given), out);
            keep_outputs(rank, out);
        },
        mistakes);
}

void pass_through(Module& module, const TaskInputs& in, TaskOutputs& out,
                  Backward backward) {
    const auto leave = [&](const std::string& name, const Tensor& tensor, Part part) {
        if (!tensor) return;
        out.tensors.insert_or_assign(name, tensor);
        out.parts.insert_or_assign(name, std::move(part));
    };
    zero_gradients(module);
    Saved saved;
    const Tensor y = module.forward(in.tensor("x"), saved);
    if (!in.tensors.contains("dy")) {
        out.tensors.emplace("y", y);
        return;
    }
    leave("y", y, in.parts.at("dy"));
    const Tensor& dy = in.tensor("dy");
    if (backward == Backward::whole) {
        leave("dx", module.backward(dy, saved), in.parts.at("x"));
    } else {
        leave("dx", module.backward_input(dy, saved), in.parts.at("x"));
        module.backward_weight(saved);
    }
    for (const Parameter* parameter : module.parameters()) {
        leave("value/" + parameter->name(), parameter->value, parameter->part());
        leave("grad/" + parameter->name(), parameter->gradient, parameter->part());
    }
}

}  // namespace lockstep
