#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpu/launcher/control_service.hpp"
#include "gpu/launcher/entrance.hpp"

namespace lockstep::gpu {

namespace {

using namespace std::chrono_literals;

constexpr auto kBetterReason = 300ms;
constexpr auto kAnswerOfRank = 2s;
constexpr size_t kMostUnsent = 8;  // messages to a process that takes part in an exchange

const char* verb(MessageKind kind) {
    return kind == MessageKind::broadcast ? "broadcast" : "all_gather";
}

/// The exchange that is open at rank 0: one message from every process, in any order.
class Round {
  public:
    explicit Round(int size) : parts_(static_cast<size_t>(size)) {}

    /// Adds one process's message (all_gather or broadcast). Throws ProtocolError if the
    /// message belongs to another exchange.
    void add(int rank, Message message) {
        if (parts_[rank] || message.sequence != sequence_)
            throw ProtocolError("a message to another exchange");
        parts_[rank] = std::move(message);
        ++present_;
    }
    /// Returns the program's mistake, if any, with its rank: the kinds of the messages
    /// differ, or a process has left while others wait for it.
    std::optional<Failure> mistake(const std::vector<bool>& left) const;

    bool complete() const { return present_ == parts_.size(); }
    /// Returns the result for all processes: a list of the bytes of all processes, or
    /// only of rank 0's bytes. Opens the next exchange.
    Message finish();

  private:
    uint64_t sequence_ = 1;
    std::vector<std::optional<Message>> parts_;
    size_t present_ = 0;
};

std::optional<Failure> Round::mistake(const std::vector<bool>& left) const {
    const auto present = std::find_if(parts_.begin(), parts_.end(),
                                      [](const auto& part) { return part.has_value(); });
    if (present == parts_.end()) return std::nullopt;
    const auto first = present - parts_.begin();
    const char* const wanted = verb((*present)->kind);
    for (int rank = 0; rank < static_cast<int>(parts_.size()); ++rank) {
        const std::optional<Message>& part = parts_[rank];
        if (part && part->kind != (*present)->kind)
            return Failure{rank, 1,
                           fmt::format("lockstep: rank {} called {} while rank {} called "
                                       "{}: all processes must call the same one",
                                       rank, verb(part->kind), first, wanted)};
        if (!part && left[rank])
            return Failure{
                rank, 1,
                fmt::format(
                    "lockstep: rank {} has ended while rank {} waits for it in {}", rank,
                    first, wanted)};
    }
    return std::nullopt;
}

Message Round::finish() {
    std::vector<std::string_view> list;
    const bool broadcast = parts_.front()->kind == MessageKind::broadcast;
    for (const std::optional<Message>& part : parts_) {
        list.push_back(*part->body);
        if (broadcast) break;
    }
    Message result(MessageKind::result, pack(list), sequence_++);
    for (std::optional<Message>& part : parts_)
        part.reset();
    present_ = 0;
    return result;
}

/// Rank 0's question to all processes once the run has stalled: what are you doing?
struct Inquiry {
    int stalled_rank;
    Clock::time_point due;
    std::vector<std::string> descriptions;  ///< by rank; empty if there was no answer
    std::vector<bool> answered = std::vector<bool>(descriptions.size());

    void answer(int rank, std::string description) {
        if (answered[rank]) return;
        answered[rank] = true;
        descriptions[rank] = std::move(description);
    }
    /// Expects no answer from this rank any more.
    void give_up(int rank) { answer(rank, {}); }
    /// Returns true if all processes have answered or the time is over.
    bool finished(Clock::time_point now) const {
        return now >= due ||
               std::find(answered.begin(), answered.end(), false) == answered.end();
    }
};

std::string ranks_text(const std::vector<int>& ranks) {
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks",
                       fmt::join(ranks, ", "));
}

/// The control thread of rank 0. The lines of all other ranks end here, and only rank 0
/// decides what stopped the run.
class ControlRoot final : public ControlService {
  public:
    explicit ControlRoot(ControlShared& shared)
        : ControlService(shared),
          members_(static_cast<size_t>(shared.size())),
          left_(members_.size()),
          heartbeat_(shared.options.timeout_seconds),
          entrance_(shared.placement()),
          meeting_due_(after(Clock::now(), shared.options.timeout_seconds)),
          round_(shared.size()),
          paces_(shared.size(), shared.watch) {
        wake(shared.waker);  // a rank that is alone has met all ranks
    }

  private:
    std::vector<Connection*> connections() override;
    int listener() const override { return entrance_.listener(); }
    void act_on(Message post) override { take(0, std::move(post), Clock::now()); }
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
    Failure with_loss(Failure failure) const;
    void serve_inquiry(Clock::time_point now);
    void begin_inquiry(int stalled_rank);
    void serve_leaving(Clock::time_point now);
    void send_farewells();

