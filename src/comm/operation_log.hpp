#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/comm/operation.hpp"

namespace lockstep {

/// A rank's call of a communicator. For a launch, this includes the request.
struct LoggedCall : CommRequest {
    enum class Kind : std::uint8_t { launch, wait, split };

    Kind kind = Kind::launch;
    /// 0 is world. Communicators made by this rank's splits are numbered from 1, in the
    /// order of the splits.
    int communicator = 0;
    /// The number of the launch; of a wait, the number of the launch that it waits for.
    /// Operations launched together share one number.
    std::int64_t work = 0;

    SplitRequest split;  ///< of a split
};

/// A rank's calls, in program order.
struct RankLog {
    int ranks = 1;  ///< number of ranks of the cluster
    std::vector<LoggedCall> calls;
    bool ended = false;     ///< the rank's program has ended
    bool complete = false;  ///< no call was dropped
};

/// Records a rank's calls of its communicators, so that a run that hangs can be repeated
/// and explained on virtual devices. Only the rank writes; any thread may read. Only the
/// last kMostCalls calls are kept.
class OperationLog {
  public:
    static constexpr std::size_t kMostCalls = std::size_t{1} << 16;

    /// Logs one rank of a cluster with `ranks` ranks.
    explicit OperationLog(int ranks) : ranks_(ranks) {}

    /// Returns the launch's number. Until launch_returned() the rank is inside the
    /// launch: if the launch waits for other ranks, so does the rank.
    std::int64_t launched(int communicator, std::span<const CommOperation> operations);
    void launch_returned();
    void waited(std::int64_t work, SourceLine at);
    /// Returns the number of the communicator that the split makes.
    int split(int communicator, const SplitRequest& request, SourceLine at);
    void ended();

    /// Returns the log for another process, which reads it with read_log.
    std::string bytes() const;

  private:
    void add(LoggedCall call);

    int ranks_;
    mutable std::mutex mutex_;
    std::deque<LoggedCall> calls_;
    std::int64_t launches_ = 0;
    std::optional<SourceLine> inside_launch_;
    int communicators_ = 0;
    bool ended_ = false;
    bool complete_ = true;
};

/// Throws UsageError if `bytes` is not a log.
RankLog read_log(const std::string& bytes);

/// "all_reduce(sum, 1000 x f32)", "wait", "split".
std::string text_of(const LoggedCall& call);

}  // namespace lockstep
