#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/gradient_buckets.hpp"
#include "src/parallel/server_shares.hpp"

namespace lockstep {

/// Which ranks serve parameters, which ranks train, and how parameters are distributed.
struct ServerPlan {
    using Deal = ServerDeal;

    std::vector<int> servers{};  ///< ranks of the group
    std::vector<int> workers{};  ///< ranks of the group; all ranks if empty
    Deal deal = Deal::ranges;
    /// With smaller buckets, gradients are pushed while backward runs, and a server that
    /// is not a worker updates and answers bucket by bucket.
    BucketSizes sizes = BucketSizes::all_in_one();
};

/// Several synchronous parameter servers; each has a part of the parameters (Li et al.
/// 2014, Scaling Distributed Machine Learning with the Parameter Server, OSDI,
/// section 4.3). A worker pushes each gradient to the parameter's server. A server sums
/// the gradients of all workers and updates its part; then all workers pull new values.
///
///     ShardedServer sync(device, group, model.parameters(), {.servers = {0, 1}});
///     AdamW optimizer(sync.shards());
///     if (sync.works())
///         train_step(device, model, loss, micro_batches, sync, optimizer);
///     else
///         sync.serve(optimizer);
///
/// With n workers, k servers and S bytes of parameters: a worker that is not a server
/// sends and receives S; a server that is not a worker sends and receives n S / k. If
/// each worker serves one range, each rank sends and receives 2 (n-1)/n S in 2(n-1)
/// messages: this is a reduce-scatter and an all-gather, written by hand. If servers are
/// extra machines, the busiest link may carry less than in an all-reduce: n/k S instead
/// of 2 (n-1)/n S. Jiang et al. 2020 (BytePS, OSDI, section 3) use idle machines as
/// servers. Messages are sent in rounds. In a round each worker has at most one server,
/// and each server has at most one worker. So a push needs max(n, k) messages of S/k, one
/// after another, and so does a pull.
///
/// Pushes have one communicator and pulls another, so that an unanswered pull does not
/// block a push. All ranks use the two communicators in the same order, as NCCL requires.
/// If no server is a worker, a bucket's pull comes after the next bucket's push, so that
/// values travel while backward runs; otherwise all pulls come after all pushes. Values
/// become views of one buffer, gradients of another. A server that is not a worker keeps
/// only its part of these buffers. A server holds the arriving gradients (the other
/// ranks' terms of its part) until they are added.
class ShardedServer : public GradientBuckets {
  public:
    /// Each rank of the group calls this with the same plan. Throws UsageError if the
    /// plan names no server, names a rank twice, or names a rank outside the group.
    ShardedServer(Device& device, Communicator& group, std::vector<Parameter*> parameters,
                  const ServerPlan& plan);

    bool works() const { return place_in(workers_).has_value(); }
    bool serves() const { return place_in(servers_).has_value(); }
    /// Parameters that this rank serves. After finish() they have the batch's gradients.
    std::vector<Parameter*> shards() const override { return shares_->served(); }

    void begin() override;
    void finish() override;
    /// Throws UsageError if the optimizer has other parameters than shards().
    void update(Optimizer& optimizer) override;
    const char* unsaved() const override { return "the state that its servers have"; }
    /// Runs one step of a server that is not a worker.
    void serve(Optimizer& optimizer);

  private:
    /// A running message, and the gradients that it brings, if any.
    struct Push {
        Work work;
        Tensor arriving;
    };

    void start(std::size_t bucket) override;
    void add_up(std::size_t bucket);
    void answer(std::size_t bucket, Optimizer& optimizer);
    void pull(std::size_t bucket);
    void wait_for_pulls();

    /// The ranks with which this rank exchanges messages in a round: a server if this
    /// rank is a worker, a worker if this rank is a server.
    struct Partners {
        std::optional<int> server{};
        std::optional<int> worker{};
    };
    int rounds() const;
    Partners partners(std::size_t bucket, int round) const;
    std::optional<int> place_in(const std::vector<int>& ranks) const;

    Device& device_;
    Communicator& group_;
    std::unique_ptr<Communicator> pushes_by_;
    std::unique_ptr<Communicator> pulls_by_;
    std::vector<int> servers_;
    std::vector<int> workers_;
    bool answers_early_;
    std::unique_ptr<ServerShares> shares_;
    std::vector<std::vector<Push>> pushes_;  ///< by bucket
    std::vector<Work> pulls_;
};

}  // namespace lockstep
