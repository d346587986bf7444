#include "lessons/02_column_linear/pass.hpp"

#include "lessons/02_column_linear/matrices.hpp"
#include "src/comm/expect.hpp"
#include "src/nn/part.hpp"

namespace lockstep::lessons {

namespace {

void load(Device& device, Module& model, const NamedTensors& weights) {
    for (const Parameter* parameter : model.parameters()) {
        const auto whole = weights.find(parameter->name());
        if (whole == weights.end()) continue;
        device.upload_into(parameter->value,
                           shard_of(whole->second, parameter->part()));
    }
}

HostTensor held_by(const Rank& rank, const HostTensor& whole,
                   bool own_columns) {
    return own_columns ? columns_of_rank(whole, rank.index(), rank.size())
                       : whole;
}

}  // namespace

RunReport pass(Cluster& cluster, const Task& task) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = task.regions(rank);
        const auto model =
            task.make({device, task.x.dtype(), task.seed, ""}, *tp);
        load(device, *model, task.weights);
        const auto keep = [&](const std::string& name,
                              const Tensor& tensor) {
            if (task.keeps) rank.keep(name, tensor);
        };
        for (const Parameter* parameter : model->parameters())
            keep("initial/" + parameter->name(), parameter->value);
        const Tensor x =
            device.upload(held_by(rank, task.x, task.own_columns_of_x));
        const Tensor dy =
            device.upload(held_by(rank, task.dy, task.own_columns_of_dy));

        Saved saved;
        {
            const PhaseScope phase(device, Phase::forward);
            const ByteCount sent(rank.world());
            keep("y", model->forward(x, saved));
            rank.keep_value("forward", static_cast<double>(sent.bytes()));
        }
        {
            const PhaseScope phase(device, Phase::backward);
            const ByteCount sent(rank.world());
            keep("dx", model->backward(dy, saved));
            rank.keep_value("backward", static_cast<double>(sent.bytes()));
        }
        for (const Parameter* parameter : model->parameters())
            keep("grad/" + parameter->name(), parameter->gradient);
    });
}

const HostTensor& kept(const RunReport& report, int rank,
                       const std::string& name) {
    return report.ranks[rank].kept.at(name);
}

std::vector<HostTensor> kept_by_all(const RunReport& report,
                                    const std::string& name) {
    std::vector<HostTensor> tensors;
    for (const RankReport& rank : report.ranks)
        tensors.push_back(rank.kept.at(name));
    return tensors;
}

std::int64_t bytes_of_half(const RunReport& report, int rank,
                           const std::string& half) {
    return static_cast<std::int64_t>(
        report.ranks[rank].series.at(half).at(0));
}

NamedTensors whole_gradients(const RunReport& report, const Task& task) {
    const WholeParameters parts(
        static_cast<int>(report.ranks.size()),
        [&](Rank& rank, const WholeParameters::Show& show) {
            TensorParallel tp(rank.device(), rank.world());
            show(*task.make({rank.device(), task.x.dtype(), 0, ""}, tp));
        });
    NamedTensors whole;
    for (auto& [name, tensor] : parts.put_together(report, "grad/"))
        whole.emplace("grad/" + name, std::move(tensor));
    return whole;
}

std::int64_t differing_side_by_side(const RunReport& together,
                                    const RunReport& alone,
                                    const std::string& name) {
    return differing(side_by_side(kept_by_all(together, name)),
                     kept(alone, 0, name));
}

std::int64_t differing_on_any(const RunReport& together,
                              const HostTensor& expected,
                              const std::string& name) {
    std::int64_t count = 0;
    for (const HostTensor& whole : kept_by_all(together, name))
        count += differing(whole, expected);
    return count;
}

std::int64_t differing_gradients(const RunReport& together,
                                 const RunReport& alone, const Task& task) {
    std::int64_t count = 0;
    for (const auto& [name, whole] : whole_gradients(together, task))
        count += differing(whole, kept(alone, 0, name));
    return count;
}

}  // namespace lockstep::lessons
