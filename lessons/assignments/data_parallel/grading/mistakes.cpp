#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/data_parallel/grading/dealt_batch.hpp"

namespace lockstep::lessons::data_parallel {

std::int64_t DealtBatch::rows() const {
    return std::accumulate(shards.begin(), shards.end(), std::int64_t{0});
}

std::string DealtBatch::name() const {
    return fmt::format("{} rank{} with {} rows, {} at once{}", ranks(),
                       ranks() == 1 ? "" : "s", fmt::join(shards, ", "), most_rows,
                       held == 0 ? "" : fmt::format(", gradients of {} before", held));
}

NetworkTensors mean_of(const NetworkTensors& network,
                       const std::vector<ClassifiedRows>& shards) {
    MeanLoss mean = mean_loss(kLayers, network, shards);
    mean.gradients.emplace("loss", HostTensor::of<double>({1}, std::vector{mean.loss}));
    return std::move(mean.gradients);
}

namespace {

NetworkTensors draw_network(const Judge& judge, const DealtBatch& batch) {
    const std::map<std::string, Shape> shapes{
        {"hidden.weight", {batch.hidden, batch.features}},
        {"hidden.bias", {batch.hidden}},
        {"output.weight", {batch.classes, batch.hidden}},
        {"output.bias", {batch.classes}}};
    NetworkTensors network;
    for (const auto& [name, shape] : shapes)
        network.emplace(name, judge.normal(batch.name() + ", " + name, shape));
    return network;
}

std::vector<ClassifiedRows> draw_shards(const Judge& judge, const DealtBatch& batch) {
    std::vector<ClassifiedRows> shards;
    for (const std::int64_t rows : batch.shards)
        shards.push_back(
            draw_rows(judge, fmt::format("{}, rank {}", batch.name(), shards.size()),
                      rows, batch.features, batch.classes));
    return shards;
}

/// A shard's micro-batches, if each but the last has as many rows as it may.
std::vector<ClassifiedRows> micro_batches_of(const ClassifiedRows& shard,
                                             std::int64_t most_rows) {
    std::vector<ClassifiedRows> micro_batches;
    const std::int64_t rows = shard.targets.elements();
    for (std::int64_t begin = 0; begin < rows; begin += most_rows) {
        const std::int64_t count = std::min(most_rows, rows - begin);
        micro_batches.push_back(
            {shard.x.rows(begin, count), shard.targets.rows(begin, count)});
    }
    return micro_batches;
}

}  // namespace

Mistakes::Mistakes(const Judge& judge, const DealtBatch& batch)
    : batch_(batch),
      training_{kLayers, draw_network(judge, batch), draw_shards(judge, batch), kSteps,
                kLearningRate} {}

double Mistakes::share(std::size_t rank) const {
    return static_cast<double>(batch_.shards[rank]) / static_cast<double>(batch_.rows());
}

std::string Mistakes::in_shard(const std::string& tensor, const OfRanks& left) const {
    Suspect held{
        "what the gradients held before the call is in them: nobody has set "
        "them to zero",
        {}};
    Suspect means{
        "that is the mean of the micro-batches' means: a micro-batch's mean "
        "counts for its part of the shard's rows",
        {}};
    Suspect sum_of_means{
        "that is the sum of the micro-batches' means: each counts for "
        "its part of the shard's rows",
        {}};
    Suspect sum{"that is the sum over the rows; their mean is asked", {}};
    Suspect last{
        "only the last micro-batch's part is there: each one adds to what those "
        "before it left",
        {}};
    Suspect of_batch{
        "that is divided by the rows of all shards; shard_gradient gives "
        "the mean over the shard's own",
        {}};
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        const HostTensor own = mean_of(network(), {shards()[rank]}).at(tensor);
        const HostTensor zeros(own.shape(), DType::f64);
        HostTensor ones = zeros;
        for (std::int64_t i = 0; i < ones.elements(); ++i)
            ones.set(i, 1);
        OfRanks each{zeros};
        for (const auto& micro_batch : micro_batches_of(shards()[rank], batch_.most_rows))
            each.push_back(mean_of(network(), {micro_batch}).at(tensor));
        const auto count = static_cast<double>(std::max<std::size_t>(each.size() - 1, 1));
        const auto rows = static_cast<double>(batch_.shards[rank]);
        const std::int64_t rest = batch_.shards[rank] % batch_.most_rows;
        const auto rows_of_last =
            static_cast<double>(rest == 0 ? batch_.most_rows : rest);
        held.left.push_back(
            weighted_sum({own, ones}, {1, static_cast<double>(batch_.held)}));
        means.left.push_back(weighted_sum(each, std::vector(each.size(), 1 / count)));
        sum_of_means.left.push_back(weighted_sum(each, std::vector(each.size(), 1.0)));
        sum.left.push_back(weighted_sum({own}, {rows}));
        last.left.push_back(
            weighted_sum({each.back()}, {rows_of_last / std::max(rows, 1.0)}));
        of_batch.left.push_back(weighted_sum({own}, {share(rank)}));
    }
    if (tensor == "loss") held.left.clear();
    return suspected(left, {held, means, sum_of_means, sum, last, of_batch});
}

