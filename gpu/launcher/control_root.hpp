#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gpu/launcher/control_service.hpp"
#include "gpu/launcher/entrance.hpp"
#include "gpu/launcher/heartbeat.hpp"
#include "gpu/launcher/inquiry.hpp"
#include "gpu/launcher/paces.hpp"
#include "gpu/launcher/round.hpp"

namespace lockstep::gpu {

/// The control thread of rank 0: all others' lines end here, and it alone decides what
/// stopped the run.
class ControlRoot final : public ControlService {
  public:
    /// `listener` is closed where the process is alone.
    ControlRoot(ControlShared& shared, Descriptor listener);

  private:
    std::vector<Connection*> connections() override;
    int listener() const override { return entrance_.listener(); }
    void act_on(Message post) override;
    void report(Pace pace, Clock::time_point now) override { paces_.note(0, pace, now); }
    void serve(Clock::time_point now) override;
    Clock::time_point next_due() const override;
    bool finished(Clock::time_point now) const override;

    // Meeting.
    void let_in(Clock::time_point now);
    void report_missing();

    // Messages.
    void serve_member(int rank, Clock::time_point now);
    void take(int rank, Message message, Clock::time_point now);
    void take_part(int rank, Message message);
    void check_round();
    void send_to_all(const Message& message);

    // Ends.
    void stop(Failure failure, bool missing = false);
    void serve_heartbeat();
    void lose(int rank, Clock::time_point now);
    std::string loss_text(int rank) const;
    Failure with_loss(Failure failure) const;
    void serve_inquiry(Clock::time_point now);
    void begin_inquiry(int stalled_rank);
    void end_inquiry();
    void serve_leaving(Clock::time_point now);
    void send_farewells();

    struct Member {
        std::unique_ptr<Connection> line;
        bool expected = false;  ///< it has come, and neither said goodbye nor been lost
        bool farewell_due = false;  ///< it said goodbye, and waits for the answer
        Silence silence;
    };
    std::vector<Member> members_;  ///< by rank; 0 is this process
    std::vector<bool> left_;       ///< those who said goodbye
    Heartbeat heartbeat_;
    Entrance entrance_;
    Clock::time_point meeting_due_;
    bool met_ = false;
    Round round_;
    Paces paces_;
    std::optional<Inquiry> inquiry_;
    struct Loss {
        Failure failure;
        Clock::time_point due;  ///< until then somebody may know a better reason
    };
    std::optional<Loss> loss_;
    Clock::time_point leaving_due_ = kNever;
};

}  // namespace lockstep::gpu
