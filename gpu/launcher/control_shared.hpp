#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/control.hpp"
#include "gpu/launcher/message.hpp"
#include "gpu/launcher/stall_watch.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::gpu {

/// What the main thread and the control thread of one process share.
class ControlShared {
  public:
    ControlShared(const Placement& placement, const ControlOptions& options);

    const Placement placement;
    const ControlOptions options;
    StallWatch watch;
    os::Descriptor waker;  ///< of the control thread's poll()

    // The main thread's side.

    /// Returns once all processes are here; throws what join() throws.
    void await_welcome();
    /// Takes part in an exchange and returns its result: a list.
    std::vector<std::string> exchange(MessageKind kind, const std::string& mine);
    /// Hands the control thread a message to send, or on rank 0 to act on.
    void post(Message message);
    void leave();
    void check() const;
    bool claim_text() noexcept;
    void set_describe(Control::Describe describe);
    void set_explain(Control::Explain explain);

    // The control thread's side.

    std::deque<Message> take_posts();
    void welcome();
    void deliver(const Message& result);
    /// The first call counts. `missing`: the run ends since processes did not come.
    void stop(Failure failure, bool missing = false);
    /// Before stop(), on another rank than 0: this process is to print the text.
    void speak_up() { speaks_ = true; }
    bool leaving() const { return leaving_; }
    std::string describe();
    /// The text of a stall, by `explain` where one is set and does not throw.
    std::string explain(const std::vector<std::string>& descriptions, int stalled);

    // Both sides'.

    bool stopped() const noexcept { return stopped_; }
    Failure failure() const;
    /// When a main thread that has not left is taken to hang; of a stopped run.
    Clock::time_point grace_end() const;
    /// When the control thread is to print the failure's text; kNever where there is
    /// none, another process does, or the main thread has it.
    Clock::time_point text_due() const;

  private:
    [[noreturn]] void throw_stop() const;
    std::string plain_explanation(const std::vector<std::string>& descriptions,
                                  int stalled) const;

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
    Control::Describe describe_;
    Control::Explain explain_;
};

}  // namespace lockstep::gpu
