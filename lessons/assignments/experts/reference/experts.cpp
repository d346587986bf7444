#include "experts.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

using namespace lockstep;

namespace {

std::int64_t total(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

Tensor uploaded(Device& device, const Counts& counts) {
    HostTensor values({static_cast<std::int64_t>(counts.size())}, DType::i32);
    for (std::size_t i = 0; i < counts.size(); ++i)
        values.set(static_cast<std::int64_t>(i), static_cast<double>(counts[i]));
    return device.upload(values);
}

Counts downloaded(Device& device, const Tensor& counts) {
    const HostTensor values = device.download(counts);
    Counts all;
    for (std::int64_t i = 0; i < values.elements(); ++i)
        all.push_back(static_cast<std::int64_t>(values.at(i)));
    return all;
}

Tensor taken(Device& device, const Tensor& x, const Tensor& rows) {
    Tensor list = device.empty({rows.elements(), x.shape().columns()}, x.dtype());
    device.take_rows(list, x, rows);
    return list;
}

Tensor as_column(const Tensor& x) {
    return x.reshaped({x.elements(), 1});
}

/// Limits this rank's counts to the capacity that lower ranks have not used.
Counts kept(Rank& rank, const Counts& counts, std::int64_t capacity) {
    Device& device = rank.device();
    const auto experts = static_cast<std::int64_t>(counts.size());
    const Tensor gathered = device.empty({rank.size() * experts}, DType::i32);
    rank.world().all_gather(gathered, uploaded(device, counts)).wait();
    const Counts all = downloaded(device, gathered);
    Counts left = counts;
    for (std::size_t e = 0; e < counts.size(); ++e) {
        std::int64_t room = capacity;
        for (int before = 0; before < rank.index(); ++before)
            room -= all[static_cast<std::size_t>(before) * counts.size() + e];
        left[e] = std::clamp<std::int64_t>(room, 0, counts[e]);
    }
    return left;
}

/// Sorts the copies of tokens by expert, and keeps those for which there is room.
Counts sort_copies(Rank& rank, const Layer& layer, std::int64_t experts, Pass& pass) {
    Device& device = rank.device();
    const Tensor& ids = pass.chosen.ids;
    pass.places = device.empty({ids.elements()}, DType::i32);
    pass.tokens = device.empty({ids.elements()}, DType::i32);
    const Tensor on_device = device.empty({experts}, DType::i32);
    device.sort_ids(pass.places, pass.tokens, on_device, ids);
    const Counts counts = downloaded(device, on_device);
    if (layer.capacity == 0) return counts;

    Counts first;
    const Counts left = kept(rank, counts, layer.capacity);
    for (std::int64_t begin = 0, e = 0; e < experts; ++e) {
        const auto expert = static_cast<std::size_t>(e);
        for (std::int64_t i = 0; i < left[expert]; ++i)
            first.push_back(begin + i);
        begin += counts[expert];
    }
    const Tensor those = uploaded(device, first);
    pass.places = taken(device, as_column(pass.places), those);
    pass.tokens = taken(device, as_column(pass.tokens), those);
    return left;
}

/// Exchanges counts, so that a rank knows how many copies its experts get from each rank.
void plan(Rank& rank, const Counts& counts, std::size_t own_experts, Pass& pass) {
    Device& device = rank.device();
    const Tensor told =
        device.empty({static_cast<std::int64_t>(counts.size())}, DType::i32);
    rank.world().all_to_all(told, uploaded(device, counts)).wait();
    const Counts theirs = downloaded(device, told);  // by rank, then by own expert
    const auto sums = [&](const Counts& copies) {
        Counts by_rank(static_cast<std::size_t>(rank.size()));
        for (std::size_t i = 0; i < copies.size(); ++i)
            by_rank[i / own_experts] += copies[i];
        return by_rank;
    };
    pass.sent = sums(counts);
    pass.received = sums(theirs);
    pass.rows.assign(own_experts, 0);
    for (std::size_t i = 0; i < theirs.size(); ++i)
        pass.rows[i % own_experts] += theirs[i];

    Counts begins(theirs.size() + 1);
    std::partial_sum(theirs.begin(), theirs.end(), begins.begin() + 1);
    Counts by_expert, by_rank(static_cast<std::size_t>(begins.back()));
    for (std::size_t e = 0; e < own_experts; ++e)
        for (std::size_t i = e; i < theirs.size(); i += own_experts)
            for (std::int64_t row = begins[i]; row < begins[i + 1]; ++row) {
                by_rank[static_cast<std::size_t>(row)] =
                    static_cast<std::int64_t>(by_expert.size());
                by_expert.push_back(row);
            }
    pass.by_expert = uploaded(device, by_expert);
    pass.by_rank = uploaded(device, by_rank);
}

/// Sends copies to their experts, and sends the results of `work` back.
Tensor there_and_back(Rank& rank, const Pass& pass, const Tensor& copies,
                      const std::function<Tensor(std::size_t, const Tensor&)>& work) {
    Device& device = rank.device();
    const std::int64_t width = copies.shape().columns();
    const Tensor arrived = device.empty({total(pass.received), width}, copies.dtype());
    rank.world().all_to_all_v(arrived, pass.received, copies, pass.sent).wait();
    const Tensor sorted = taken(device, arrived, pass.by_expert);
    const Tensor made = device.empty(sorted.shape(), sorted.dtype());
    for (std::int64_t begin = 0, e = 0; e < static_cast<std::int64_t>(pass.rows.size());
         ++e) {
        const auto expert = static_cast<std::size_t>(e);
        const std::int64_t count = pass.rows[expert];
        if (count > 0)
            device.copy(made.rows(begin, count), work(expert, sorted.rows(begin, count)));
        begin += count;
    }
    const Tensor back = device.empty(copies.shape(), copies.dtype());
    rank.world()
        .all_to_all_v(back, pass.sent, taken(device, made, pass.by_rank), pass.received)
        .wait();
    return back;
}

}  // namespace

Chosen choose(Device& device, const Tensor& logits, std::int64_t chosen) {
    const Shape shape{logits.shape()[0], chosen};
    const Tensor ids = device.empty(shape, DType::i32);
    const Tensor picked = device.empty(shape, logits.dtype());
    device.top_k(picked, ids, logits, chosen);
    return {ids, device.softmax(picked)};
}

Tensor forward(Rank& rank, const Layer& layer, const Tensor& x, Pass& pass) {
    Device& device = rank.device();
    const Tensor logits = layer.gate->forward(x, pass.gate);
    pass.chosen = choose(device, logits, layer.chosen);
    const Counts counts = sort_copies(rank, layer, logits.shape()[1], pass);
    plan(rank, counts, layer.experts.size(), pass);
    pass.experts.resize(layer.experts.size());
    pass.made = there_and_back(rank, pass, taken(device, x, pass.tokens),
                               [&](std::size_t expert, const Tensor& rows) {
                                   return layer.experts[expert]->forward(
                                       rows, pass.experts[expert]);
                               });
    pass.weights = taken(device, as_column(pass.chosen.weights), pass.places);
    const Tensor weighted = device.empty(pass.made.shape(), x.dtype());
    device.copy(weighted, pass.made);
    device.scale_rows(weighted, pass.weights);
    Tensor y = device.zeros(x.shape(), x.dtype());
    device.add_rows(y, weighted, pass.tokens);
    return y;
}

Tensor backward(Rank& rank, const Layer& layer, const Tensor& dy, Pass& pass) {
    Device& device = rank.device();
    const Tensor d_made = taken(device, dy, pass.tokens);
    const Tensor products = device.empty(pass.weights.shape(), dy.dtype());
    device.row_products(products, d_made, pass.made);
    const Chosen& chosen = pass.chosen;
    const Tensor d_weights = device.zeros(chosen.weights.shape(), dy.dtype());
    device.add_rows(as_column(d_weights), products, pass.places);
    device.scale_rows(d_made, pass.weights);
    const Tensor d_copies =
        there_and_back(rank, pass, d_made, [&](std::size_t expert, const Tensor& rows) {
            return layer.experts[expert]->backward(rows, pass.experts[expert]);
        });

    const std::int64_t experts =
        rank.size() * static_cast<std::int64_t>(pass.rows.size());
    const Tensor d_logits = device.zeros({dy.shape()[0], experts}, dy.dtype());
    device.add_columns(d_logits, device.softmax_backward(chosen.weights, d_weights),
                       chosen.ids);
    Tensor dx = layer.gate->backward(d_logits, pass.gate);
    device.add_rows(dx, d_copies, pass.tokens);
    for (Parameter* parameter : layer.gate->parameters())
        rank.world().all_reduce(parameter->gradient).wait();
    return dx;
}
