#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/connection.hpp"
#include "gpu/launcher/control.hpp"

namespace lockstep::gpu {

/// The state that the main thread and the control thread of one process share. The main
/// thread uses it through Control's functions.
class ControlShared : public Control {
  public:
    ControlShared(const Placement& place, const ControlOptions& patience);

    const ControlOptions options;
    StallWatch watch;
    Descriptor waker;  ///< wakes the control thread's poll()

    // The main thread's side.

    /// Returns once all processes are here. Throws as join() does.
    void await_welcome();
    void leave();

    std::vector<std::string> all_gather(const std::string& mine) override;
    std::string broadcast(const std::string& bytes) override;
    void begin_watching() override;
    void end_watching() noexcept override { watch.end(); }
    void progress() noexcept override { watch.progress(); }
    void set_describe(Describe describe) override;
    void set_explain(Explain explain) override;
    void fail(const Failure& failure) noexcept override;
    void check() const override;
    bool claim_text() noexcept override;

    // The control thread's side.

    /// Returns the messages that the main thread has posted. Rank 0 acts on its messages;
    /// other ranks send theirs to rank 0.
    std::deque<Message> take_posts();
    void welcome();
    /// Throws ProtocolError if the result is not that of the last exchange.
    void deliver(const Message& result);
    /// Only the first call counts. `missing`: the run ends because processes did not
    /// arrive.
    void stop(Failure failure, bool missing = false);
    /// Lets this process print the text. Called on ranks other than 0, before stop().
    void speak_up() { speaks_ = true; }
    bool leaving() const { return leaving_; }
    std::string describe();
    /// Returns the text of a stall. Uses `explain` if that is set and does not throw.
    std::string explain(const std::vector<std::string>& descriptions, int stalled);

    // Both sides'.

    bool stopped() const noexcept override { return stopped_; }
    Failure failure() const;
    /// The time at which a main thread that has not left a stopped run counts as hanging.
    Clock::time_point grace_end() const;
    /// The time at which the control thread must print the failure's text; kNever if
    /// there is no text, or if another process or the main thread prints it.
    Clock::time_point text_due() const;

  private:
    std::vector<std::string> exchange(MessageKind kind, const std::string& mine);
    void post(Message message);
    [[noreturn]] void throw_stop() const;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Message> posts_;
    std::optional<Message> result_;
    uint64_t sequence_ = 0;
    bool welcome_ = false;
    bool missing_ = false;
    std::optional<Failure> failure_;
    Clock::time_point stopped_at_ = {};
    mutable std::optional<Clock::time_point> seen_at_;
    std::atomic<bool> stopped_ = false;
    std::atomic<bool> leaving_ = false;
    std::atomic<bool> claimed_ = false;
    std::atomic<bool> speaks_;

    std::mutex callbacks_;
    Describe describe_;
    Explain explain_;
};

/// Says when a control thread sends its beats, which tell the other side that it runs.
class Heartbeat {
  public:
    explicit Heartbeat(double timeout_seconds);

    /// Returns true if it is time to beat. The next beat is due an interval after this
    /// call, even if the call came late.
    bool strikes(Clock::time_point now);
    Clock::time_point due() const { return due_; }
    /// Returns the number of beats in a time, rounded up.
    int beats_in(Clock::duration time) const;
    /// Returns the number of beats without an answer after which a process is lost.
    int patience() const;

  private:
    Clock::duration timeout_;
    Clock::duration interval_;
    Clock::time_point due_ = {};
};

/// The loop of a process's control thread. Subclasses override its steps.
class ControlService {
  public:
    explicit ControlService(ControlShared& shared) : shared_(shared) {}
    virtual ~ControlService() = default;
    ControlService(const ControlService&) = delete;
    ControlService& operator=(const ControlService&) = delete;

    /// Returns once the main thread has left and the other side has been told, or has not
    /// answered in time. In a stopped run, prints the text if the main thread does not,
    /// and ends the process if the main thread does not leave.
    void run() noexcept;

  protected:
    /// Returns all sockets to read and write. listener() is the socket to accept from
    /// (-1: none).
    virtual std::vector<Connection*> connections() = 0;
    virtual int listener() const { return -1; }
    /// Acts on a message from the main thread or from this thread.
    virtual void act_on(Message post) = 0;
    /// Reports the new pace of this process.
    virtual void report(Pace pace, Clock::time_point now) = 0;
    /// Acts on what has arrived and on what is due; called after every wait.
    virtual void serve(Clock::time_point now) = 0;
    /// Returns the latest time for the next call of serve().
    virtual Clock::time_point next_due() const = 0;
    /// Returns true if nothing is left to do once the main thread has left.
    virtual bool finished(Clock::time_point now) const = 0;

    /// Returns true if the main thread had left before its last posts were acted on.
    bool leaving() const { return leaving_; }

    ControlShared& shared_;

  private:
    void loop();
    void wait_and_transfer();
    void break_off(const char* reason) noexcept;
    void serve_stop() noexcept;
    void print_text() noexcept;

    bool leaving_ = false;
};

/// Makes the service of rank 0. The lines of all other ranks end there, and only rank 0
/// decides what stopped the run. Throws as listen_at() does.
std::unique_ptr<ControlService> make_root(ControlShared& shared);

/// Makes the service of another rank, which connects to rank 0 and is admitted. Throws
/// UsageError if the rank is refused, and MissingError if it is not admitted in time.
std::unique_ptr<ControlService> make_member(ControlShared& shared);

/// Returns the message about a process that is lost because it is silent.
std::string silence_text(int rank);

}  // namespace lockstep::gpu
