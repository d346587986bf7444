#include "lessons/01_gradient_accumulation/training.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/parallel/placement.hpp"

namespace lockstep::lessons {

namespace {

bool is_parameter(const std::string& kept) {
    return !kept.starts_with("grad/") && !kept.starts_with("initial/");
}

/// In a shapes-only run, keeps the gradients: their shapes show what was reduced.
void keep_shapes(Rank& rank, Module& model) {
    if (rank.device().has_numbers()) return;
    for (const Parameter* parameter : model.parameters())
        if (parameter->gradient)
            rank.keep("grad/" + parameter->name(), parameter->gradient);
}

}  // namespace

std::unique_ptr<GradientSync> all_reduce_strategy(Rank& rank, Module& model) {
    declare_replicas_of(rank.world(), model);
    return std::make_unique<AllReduceSync>(model.parameters());
}

std::vector<MicroBatch> upload(Device& device, const std::vector<HostBatch>& batches) {
    std::vector<MicroBatch> uploaded;
    uploaded.reserve(batches.size());
    for (const HostBatch& batch : batches)
        uploaded.push_back(
            {device.upload(batch.input), device.upload(batch.target), batch.weight});
    return uploaded;
}

// lesson: training-program
RunReport train(Cluster& cluster, const Training& training, const Advance& advance) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model =
            training.make_model({device, training.dtype, training.seed, ""});
        const auto sync = training.strategy
                              ? training.strategy(rank, *model)
                              : std::make_unique<AllReduceSync>(model->parameters());
        const auto optimizer = training.make_optimizer(sync->shards());
        std::vector<MicroBatch> mine;
        const auto step = [&](int i) {
            if (i == 0 || !training.same_batches)
                mine = upload(device, training.batches(rank.index(), i));
            return train_step(device, *model, training.loss, mine, *sync, *optimizer);
        };
        const bool is_whole = static_cast<bool>(model->parameters().front()->value);
        train(rank, {is_whole ? model->parameters() : sync->shards(), sync->shards()},
              training.steps, step, advance);
        keep_shapes(rank, *model);
    });
}
// lesson: end

void record_variant(Record& record, const std::string& variant, const RunReport& report) {
    for (const auto& [name, tensor] : all_kept(report))
        if (!name.starts_with("initial/"))
            record.outputs.insert_or_assign(fmt::format("{}/{}", variant, name), tensor);
    const std::vector<double> curve = losses_of(report);
    record.outputs.insert_or_assign(
        variant + "/loss",
        HostTensor::of(Shape{static_cast<std::int64_t>(curve.size())}, curve));
    record.runs.emplace_back(variant, report);
}

void record_initial(Record& record, const std::string& task, const RunReport& report) {
    for (const auto& [name, tensor] : all_kept(report))
        if (name.starts_with("initial/"))
            record.inputs.insert_or_assign(fmt::format("{}/{}", task, name), tensor);
}

double parameter_difference(const RunReport& a, const RunReport& b) {
    const auto parameters_of = [](const RunReport& report) {
        NamedTensors parameters = all_kept(report);
        std::erase_if(parameters,
                      [](const auto& kept) { return !is_parameter(kept.first); });
        return parameters;
    };
    const NamedTensors ours = parameters_of(a);
    return ours.empty() ? 0 : difference(ours, parameters_of(b)).relative;
}

int replicas_that_differ(const RunReport& report) {
    const auto& first = report.ranks[0].kept;
    return static_cast<int>(std::count_if(
        report.ranks.begin(), report.ranks.end(), [&](const RankReport& rank) {
            return std::any_of(rank.kept.begin(), rank.kept.end(), [&](const auto& kept) {
                return is_parameter(kept.first) && !(kept.second == first.at(kept.first));
            });
        }));
}

}  // namespace lockstep::lessons
