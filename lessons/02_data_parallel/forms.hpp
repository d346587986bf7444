#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lessons/01_gradient_accumulation/tasks.hpp"
#include "lessons/01_gradient_accumulation/training.hpp"
#include "src/nn/gpt_kit.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/sharded_server.hpp"
#include "src/parallel/stale_server.hpp"

namespace lockstep::lessons {

// Forms of data parallelism: as ways to train, and as steps that are only measured.

/// The first `servers` devices serve the parameters, beside their work.
MakeStrategy servers_on_workers(int servers, ServerPlan::Deal deal);
MakeStrategy in_buckets(const BucketOptions& options);
/// Trains as nn.DataParallel does; `training` has the batches of device 0.
RunReport train_one_process(Cluster& cluster, const Training& training);

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
/// Layers without biases, each of width · width numbers.
MeasuredStep stack_step(int layers, std::int64_t width, std::int64_t rows);
/// GPT-2 of 124 million parameters; so many sequences of 1,024 tokens on each device, in
/// micro-batches of 4.
MeasuredStep gpt2_step(std::int64_t sequences);

/// Runs that many steps on virtual devices that compute shapes only.
RunReport measure(const MeasuredStep& step, int devices, const ClusterSpec& spec,
                  const MakeStrategy& strategy, int steps = 1, bool trace = false);
/// Runs `workers` with servers beside them, which are the first devices.
RunReport measure_servers(const MeasuredStep& step, int workers, int servers,
                          const ClusterSpec& spec, ServerPlan plan = {}, int steps = 1,
                          bool trace = false);
/// Runs nn.DataParallel; device 0 has all devices' rows.
RunReport measure_one_process(int devices, int layers, std::int64_t width,
                              std::int64_t rows, const ClusterSpec& spec, int steps = 1,
                              bool trace = false);

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

/// Training by an asynchronous server, with one worker slower than the others.
struct StaleTraining {
    std::vector<StaleUpdate> updates;
    RunReport report;
    /// The loss of a worker's micro-batch, and when the worker had computed it.
    struct Loss {
        Picoseconds time = 0;
        double loss = 0;
    };
    std::vector<Loss> losses;  ///< in the order of time
};
StaleTraining train_stale(const std::shared_ptr<const LanguageTask>& task,
                          const LessonOptions& options, const ClusterSpec& spec,
                          std::int64_t bound);

}  // namespace lockstep::lessons
