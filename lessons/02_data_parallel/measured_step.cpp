#include "lessons/02_data_parallel/measured_step.hpp"

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

RunReport measure(const MeasuredStep& step, int devices, const ClusterSpec& spec,
                  const MakeStrategy& strategy, int steps, bool trace) {
    return make_shapes_only_cluster(devices, spec, trace)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = step.make_model(device);
        const auto around = step.around ? step.around(device, *model) : nullptr;
        const auto sync = strategy(rank, *model);
        const auto optimizer =
            step.make_optimizer
                ? step.make_optimizer(sync->shards())
                : std::make_unique<Sgd>(sync->shards(), SgdOptions{0.1, 0.9, 0});
        const std::vector<MicroBatch> batches(
            static_cast<std::size_t>(step.micro_batches), step.make_batch(device));
        for (int i = 0; i < steps; ++i)
            train_step(device, *model, step.loss, batches, *sync, *optimizer);
        sync->wait_for_values();
    });
}

std::int64_t UsualStep::sent(Verb verb) const {
    std::int64_t bytes = 0;
    for (const auto& [report, sign] : {std::pair{&three_, 1}, std::pair{&two_, -1}})
        for (const RankReport& rank : report->ranks)
            bytes += sign * rank.bytes_sent_by(name_of(verb));
    return bytes;
}

UsualStep usual_step(const MeasuredStep& step, int devices, const ClusterSpec& spec,
                     const MakeStrategy& strategy) {
    return UsualStep(
        [&](int steps) { return measure(step, devices, spec, strategy, steps); });
}

}  // namespace lockstep::lessons
