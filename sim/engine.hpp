#pragma once

#include <array>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "sim/host_memory.hpp"
#include "sim/network.hpp"
#include "sim/scheduler.hpp"
#include "sim/team.hpp"
#include "sim/trace.hpp"
#include "sim/virtual_device.hpp"
#include "sim/watcher.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class CpuDevice;

/// How many collectives a rank has launched from each line of its program.
class CalledLines {
  public:
    void note(SourceLine line) {
        // Most programs repeat their lines in one order.
        if (++last_ >= lines_.size()) last_ = 0;
        if (last_ < lines_.size() && is(last_, line)) {
            ++lines_[last_].times;
            return;
        }
        note_out_of_order(line);
    }
    int times(SourceLine line) const;

  private:
    struct Line {
        SourceLine line;
        int times;
    };
    bool is(std::size_t place, SourceLine line) const {
        return lines_[place].line.file == line.file &&
               lines_[place].line.line == line.line;
    }
    void note_out_of_order(SourceLine line);

    std::vector<Line> lines_;
    std::size_t last_ = 0;
};

/// A rank of the run, as the engine sees it.
struct RankState {
    static constexpr std::size_t kHistory = 4;

    RankState(Engine& engine, int index, const ClusterOptions& options,
              Scheduler& scheduler, Trace& trace, const Watchers& watchers)
        : virtual_device(engine, index, options, scheduler, trace, watchers,
                         virtual_host),
          virtual_host(engine, index, options, scheduler, trace, watchers,
                       VirtualDevice::Host{}) {
        virtual_host.serve(virtual_device);
    }

    // First the fields that every message touches.
    Launch* waiting = nullptr;   ///< the launch for which the rank is suspended
    int message_launches = 0;    ///< launches with sends or recvs, not closed yet
    std::uint64_t launches = 0;  ///< number so far, on all queues
    bool ended = false;
    std::uint64_t launched = 0;
    VirtualDevice virtual_device;  ///< time, memory and counters of `device`
    /// A ring buffer; the newest entry is at (launched - 1) % kHistory.
    std::array<PastOperation, kHistory> history;
    CalledLines lines;
    VirtualDevice virtual_host;  ///< of `host`

    std::unique_ptr<Device> host;  ///< outlives the device, which points to it
    std::unique_ptr<Device> device;
    /// Queues of copies to the host and to the device; null until the first copy.
    Team* copies_to_host = nullptr;
    Team* copies_to_device = nullptr;
    std::unique_ptr<Communicator> world;
    RankReport report;
    std::exception_ptr failure;   ///< what its program threw
    std::vector<Launch*> any_of;  ///< the rank is suspended until one of these ends

    /// A split: the rank's request, and the team that it got.
    struct Split {
        SplitRequest asked;
        Team* team = nullptr;
        int member = 0;
    };
    Split split;
};

/// A run: its ranks, their waits for each other, and virtual time.
///
/// Rules: ranks launch operations while they run. The engine completes operations only
/// when all ranks are blocked (the run is quiet). Then it completes operations that have
/// partners, in an order that depends only on virtual time. So neither values nor times
/// depend on the order in which the host runs the ranks, even in programs with races.
/// Mistakes are noted while ranks run, and reported the next time the run is quiet.
class Engine {
  public:
    explicit Engine(ClusterOptions options);
    ~Engine();
    RunReport run(const Program& program);

    // For communicators.
    /// Records the operations that the member launches together.
    Launch& post(Team& team, int member, std::span<CommOperation> operations,
                 SourceLine at);
    /// Queues the launch. It begins after earlier operations of the device and after
    /// earlier launches of the member.
    void enqueue(Launch& launch);
    void wait(Launch& launch, SourceLine at);
    /// Waits for the launch that ends first, and returns its index in `launches`.
    std::size_t wait_any(std::vector<Launch*> launches, SourceLine at);
    /// Starts a copy between a rank's device and its host.
    Work start_copy(int index, CopyDirection direction, const Tensor& destination,
                    const Tensor& source, SourceLine at);
    /// Returns whether a rank has called wait_any: then other times of arrival may give
    /// other results.
    bool arrivals_decide() const { return arrivals_decide_; }
    /// Returns the rank's split: its request and its result.
    RankState::Split& split_of(int index) { return ranks_[index]->split; }
    /// Is called when the member destroys its communicator.
    void communicator_went(Team& team, int member);
    void expect_replicated(const Team& team, int member, const Tensor& tensor,
                           const std::string& name, SourceLine at);
    void declare_same(const Team& team, int member, const Tensor& tensor,
                      const std::string& name, SourceLine at);
    void declare_same(const Team& team, int member, const HostTensor& values,
                      const std::string& name, SourceLine at);
    void declare_replicas(Team& team, int member, const Tensor& tensor,
                          const std::string& name, SourceLine at);
    LaunchPool& launches() { return launches_; }
    const LaunchPool& launches() const { return launches_; }
    int current() const { return scheduler_.current(); }
    /// Notes what a rank threw, or a mistake of the rank. Only its first mistake counts.
    void note_mistake(int index, std::exception_ptr what);

