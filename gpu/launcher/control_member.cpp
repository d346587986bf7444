#include <algorithm>
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
constexpr auto kLongestPause = 1s;  // between two attempts to be admitted

/// What came of an attempt to be admitted.
enum class Outcome { no_answer, no_proof, admitted };

/// Returns the next message, of this kind; nothing if none arrives in time.
template <typename Content>
std::optional<Content> await(Connection& line, MessageKind kind, Clock::time_point due) {
    while (line.open() && Clock::now() < due) {
        pollfd wait = {line.number(), line.events(), 0};
        poll(&wait, 1, os::milliseconds_until(due));
        line.transfer(wait.revents);
        const std::optional<Message> answer = line.next();
        if (answer && answer->kind != kind) break;
        if (answer) return unpack<Content>(*answer->body);
    }
    return std::nullopt;
}

/// Proves to the process that answers at rank 0's address that this process knows the
/// secret, and demands the same. Throws UsageError if rank 0 refuses this process.
Outcome introduce(Connection& line, const Placement& placement, Clock::time_point due) {
    const std::string& secret = placement.rendezvous.secret;
    const Hello hello = hello_of(placement);
    line.send({MessageKind::hello, pack(hello)});
    const auto challenge = await<Nonce>(line, MessageKind::challenge, due);
    if (!challenge) return Outcome::no_answer;
    line.send({MessageKind::proof, pack(proof_of_member(secret, hello, *challenge))});
    const auto verdict = await<Verdict>(line, MessageKind::verdict, due);
    if (!verdict ||
        !same(verdict->proof, proof_of_root(secret, hello, *challenge, verdict->why)))
        return Outcome::no_proof;
    require(verdict->why.empty(), "rank {} was turned away: {}", placement.rank,
            verdict->why);
    line.trust(Peer::root, placement.size);
    return Outcome::admitted;
}

Outcome try_to_enter(Connection& line, const Placement& placement,
                     Clock::time_point due) {
    try {
        return introduce(line, placement, due);
    } catch (const ProtocolError&) {
        return Outcome::no_answer;
    }
}

Connection meet(const Placement& placement, const ControlOptions& options) {
    const Address address = meeting_place(placement);
    const auto due = after(Clock::now(), options.timeout_seconds);
    std::string why = "it did not start, or this address does not lead to its machine";
    Clock::duration pause = 50ms;
    do {
        Descriptor socket = connect_to(address, due);
        if (!socket.open()) break;
        Connection line(std::move(socket), Peer::host);
        const Outcome outcome =
            try_to_enter(line, placement, std::min(due, Clock::now() + kAnswer));
        if (outcome == Outcome::admitted) return line;
        why = outcome == Outcome::no_answer
                  ? "another program answers there"
                  : "the program that answers there does not know this process's secret; "
                    "give all processes the same";
        std::this_thread::sleep_for(std::min(pause, due - Clock::now()));
        pause = std::min<Clock::duration>(2 * pause, kLongestPause);
    } while (Clock::now() < due);
    throw MissingError(fmt::format(
        "rank {} found no rank 0 at {} within {:g} seconds: {}", placement.rank,
        placement.rendezvous.address, options.timeout_seconds, why));
}

/// The control thread of every process except rank 0's.
class ControlMember final : public ControlService {
  public:
    explicit ControlMember(ControlShared& shared)
        : ControlService(shared),
          line_(meet(shared.placement(), shared.options)),
          heartbeat_(shared.options.timeout_seconds) {}

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
    } catch (const ProtocolError& error) {
        line_.close(error.what());
    }
    if (beats()) serve_heartbeat(now);
    if (leaving()) serve_leaving(now);
    if (!line_.open() && !leaving())
        shared_.stop({0, 1,
                      line_.breach().empty()
                          ? "lockstep: rank 0 was lost: its process ended unexpectedly, "
                            "or the connection to it broke"
                          : "lockstep: rank 0 was cut off: it sent " + line_.breach()});
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
            return shared_.stop(unpack_failure(*message.body));
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
