#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lessons/runner/gpt_task.hpp"
#include "src/inference/gpt_service.hpp"
#include "src/inference/service_report.hpp"
#include "src/inference/speculation.hpp"

namespace lockstep::lessons {

/// A GPT of the text's characters that `ranks` devices can share out, which then writes
/// on.
std::shared_ptr<const GptTask> make_inference_task(const LessonOptions& options,
                                                   int ranks);

/// Trains it by AdamW on one device; leaves what train does.
RunReport train_by_adamw(Cluster& cluster, const GptTask& task, const Advance& advance);

/// The weights of a GPT that was trained, whole, by their names; none without numbers.
struct TrainedGpt {
    GptSizes sizes;
    DType dtype = DType::f32;
    std::uint64_t seed = 1;
    NamedTensors weights;
};

/// Answers a request. Every rank leaves the logits of its columns under "logits/i", and
/// the first one "tokens". Without a cache a device computes all characters anew for each
/// token.
RunReport write_on(Cluster& cluster, const TrainedGpt& gpt, const Request& request,
                   bool cached);

/// Answers of a plan's devices, and how they came to them.
struct ServiceRun {
    std::vector<Served> served;      ///< of all replicas, by request
    std::vector<ServedPass> passes;  ///< of the first one
    RunReport report;

    std::int64_t rows() const;
    std::int64_t preemptions() const;
    /// The longest time from a request's token to the next, of those that pass `counts`.
    Picoseconds longest_gap(
        const std::function<bool(std::int64_t request)>& counts) const;
};
/// `gpt` may be null: without numbers weights do not matter.
ServiceRun run_service(Cluster& cluster, const ServicePlan& plan,
                       const std::vector<Request>& requests,
                       const TrainedGpt* gpt = nullptr);

/// Answers a request on one device, with drafts of another model.
SpeculationReport write_with_drafts(Cluster& cluster, const TrainedGpt& writer,
                                    const TrainedGpt& drafter, const Request& request,
                                    int drafts);

/// A pass of equal sequences, which have `before` tokens in the cache and `rows` new
/// ones.
struct EqualPass {
    std::int64_t sequences = 1;
    std::int64_t before = 0;
    std::int64_t rows = 1;
};
/// The time of a pass on devices that share out heads and columns, and what one holds, by
/// shapes alone.
struct PassCosts {
    double seconds = 0;
    std::int64_t weights = 0;  ///< bytes
    std::int64_t cache = 0;
};
PassCosts pass_costs(const GptSizes& sizes, const ClusterSpec& spec, int ways,
                     const EqualPass& pass);

/// The time of a round of a ring of stages, in which each of `groups` equal groups gets a
/// token for each of its sequences, which have about `before` tokens each.
PassCosts ring_costs(const GptSizes& sizes, const ClusterSpec& spec, int stages,
                     int groups, const EqualPass& pass);

/// The time of both all-to-alls of a layer of experts in a decode, where nothing else
/// takes time.
double exchange_seconds(const GptSizes& sizes, int ranks, double bytes_per_second,
                        std::int64_t tokens);

}  // namespace lockstep::lessons
