#pragma once

#include <optional>

#include "gpu/launcher/control_service.hpp"
#include "gpu/launcher/heartbeat.hpp"

namespace lockstep::gpu {

/// The control thread of every process but rank 0's.
class ControlMember final : public ControlService {
  public:
    /// Comes to rank 0 and is admitted. Throws UsageError where it is turned away, and
    /// MissingError where nobody admits it in time.
    explicit ControlMember(ControlShared& shared);

  private:
    std::vector<Connection*> connections() override;
    void act_on(Message post) override { line_.send(std::move(post)); }
    void report(Pace pace, Clock::time_point) override {
        line_.send({MessageKind::pace, pack(pace)});
    }
    void serve(Clock::time_point now) override;
    Clock::time_point next_due() const override;
    bool finished(Clock::time_point now) const override { return now >= leaving_due_; }

    void take(const Message& message);
    bool beats() const;
    void serve_heartbeat(Clock::time_point now);
    void serve_leaving(Clock::time_point now);

    Connection line_;
    Heartbeat heartbeat_;
    Silence silence_;  ///< of rank 0
    bool farewell_ = false;
    std::optional<Clock::time_point> left_at_;      ///< when it said goodbye
    std::optional<Clock::time_point> released_at_;  ///< when rank 0 knew of that
    Clock::time_point leaving_due_ = kNever;
};

}  // namespace lockstep::gpu
