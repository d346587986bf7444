#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lessons/01_gradient_accumulation/training.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::lessons {

/// Makes the strategy `Sync` with these options. Every rank is a replica.
template <typename Sync, typename... Options>
MakeStrategy synced_by(const Options&... options) {
    return [=](Rank& rank, Module& model) {
        declare_replicas_of(rank.world(), model);
        return std::make_unique<Sync>(rank.device(), rank.world(), model.parameters(),
                                      options...);
    };
}
inline MakeStrategy in_buckets(const BucketOptions& options) {
    return synced_by<BucketedDataParallel>(options);
}

/// A training step that is measured without numbers, by shapes only.
struct MeasuredStep {
    std::function<std::unique_ptr<Module>(Device&)> make_model;
    std::function<MicroBatch(Device&)> make_batch;  ///< makes a device's micro-batch
    Loss loss = mean_squared_error;
    int micro_batches = 1;  ///< on each device
    /// If empty: SGD with momentum.
    std::function<std::unique_ptr<Optimizer>(std::vector<Parameter*>)> make_optimizer{};
    /// Changes parts of the model before the strategy does. The returned object lives
    /// until the run ends.
    std::function<std::shared_ptr<void>(Device&, Module&)> around{};
};

/// Runs `steps` steps on virtual devices that compute shapes only.
RunReport measure(const MeasuredStep& step, int devices, const ClusterSpec& spec,
                  const MakeStrategy& strategy, int steps = 1, bool trace = false);

/// Runs `steps` steps.
using RunOfSteps = std::function<RunReport(int steps)>;
/// The costs of the third step of a run: without the preparations before the first step,
/// and without the rebuilding of buckets in the second.
class UsualStep {
  public:
    explicit UsualStep(const RunOfSteps& run) : two_(run(2)), three_(run(3)) {}

    Picoseconds time() const { return three_.makespan() - two_.makespan(); }
    /// The time that a device spends waiting.
    Picoseconds waiting(std::size_t device) const {
        return three_.ranks[device].time.waiting - two_.ranks[device].time.waiting;
    }
    /// Bytes that all devices together send by that verb.
    std::int64_t sent(Verb verb) const;
    /// Bytes from a device to its host.
    std::int64_t to_host(std::size_t device) const {
        return three_.ranks[device].host.bytes_to_host -
               two_.ranks[device].host.bytes_to_host;
    }
    std::int64_t to_device(std::size_t device) const {
        return three_.ranks[device].host.bytes_to_device -
               two_.ranks[device].host.bytes_to_device;
    }
    const RunReport& run() const { return three_; }

  private:
    RunReport two_, three_;
};
UsualStep usual_step(const MeasuredStep& step, int devices, const ClusterSpec& spec,
                     const MakeStrategy& strategy);

}  // namespace lockstep::lessons
