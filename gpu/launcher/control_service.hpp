#pragma once

#include <vector>

#include "gpu/launcher/connection.hpp"
#include "gpu/launcher/control_shared.hpp"

namespace lockstep::gpu {

/// The loop of a process's control thread; what rank 0 and the others do in it differs.
class ControlService {
  public:
    explicit ControlService(ControlShared& shared) : shared_(shared) {}
    virtual ~ControlService() = default;
    ControlService(const ControlService&) = delete;
    ControlService& operator=(const ControlService&) = delete;

    /// Returns once the main thread has left and the other side knows, or has had its
    /// time. Of a stopped run, prints the text where the main thread does not, and ends
    /// the process where it does not leave.
    void run() noexcept;

  protected:
    /// All sockets to read and write, and one to accept from (-1: none).
    virtual std::vector<Connection*> connections() = 0;
    virtual int listener() const { return -1; }
    /// What the main thread posted, or this thread has to say.
    virtual void act_on(Message post) = 0;
    /// This process now gets on like this.
    virtual void report(Pace pace, Clock::time_point now) = 0;
    /// Acts on what has come and on what is due; called after every wait.
    virtual void serve(Clock::time_point now) = 0;
    /// When serve() must be called at the latest.
    virtual Clock::time_point next_due() const = 0;
    /// Whether nothing is left to do once the main thread has left.
    virtual bool finished(Clock::time_point now) const = 0;

    /// Whether the main thread had left before its last posts were acted on.
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

}  // namespace lockstep::gpu
