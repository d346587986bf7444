#include <algorithm>
#include <limits>
#include <poll.h>
#include <thread>

#include <fmt/format.h>

#include "gpu/launcher/control_service.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

using namespace std::chrono_literals;

constexpr double kFarewellSeconds = 2;
constexpr auto kTextOut = 50ms;  // in which rank 0 prints the text that it has claimed
constexpr auto kAnswer = 5s;
constexpr auto kHeadStart = 1s;
constexpr uint64_t kLongestRefusal = 4096;

/// Returns rank 0's answer to our hello; nothing if no valid answer arrives.
std::optional<Message> introduce(Connection& line, const Placement& placement,
                                 Clock::time_point due) {
    line.accept_bodies_of(kLongestRefusal);
    line.send({MessageKind::hello, pack(hello_of(placement))});
    while (line.open() && Clock::now() < due) {
        pollfd wait = {line.number(), line.events(), 0};
        poll(&wait, 1, os::milliseconds_until(due));
        line.transfer(wait.revents);
        if (std::optional<Message> answer = line.next()) return answer;
    }
    return std::nullopt;
}

Connection meet(const Placement& placement, const ControlOptions& options) {
    const Address address = parse_address(placement.rendezvous.address, "the rendezvous");
    const auto due = after(Clock::now(), options.timeout_seconds);
    bool stranger = false;
    do {
        Descriptor socket = connect_to(address, due);
        if (!socket.open()) break;
        Connection line(std::move(socket));
        const auto answer =
            introduce(line, placement, std::min(due, Clock::now() + kAnswer));
        if (answer && answer->kind == MessageKind::admitted) return line;
        require(!answer || answer->kind != MessageKind::refused, [&] {
            return fmt::format("rank {} was turned away: {}", placement.rank,
                               *answer->body);
        });
        stranger = true;
        std::this_thread::sleep_for(50ms);
    } while (Clock::now() < due);
    throw MissingError(fmt::format(
        "rank {} found no rank 0 at {} within {:g} seconds: {}", placement.rank,
        placement.rendezvous.address, options.timeout_seconds,
        stranger ? "another program answers there"
                 : "it did not start, or this address does not lead to its machine"));
}

/// The control thread of every process except rank 0's.
class ControlMember final : public ControlService {
  public:
    explicit ControlMember(ControlShared& shared)
        : ControlService(shared),
          line_(meet(shared.placement(), shared.options)),
          heartbeat_(shared.options.timeout_seconds) {
        line_.accept_bodies_of(std::numeric_limits<uint64_t>::max());
        wake(shared.waker);  // rank 0's welcome may have come with its answer
    }

  private:
    std::vector<Connection*> connections() override {
        return line_.open() ? std::vector{&line_} : std::vector<Connection*>();
    }
    void act_on(Message post) override { line_.send(post); }
    void report(Pace pace, Clock::time_point) override {
        line_.send({MessageKind::pace, pack(pace)});
    }
    void serve(Clock::time_point now) override;
    Clock::time_point next_due() const override {
        return beats() ? std::min(leaving_due_, heartbeat_.due()) : leaving_due_;
    }
    bool finished(Clock::time_point now) const override { return now >= leaving_due_; }

    void take(const Message& message);
    bool beats() const { return line_.open() && !leaving() && !shared_.stopped(); }
    void serve_heartbeat(Clock::time_point now);
    void serve_leaving(Clock::time_point now);

    Connection line_;
    Heartbeat heartbeat_;
    bool farewell_ = false;
    std::optional<Clock::time_point> left_at_;      // when it said goodbye
    std::optional<Clock::time_point> released_at_;  // when rank 0 answered the goodbye
    Clock::time_point leaving_due_ = kNever;
};

void ControlMember::serve(Clock::time_point now) {
    try {
        while (const std::optional<Message> message = line_.next())
            take(*message);
    } catch (const ProtocolError&) {
        line_.close();
    }
    if (beats()) serve_heartbeat(now);
    if (leaving()) serve_leaving(now);
    if (!line_.open() && !leaving())
        shared_.stop({0, 1,
                      "lockstep: rank 0 was lost: its process ended unexpectedly, or the "
                      "connection to it broke"});
}

void ControlMember::take(const Message& message) {
    switch (message.kind) {
        case MessageKind::welcome:
            return shared_.welcome();
        case MessageKind::result:
            return shared_.deliver(message);
        case MessageKind::describe:
            return line_.send({MessageKind::description, shared_.describe()});
        case MessageKind::stop:
            return shared_.stop(unpack<Failure>(*message.body));
        case MessageKind::farewell:
            farewell_ = true;
            return;
        case MessageKind::beat:
            return;
        default:
            throw ProtocolError("a message that only others send");
    }
}

void ControlMember::serve_heartbeat(Clock::time_point now) {
    if (!heartbeat_.strikes(now)) return;
    // A launcher kills all processes once one has ended. So the processes that print the
    // text stop first, and the others wait longer.
    const Placement& place = shared_.placement();
    const bool speaks = place.rank == 1 || place.local_rank == 0;
    const int patience =
        heartbeat_.patience() + (speaks ? 0 : heartbeat_.beats_in(kHeadStart));
    if (line_.beat() < patience) return;
    if (speaks) shared_.speak_up();
    shared_.stop({0, 1, silence_text(0)});
    line_.close();
}

void ControlMember::serve_leaving(Clock::time_point now) {
    if (!left_at_) {
        line_.send(MessageKind::goodbye);
        left_at_ = now;
    }
    if (!released_at_ && (farewell_ || !line_.open())) released_at_ = now;
    const bool stopped = shared_.stopped();
    leaving_due_ =
        after(*left_at_, stopped ? shared_.options.grace_seconds + 1 : kFarewellSeconds);
    // A launcher kills all processes once one has ended in error, so let rank 0 print
    // first.
    if (released_at_)
        leaving_due_ = std::min(leaving_due_, stopped ? *released_at_ + kTextOut : now);
}

}  // namespace

std::unique_ptr<ControlService> make_member(ControlShared& shared) {
    return std::make_unique<ControlMember>(shared);
}

}  // namespace lockstep::gpu
