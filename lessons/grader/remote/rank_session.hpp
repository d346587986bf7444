#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include "lessons/grader/remote/frames.hpp"
#include "lessons/grader/remote/request.hpp"
#include "lessons/grader/task_run.hpp"
#include "src/comm/rank.hpp"
#include "src/core/wire.hpp"

namespace lockstep::lessons {

/// The process that runs the task.
class RankProcess {
  public:
    virtual ~RankProcess() = default;
    virtual Frames& frames() = 0;
    /// Returns how long the process has computed, or had work but no processor; nothing
    /// if that is not known.
    virtual std::optional<double> busy_seconds() = 0;
    /// How the process ended. If it still runs, ending() ends it.
    struct End {
        std::string sentence;
        bool out_of_time = false;
    };
    virtual End ending() = 0;
    /// Ends a process that still runs.
    virtual void kill() = 0;
};

/// How long a run may last. A busy machine does not shorten this time: a rank's own
/// processor time has its own limit (Confinement), the grader's is counted here, and the
/// clock on the wall counts only while a rank is idle.
struct RunLimits {
    double grader_seconds = 20;     ///< of this process, for what all ranks request
    double idle_seconds = 10;       ///< of each rank
    double all_idle_seconds = 120;  ///< of all ranks in all runs
};

/// The grader's end of the line. It carries out the requests of the rank's process on the
/// rank's device and communicators; each call has its usual checks and costs. So
/// everything is measured here, and the process can only send requests. The checks of
/// arguments, here and in devices and communicators, are a trust boundary: they work for
/// any integers, without overflow.
class RankSession final : public TensorNames {
  public:
    /// The run began when this process had used `begun` seconds of processor time. Adds
    /// the time in which the rank is idle to `all_idle`.
    RankSession(Rank& rank, RankProcess& process, const RunLimits& limits, double begun,
                double& all_idle);
    ~RankSession() override;

    /// Runs the task to its end. Throws TaskEnded, or what devices and communicators
    /// throw.
    RankResult run(const RankTask& task);

    TensorOnWire named(const Tensor& tensor) override;
    Tensor found(const TensorOnWire& tensor) override;
    SourceLine source_line(const std::string& file, int line) override;

  private:
    // Limits for one run. The reference solutions stay far below these limits: they make
    // at most 998 of the 200,000 requests.
    static constexpr std::int64_t kMostRequests = 200'000;
    static constexpr int kMostOpenPhases = 64;
    static constexpr std::size_t kMostLeft = 256;
    static constexpr std::int64_t kMostBytesLeft = std::int64_t{64} << 20;
    static constexpr std::size_t kMostHeld = 20'000;  ///< of each kind of object
    static constexpr std::size_t kMostInGroup = 4096;
    static constexpr std::size_t kLongestName = 1000;
    static constexpr std::size_t kMostAxes = 16;
    /// The limit of the cost of one attention: queries times keys, over all batches and
    /// heads, times (the width plus a constant for other work).
    static constexpr double kMostAttention = 1 << 30;
    /// The limit of the same cost if only shapes are computed: up to here, the number of
    /// flops does not overflow.
    static constexpr double kMostAttentionOfShapes = 0x1p54;

    void start(const RankTask& task);
    std::string receive();
    void answer(WireWriter& out);
    /// Carries out one request. Returns false if the task has returned.
    bool serve(WireReader& in);
    bool serve_told(RankRequest request, WireReader& in);
    void serve_asked(RankRequest request, WireReader& in, WireWriter& out);
    void empty(WireReader& in, WireWriter& out);
    void upload_into(WireReader& in);
    void read(RankRequest request, WireReader& in, WireWriter& out);
    void perform(WireReader& in, WireWriter& out);
    void launch(WireReader& in, WireWriter& out);
    void wait_any(WireReader& in, WireWriter& out);
    void all_to_all_v(WireReader& in, WireWriter& out);
    void split(WireReader& in, WireWriter& out);
    void say_of_replicas(RankRequest request, WireReader& in);
    void declare_values(WireReader& in);
    void finish(WireReader& in);
    [[noreturn]] void rethrow(WireReader& in) const;
    [[noreturn]] void end_of_line();
    /// Returns the end of the next short wait for the process.
    Frames::Clock::time_point next_glance();
    /// Ends the run if the line is closed or the rank has been idle for too long; else
    /// the grader waits on.
    void be_patient();
    /// Adds the wait that ends now.
    void count_wait();
    [[noreturn]] void stop(const std::string& why);

    void require_room() const;
    static void require_name(const std::string& name);
    static void require_short(const AttentionHeads& heads, bool computed, SourceLine at);
    Communicator& communicator(WireReader& in);
    void keep(Work work, WireWriter& out);

    Rank& rank_;
    RankProcess& process_;
    RunLimits limits_;
    double begun_;
    double& all_idle_;
    Frames::Clock::time_point wait_began_;
    double waited_ = 0;    ///< seconds in which the grader waited for the process
    double examined_ = 0;  ///< `waited_` when the process was last looked at
    double idle_seconds_ = 0;
    double own_queue_;  ///< seconds in which this process had had no processor before
    bool may_download_ = false;
    std::int64_t requests_ = 0;               ///< each operation of a group counts as one
    std::map<std::int64_t, Tensor> tensors_;  ///< by handle, whole
    std::map<const Storage*, std::int64_t> handles_;
    std::int64_t last_handle_ = 0;
    std::map<std::int64_t, Work> works_;
    std::int64_t last_work_ = 0;
    std::map<int, std::unique_ptr<Communicator>> communicators_;  ///< made by splits
    int last_communicator_ = kWorldNumber;
    int open_phases_ = 0;
    std::set<std::string> files_;
    RankResult result_;
};

}  // namespace lockstep::lessons
