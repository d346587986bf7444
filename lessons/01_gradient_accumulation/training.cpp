#include "lessons/01_gradient_accumulation/training.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "src/parallel/data_parallel.hpp"
#include "src/report/compare.hpp"

namespace lockstep::lessons {

namespace {

bool is_parameter(const std::string& kept) {
    return !kept.starts_with("grad/") && !kept.starts_with("initial/");
}

std::vector<MicroBatch> upload(Device& device, const std::vector<HostBatch>& batches) {
    std::vector<MicroBatch> uploaded;
    for (const HostBatch& batch : batches)
        uploaded.push_back(
            {device.upload(batch.input), device.upload(batch.target), batch.weight});
    return uploaded;
}

}  // namespace

// lesson: training-loop
RunReport train(Cluster& cluster, const Training& training, Progress* progress) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model =
            training.make_model({device, training.dtype, training.seed, ""});
        const auto optimizer = training.make_optimizer(model->parameters());
        for (const Parameter* parameter : model->parameters())
            rank.keep("initial/" + parameter->name(), parameter->value);
        std::vector<MicroBatch> mine;
        for (int step = 0; step < training.steps; ++step) {
            if (step == 0 || !training.same_batches)
                mine = upload(device, training.batches(rank.index(), step));
            const Tensor loss =
                training.data_parallel
                    ? data_parallel_gradients(device, rank.world(), *model, training.loss,
                                              mine)
                    : accumulate_gradients(device, *model, training.loss, mine);
            rank.keep_value("loss", device.peek(loss).at(0));
            for (const Parameter* parameter : model->parameters())
                if (step == 0)
                    rank.keep("grad/" + parameter->name(), parameter->gradient);
            const PhaseScope phase(device, Phase::update);
            optimizer->step();
            if (progress && rank.index() == 0) progress->advance(step + 1);
        }
        for (const Parameter* parameter : model->parameters())
            rank.keep(parameter->name(), parameter->value);
    });
}
// lesson: end

std::vector<double> losses(const RunReport& report) {
    std::vector<double> sums;
    for (const RankReport& rank : report.ranks) {
        const std::vector<double>& share = rank.series.at("loss");
        sums.resize(share.size());
        for (std::size_t step = 0; step < share.size(); ++step)
            sums[step] += share[step];
    }
    return sums;
}

void record_variant(Record& record, const std::string& variant, const RunReport& report) {
    for (const auto& [name, tensor] : report.ranks.front().kept)
        if (!name.starts_with("initial/"))
            record.outputs.insert_or_assign(fmt::format("{}/{}", variant, name), tensor);
    const std::vector<double> curve = losses(report);
    record.outputs.insert_or_assign(
        variant + "/loss",
        HostTensor::of(Shape{static_cast<std::int64_t>(curve.size())}, curve));
    record.runs.emplace_back(variant, report);
}

void record_initial(Record& record, const std::string& task, const RunReport& report) {
    for (const auto& [name, tensor] : report.ranks.front().kept)
        if (name.starts_with("initial/"))
            record.inputs.insert_or_assign(fmt::format("{}/{}", task, name), tensor);
}

double parameter_difference(const RunReport& a, const RunReport& b) {
    const auto parameters_of = [](const RunReport& report) {
        NamedTensors parameters;
        for (const auto& [name, tensor] : report.ranks.front().kept)
            if (is_parameter(name)) parameters.emplace(name, tensor);
        return parameters;
    };
    const Comparison comparison =
        compare_tensors(parameters_of(a), parameters_of(b), std::nullopt);
    double worst = 0;
    for (const TensorDifference& tensor : comparison.tensors) {
        if (std::isnan(tensor.largest_relative)) return tensor.largest_relative;
        worst = std::max(worst, tensor.largest_relative);
    }
    return worst;
}

int replicas_that_differ(const RunReport& report) {
    const auto& first = report.ranks.front().kept;
    return static_cast<int>(std::count_if(
        report.ranks.begin(), report.ranks.end(), [&](const RankReport& rank) {
            return std::any_of(rank.kept.begin(), rank.kept.end(), [&](const auto& kept) {
                return is_parameter(kept.first) && !(kept.second == first.at(kept.first));
            });
        }));
}

}  // namespace lockstep::lessons
