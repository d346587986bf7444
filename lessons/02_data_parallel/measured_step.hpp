#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lessons/01_gradient_accumulation/training.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::lessons {

/// Every rank is a replica; `Sync`, made with these options, does the rest.
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

/// A step whose numbers are not computed.
struct MeasuredStep {
    std::function<std::unique_ptr<Module>(Device&)> make_model;
    std::function<MicroBatch(Device&)> make_batch;  ///< a micro-batch of each device
    Loss loss = mean_squared_error;
    int micro_batches = 1;  ///< of each device
    /// Without, SGD with momentum.
    std::function<std::unique_ptr<Optimizer>(std::vector<Parameter*>)> make_optimizer{};
    /// Changes parts of the model before a strategy does, and makes what has to stay as
    /// long as it.
    std::function<std::shared_ptr<void>(Device&, Module&)> around{};
};

/// Runs that many steps on virtual devices that compute shapes only.
RunReport measure(const MeasuredStep& step, int devices, const ClusterSpec& spec,
                  const MakeStrategy& strategy, int steps = 1, bool trace = false);

/// A run of so many steps.
using RunOfSteps = std::function<RunReport(int steps)>;
/// The third step of a run: what comes before the first one, and buckets that are filled
/// once more in the second, are no part of it.
class UsualStep {
  public:
    explicit UsualStep(const RunOfSteps& run) : two_(run(2)), three_(run(3)) {}

    Picoseconds time() const { return three_.makespan() - two_.makespan(); }
    /// How long a device does nothing.
    Picoseconds waiting(std::size_t device) const {
        return three_.ranks[device].time.waiting - two_.ranks[device].time.waiting;
    }
    /// Bytes that all devices together send.
    std::int64_t sent(Verb verb) const;
    /// Bytes between a device and its host.
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
