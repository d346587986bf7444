#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/nccl.hpp"
#include "gpu/stream.hpp"
#include "src/comm/communicator.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::gpu {

struct RankRun;

/// A run's communicators and pending work keep this pointer; it is null after the run.
using RunHandle = std::shared_ptr<RankRun*>;

/// A launch: the buffers of its operations, and the event at its end.
class LaunchedWork final : public PendingWork {
  public:
    /// A launch of communications, with this number in the log.
    LaunchedWork(RunHandle run, std::int64_t number, std::span<CommOperation> operations);
    /// A copy between the device and its host. wait() blocks the program until the copy's
    /// end.
    LaunchedWork(RunHandle run, const Tensor& destination, const Tensor& source);

    void wait(SourceLine at) override;
    /// Blocks the host, because the host must know which work is done.
    std::size_t wait_any(std::span<PendingWork* const> works, SourceLine at) override;
    bool done() const { return end.done(); }

    Event end;

  private:
    void release() noexcept override { delete this; }
    void wait_in(RankRun& run, SourceLine at);

    RunHandle run_;
    std::optional<std::int64_t> number_;  ///< in the log; none for a copy
    std::vector<Tensor> buffers_;
};

/// A stream with its launches in flight. The launches keep their buffers alive.
struct LaunchQueue {
    Stream stream{Stream::Priority::urgent};
    std::deque<boost::intrusive_ptr<LaunchedWork>> in_flight;

    /// Records the end of `work` in the stream and returns the work.
    Work launched(const boost::intrusive_ptr<LaunchedWork>& work);
    void let_go_of_finished();
};

/// A communicator's connection to the other GPUs. It lives until the end of the run: a
/// program may drop its communicator at any time, but all ranks must take part when
/// NCCL's communicator is destroyed.
struct Channel : LaunchQueue {
    NcclHandle own;                ///< destroyed before the stream
    NcclHandle* handle = nullptr;  ///< `own`, or a handle that outlives the run
    std::string name;
    std::vector<int> ranks;  ///< ranks of the run, by member
    int number = 0;          ///< in the log
    Tensor token;            ///< one element, for barriers
    TrafficByVerb traffic{};
};

}  // namespace lockstep::gpu
