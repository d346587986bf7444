#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/channel.hpp"
#include "gpu/rank_run.hpp"
#include "src/comm/communicator.hpp"

namespace lockstep::gpu {

/// A rank's side of a communicator between GPUs: NCCL's calls on a stream of its own,
/// ordered with the device's by events.
///
/// Differs: NCCL's minimum and maximum pass over NaNs, the simulator's do not.
class Comm final : public Communicator {
  public:
    /// The world of a run, over a handle that outlives it.
    static std::unique_ptr<Comm> make_world(RankRun& run, NcclHandle& handle, int ranks);

    /// Waits on the host until every rank has called it, and exchanges a message with the
    /// neighbours in the ring of ranks. NCCL makes its connections when they are first
    /// used, which takes long and is no part of what the program did: from now on those
    /// of its rings and trees, and to neighbours, are there. All-to-all, gather and
    /// scatter go by messages.
    void meet();

    /// Tells the run where a group of it was never started.
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

    /// A rank passes this to a split.
    struct Place {
        std::int32_t color;
        std::int32_t key;
    };
    std::vector<Place> places_of_all(int color, int key);
    /// FaultError (F06) where the split made something else than this rank expects.
    void require_expected(const SplitRequest& request, const std::vector<int>& made,
                          SourceLine at) const;

    RunHandle handle_;
    RankRun& run_;      ///< while `handle_` says so
    Channel& channel_;  ///< likewise
    SourceLine made_at_;
};

}  // namespace lockstep::gpu