std::string Mistakes::in_batch(const std::string& tensor, const OfRanks& left) const {
    const HostTensor expected = mean_of(network(), shards()).at(tensor);
    std::string said = suspected_sum(left, expected);
    if (!said.empty()) return said;

    OfRanks own;
    own.reserve(ranks());
    for (const ClassifiedRows& shard : shards())
        own.push_back(mean_of(network(), {shard}).at(tensor));
    const auto n = static_cast<double>(ranks());
    const auto with_rows = static_cast<double>(
        std::ranges::count_if(batch_.shards, [](std::int64_t rows) { return rows > 0; }));
    const HostTensor sum = weighted_sum(own, std::vector(ranks(), 1.0));
    const auto on_all = [&](double factor, const HostTensor& of) {
        return OfRanks(ranks(), weighted_sum({of}, {factor}));
    };
    const std::string means =
        "that is the mean of the ranks' means: a rank's mean counts for its part of the "
        "batch's rows";
    return suspected(
        left, {{means, on_all(1 / n, sum)},
               {means, on_all(1 / with_rows, sum)},
               {"that is the sum of the ranks' means: each counts for its part of the "
                "batch's rows",
                on_all(1, sum)},
               {"that is the sum over all rows; their mean is asked",
                on_all(static_cast<double>(batch_.rows()), expected)},
               {"that is the mean over each rank's own rows: an all-reduce is missing, "
                "and the weights of the ranks",
                own}});
}

std::string Mistakes::in_losses(const OfRanks& left) const {
    SgdTraining longer = training_;
    ++longer.steps;
    const std::vector<double> losses = longer.alone().losses;
    const auto from = [](const std::vector<double>& all, int first) {
        return HostTensor::of<double>(
            {kSteps}, std::vector(all.begin() + first, all.begin() + first + kSteps));
    };
    std::string said = suspected_sum(left, from(losses, 0));
    if (!said.empty()) return said;
    Suspect own{"these are the mean losses of each rank's own rows", {}};
    for (const ClassifiedRows& shard : shards()) {
        std::vector<double> of_shard;
        training_.by(kSteps, [&](const NetworkTensors& network) {
            of_shard.push_back(mean_loss(kLayers, network, {shard}).loss);
            return mean_loss(kLayers, network, shards()).gradients;
        });
        own.left.push_back(from(of_shard, 0));
    }
    return suspected(left, {own,
                            {"these are the losses with the parameters that each step "
                             "ended with",
                             OfRanks(ranks(), from(losses, 1))}});
}

}  // namespace lockstep::lessons::data_parallel