    // For the checks.
    const std::vector<std::unique_ptr<RankState>>& ranks() const { return ranks_; }
    const std::vector<std::unique_ptr<Team>>& teams() const { return teams_; }
    const ClusterOptions& options() const { return options_; }
    HostMemory& host_memory() { return host_memory_; }
    bool stands_still(int rank) const {
        return !options_.stands_still.empty() && options_.stands_still[rank];
    }

  private:
    /// A failure that ends the run.
    struct Mistake {
        int rank;
        const Posted* posted;  ///< a collective or message whose sides differ; else null
    };
    /// Mistakes are ordered by virtual time, then by rank. The other entries order
    /// mistakes of one rank at one time. Only the first mistake in this order counts.
    using Order = std::array<std::int64_t, 6>;

    void run_rank(int index, const Program& program);
    void expect(const Team& team, int member, const Tensor& tensor, Expectation of_it);
    Team& make_team(const std::string& name, std::vector<int> ranks);
    RankState& rank(int index) { return *ranks_[index]; }

    void open(Launch& launch);
    void arrive(Posted& posted);
    void list_if_complete(Team& team);
    void pair(Posted& posted);
    void note_past(const Posted& posted);

    bool on_quiet();
    bool move_on();
    bool end_wait_for_any();
    bool end_meetings();
    Picoseconds time_in_group(const CollectiveCall& call, const Team& team,
                              const Meeting& meeting) const;
    void end_meeting(Team& team);
    Team& copy_queue(int index, CopyDirection direction);
    void begin_copy(Posted& posted);
    void end_copy(Posted& posted, Network::Span span);
    static void note_unlike(Team& team, const Meeting& meeting);
    void split_team(const Team& team, const Meeting& meeting);
    bool pass_messages();
    void prefetch(const Message& message) const;
    void prefetch_counts(const Message& message) const;
    bool is_alone(const Message& message) const;
    void count(const Message& message) const;
    void deliver(const Message& message, Network::Span span);
    void finish(Posted& posted, Network::Span span);
    void close(Launch& launch);
    Order order_of(const Mistake& mistake) const;
    bool note_failure();
    void note_diagnosis(Diagnosis diagnosis);
    void trace_open(Picoseconds stop);
    void trace_wait(const Launch& launch, Picoseconds start, SourceLine at);
    void complete_diagnosis() const;

    [[noreturn]] void stop();
    Picoseconds link_roof() const;
    RunReport report();

    ClusterOptions options_;
    Scheduler scheduler_;
    Trace trace_;
    Watchers watchers_;
    std::unique_ptr<Checker> checker_;
    Network network_;
    LaunchPool launches_;
    std::vector<std::unique_ptr<Team>> teams_;
    std::vector<CpuDevice*> cpu_devices_;  ///< of ranks_
    HostMemory host_memory_;
    std::vector<std::unique_ptr<RankState>> ranks_;
    std::vector<Team*> complete_;  ///< teams whose first meeting has all its members
    std::vector<Message> paired_;  ///< messages paired since the run was last quiet
    std::vector<Mistake> mistakes_;
    std::exception_ptr failure_;
    int failed_rank_ = -1;  ///< the rank that threw failure_; -1 if none did
    /// Communicators share this handle. Its pointer is null once the run is over.
    std::shared_ptr<Engine*> handle_;
    int woken_ = 0;
    std::vector<int> wait_for_any_;  ///< ranks, in the order in which they began to wait
    bool arrivals_decide_ = false;
};

}  // namespace lockstep::sim