    struct Member {
        std::unique_ptr<Connection> line;
        bool expected = false;      // has arrived, and neither left nor been lost
        bool farewell_due = false;  // has said goodbye, and waits for the answer
    };
    std::vector<Member> members_;  // by rank; 0 is this process
    std::vector<bool> left_;       // by rank; whether it has said goodbye
    Heartbeat heartbeat_;
    Entrance entrance_;
    Clock::time_point meeting_due_;
    bool met_ = false;
    Round round_;
    Paces paces_;
    std::optional<Inquiry> inquiry_;
    struct Loss {
        Failure failure;
        Clock::time_point due;  // until then a better reason may arrive
    };
    std::optional<Loss> loss_;
    Clock::time_point leaving_due_ = kNever;
};

std::vector<Connection*> ControlRoot::connections() {
    std::vector<Connection*> all;
    entrance_.add_connections(all);
    for (const Member& member : members_)
        if (member.line && member.line->open()) all.push_back(member.line.get());
    return all;
}

void ControlRoot::serve(Clock::time_point now) {
    if (!met_) let_in(now);
    for (int rank = 1; rank < shared_.size(); ++rank)
        serve_member(rank, now);
    if (!shared_.stopped() && heartbeat_.strikes(now)) serve_heartbeat();
    if (!shared_.stopped()) serve_inquiry(now);
    if (loss_ && now >= loss_->due) stop(loss_->failure);
    if (leaving()) serve_leaving(now);
    send_farewells();
}

Clock::time_point ControlRoot::next_due() const {
    Clock::time_point due = std::min(entrance_.next_due(), leaving_due_);
    if (!met_) due = std::min(due, meeting_due_);
    if (inquiry_)
        due = std::min(due, inquiry_->due);
    else if (!shared_.stopped())
        due = std::min(due, paces_.due());
    if (loss_) due = std::min(due, loss_->due);
    if (members_.size() > 1 && !shared_.stopped()) due = std::min(due, heartbeat_.due());
    return due;
}

void ControlRoot::let_in(Clock::time_point now) {
    for (Entrance::Arrival& arrival : entrance_.serve(now))
        members_[arrival.rank] = {std::move(arrival.line), true, false};
    if (entrance_.complete()) {
        send_to_all(MessageKind::welcome);
        shared_.welcome();
    } else if (now >= meeting_due_) {
        report_missing();
    }
    met_ = entrance_.complete() || shared_.stopped();
    if (met_) entrance_.close();
}

void ControlRoot::report_missing() {
    std::string text = fmt::format(
        "{} of {} did not come to {} within {:g} seconds: start all processes, with the "
        "same address",
        ranks_text(entrance_.missing()), members_.size(),
        shared_.placement().rendezvous.address, shared_.options.timeout_seconds);
    if (const int strangers = entrance_.turned_away(); strangers > 0)
        text += fmt::format(" and the same secret ({} {} did not know the secret)",
                            strangers, strangers == 1 ? "connection" : "connections");
    stop({0, 3, text}, true);
}

void ControlRoot::serve_member(int rank, Clock::time_point now) {
    Member& member = members_[rank];
    if (!member.line) return;
    try {
        while (std::optional<Message> message = member.line->next())
            take(rank, std::move(*message), now);
    } catch (const ProtocolError& error) {
        member.line->close(error.what());
    }
    if (!member.line->open() && member.expected) lose(rank, now);
}

void ControlRoot::take(int rank, Message message, Clock::time_point now) {
    switch (message.kind) {
        case MessageKind::all_gather:
        case MessageKind::broadcast:
            return take_part(rank, std::move(message));
        case MessageKind::failure: {
            Failure failure = unpack_failure(*message.body);
            failure.rank = rank;
            return stop(with_loss(std::move(failure)));
        }
        case MessageKind::pace:
            return paces_.note(rank, unpack<Pace>(*message.body), now);
        case MessageKind::description:
            if (inquiry_) inquiry_->answer(rank, *message.body);
            return;
        case MessageKind::beat:
            return;
        case MessageKind::goodbye:
            members_[rank].expected = false;
            members_[rank].farewell_due = true;
            left_[rank] = true;
            paces_.note(rank, Pace::unwatched, now);
            return check_round();
        default:
            throw ProtocolError("a message that only rank 0 sends");
    }
}

void ControlRoot::take_part(int rank, Message message) {
    if (shared_.stopped()) return;
    if (rank > 0 && members_[rank].line->unsent() > kMostUnsent)
        throw ProtocolError("a message, before it has read those that were sent to it");
    round_.add(rank, std::move(message));
    check_round();
    if (!round_.complete() || shared_.stopped()) return;
    const Message result = round_.finish();
    send_to_all(result);
    shared_.deliver(result);
}

void ControlRoot::check_round() {
    if (const std::optional<Failure> mistake = round_.mistake(left_)) stop(*mistake);
}

void ControlRoot::send_to_all(const Message& message) {
    for (const Member& member : members_)
        if (member.line) member.line->send(message);
}

void ControlRoot::stop(Failure failure, bool missing) {
    loss_.reset();
    inquiry_.reset();
    if (shared_.stopped()) return;
    send_to_all({MessageKind::stop, pack_failure(failure)});
    shared_.stop(std::move(failure), missing);
    leaving_due_ = kNever;
}

void ControlRoot::lose(int rank, Clock::time_point now) {
    members_[rank].expected = false;
    if (inquiry_) inquiry_->give_up(rank);
    if (loss_ || shared_.stopped()) return;
    if (const std::string& breach = members_[rank].line->breach(); !breach.empty())
        return stop(
            {rank, 1,
             fmt::format("lockstep: rank {} was cut off: it sent {}", rank, breach)});
    // A supervisor prints this message itself.
    const std::string text =
        shared_.placement().supervised
            ? ""
            : fmt::format(
                  "lockstep: rank {} was lost: its process ended unexpectedly (it was "
                  "killed, crashed, or ran out of memory)",
                  rank);
    loss_ = Loss{{rank, 1, text}, now + kBetterReason};
}

void ControlRoot::serve_heartbeat() {
    for (int rank = 1; rank < shared_.size(); ++rank) {
        Member& member = members_[rank];
        if (!member.expected || member.line->beat() < heartbeat_.patience()) continue;
        member.expected = false;
        stop({rank, 1, silence_text(rank)});
        return member.line->close();
    }
}

Failure ControlRoot::with_loss(Failure failure) const {
    // This failure may be a consequence of the loss.
    if (!loss_ || loss_->failure.text.empty()) return failure;
    if (!failure.text.ends_with('\n')) failure.text += '\n';
    failure.text += loss_->failure.text;
    return failure;
}

void ControlRoot::serve_inquiry(Clock::time_point now) {
    const std::optional<int> stalled = paces_.standstill(now);
    if (!stalled)
        inquiry_.reset();  // a process moves again
    else if (!inquiry_)
        begin_inquiry(*stalled);
    if (!inquiry_ || !inquiry_->finished(now)) return;
    const int rank = inquiry_->stalled_rank;
    stop({rank, 1, shared_.explain(inquiry_->descriptions, rank)});
}

void ControlRoot::begin_inquiry(int stalled_rank) {
    inquiry_ = Inquiry{stalled_rank, Clock::now() + kAnswerOfRank,
                       std::vector<std::string>(members_.size())};
    send_to_all(MessageKind::describe);
    inquiry_->answer(0, shared_.describe());
    for (int rank = 1; rank < shared_.size(); ++rank)
        if (!members_[rank].expected) inquiry_->give_up(rank);
}

void ControlRoot::serve_leaving(Clock::time_point now) {
    if (!left_[0]) {
        left_[0] = true;
        check_round();
    }
    const ControlOptions& options = shared_.options;
    const bool stopped = shared_.stopped();
    if (leaving_due_ == kNever)
        leaving_due_ =
            after(now, stopped ? options.grace_seconds + 1 : options.timeout_seconds);
    if (now < leaving_due_ || stopped) return;
    std::vector<int> late;
    for (int rank = 1; rank < shared_.size(); ++rank)
        if (members_[rank].expected) late.push_back(rank);
    if (late.empty()) return;
    stop({late.front(), 1,
          fmt::format("lockstep: {} did not end within {:g} seconds after rank 0 ended",
                      ranks_text(late), options.timeout_seconds)});
    leaving_due_ = after(now, options.grace_seconds + 1);
}

void ControlRoot::send_farewells() {
    // A process may end in error once it has its farewell, and then a launcher may kill
    // this process. So print the text of a stopped run first.
    if (shared_.text_due() != kNever) return;
    for (Member& member : members_)
        if (std::exchange(member.farewell_due, false))
            member.line->send(MessageKind::farewell);
}

bool ControlRoot::finished(Clock::time_point now) const {
    if (now >= leaving_due_ && shared_.stopped()) return true;
    return !loss_ && std::all_of(members_.begin(), members_.end(), [](const Member& one) {
        return !one.expected && !one.farewell_due &&
               (!one.line || !one.line->open() || one.line->flushed());
    });
}

}  // namespace

std::unique_ptr<ControlService> make_root(ControlShared& shared) {
    return std::make_unique<ControlRoot>(shared);
}

}  // namespace lockstep::gpu
