#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gpu/nccl.hpp"
#include "gpu/rank_run.hpp"
#include "src/comm/communicator.hpp"

namespace lockstep::gpu {

/// A rank's side of a communicator between GPUs: NCCL's calls on a stream of its own,
/// ordered with the device's by events.
class Comm final : public Communicator {
  public:
    /// `ranks` are the members' ranks of the run; `number` is the communicator's in the
    /// log. Owns the handle unless it is lent.
    Comm(RankRun& run, const std::string& name, int rank, std::vector<int> ranks,
         int number, NcclHandle handle);
    Comm(RankRun& run, const std::string& name, int rank, std::vector<int> ranks,
         int number, NcclHandle* lent);
    ~Comm() override;

    /// Waits on the host until all that was launched is done.
    void finish();
    /// Waits on the host until every rank has called it; no part of what the program did.
    void meet();

  private:
    class Pending;

    Work do_launch(std::span<CommOperation> operations, SourceLine at) override;
    std::unique_ptr<Communicator> do_split(int color, int key, const std::string& name,
                                           SourceLine at) override;

    const NcclHandle& handle() const { return lent_ != nullptr ? *lent_ : own_; }
    // comm.cpp
    void set_aside(CommOperation& operation);
    void enqueue(const CommOperation& operation);
    void enqueue_barrier();
    // comm_blocks.cpp
    void enqueue_all_to_all(const CommOperation& operation);
    void enqueue_gather(const CommOperation& operation);
    void enqueue_scatter(const CommOperation& operation);
    [[maybe_unused]] void enqueue_message(Verb verb, const Tensor& buffer,
                                          std::int64_t begin, std::int64_t count,
                                          int peer);

    TraceEvent label_of(std::span<const CommOperation> operations, SourceLine at) const;
    void count(const CommOperation& operation);
    void let_go_of_finished();
    void wait_here();

    /// What a rank passes to a split.
    struct Place {
        std::int32_t color;
        std::int32_t key;
    };
    std::vector<Place> places_of_all(int color, int key);

    RankRun& run_;
    std::vector<int> ranks_;
    int number_;
    NcclHandle own_;
    NcclHandle* lent_ = nullptr;
    Stream stream_;
    Tensor token_;  ///< one element, for barriers
    TrafficByVerb* traffic_;
    /// What runs on the stream; holds its buffers.
    std::deque<boost::intrusive_ptr<Pending>> in_flight_;
};

}  // namespace lockstep::gpu
