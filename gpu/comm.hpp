#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/channel.hpp"
#include "gpu/rank_run.hpp"
#include "src/comm/communicator.hpp"

namespace lockstep::gpu {

/// A rank's side of a communicator between GPUs. NCCL runs on its own stream; events let
/// this stream and the device's stream wait for each other.
///
/// Differs: NCCL's minimum and maximum ignore NaNs; the simulator's do not.
class Comm final : public Communicator {
  public:
    /// The world communicator of a run. `handle` must outlive the run.
    static std::unique_ptr<Comm> make_world(RankRun& run, NcclHandle& handle, int ranks);

    /// Waits on the host until every rank has called meet(), and exchanges a message with
    /// both neighbours in the ring of ranks. NCCL makes a connection at its first use,
    /// which takes long and is not part of the program's work. So this function makes the
    /// connections of NCCL's rings and trees, and the connections to neighbours.
    /// Connections for all-to-all, gather and scatter are made later, because these verbs
    /// use messages.
    void meet();

    /// Tells the run if a group of this communicator was never started.
    ~Comm() override;

  private:
    /// `made_at` is the line of the split, none for world.
    Comm(RankRun& run, Channel& channel, int rank, SourceLine made_at);

    Work do_launch(std::span<CommOperation> operations, SourceLine at) override;
    std::unique_ptr<Communicator> do_split(const SplitRequest& request,
                                           SourceLine at) override;
    BytesByVerb do_bytes_sent(SourceLine at) const override;

    RankRun& run(SourceLine at) const;
    Work launch(RankRun& run, std::span<CommOperation> operations, SourceLine at);
    std::unique_ptr<Communicator> split_in(RankRun& run, const SplitRequest& request,
                                           SourceLine at);
    static std::string names_of(std::span<const CommOperation> operations);
    TraceEvent label_of(std::span<const CommOperation> operations, SourceLine at) const;
    void count(const CommOperation& operation);
    void wait_here();

    // The calls of NCCL.
    void set_aside(CommOperation& operation);
    void enqueue(const CommOperation& operation);
    void enqueue_barrier();
    void enqueue_greetings(const Tensor& greeted);
    void enqueue_all_to_all(const CommOperation& operation);
    void enqueue_gather(const CommOperation& operation);
    void enqueue_scatter(const CommOperation& operation);
    [[maybe_unused]] void enqueue_message(Verb verb, const Tensor& buffer,
                                          std::int64_t begin, std::int64_t count,
                                          int peer);
    ncclComm_t nccl() const { return channel_.handle->get(); }
    cudaStream_t stream() const { return channel_.stream.get(); }

    /// The arguments that a rank passes to a split.
    struct Place {
        std::int32_t color;
        std::int32_t key;
    };
    std::vector<Place> places_of_all(int color, int key);
    /// Throws FaultError (F06) if the group has other members than this rank expects.
    void require_expected(const SplitRequest& request, const std::vector<int>& made,
                          SourceLine at) const;

    RunHandle handle_;
    RankRun& run_;      ///< valid if `handle_` is not null
    Channel& channel_;  ///< valid if `handle_` is not null
    SourceLine made_at_;
};

}  // namespace lockstep::gpu
