#include "gpu/launcher/control_root.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::gpu {

namespace {

using namespace std::chrono_literals;

constexpr auto kBetterReason = 300ms;
constexpr auto kAnswer = 2s;

std::string ranks_text(const std::vector<int>& ranks) {
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks",
                       fmt::join(ranks, ", "));
}

}  // namespace

ControlRoot::ControlRoot(ControlShared& shared, Descriptor listener)
    : ControlService(shared),
      members_(static_cast<size_t>(shared.placement.size)),
      left_(members_.size()),
      heartbeat_(shared.options.timeout_seconds),
      entrance_(shared.placement, std::move(listener)),
      meeting_due_(after(Clock::now(), shared.options.timeout_seconds)),
      round_(shared.placement.size),
      paces_(shared.placement.size, shared.watch) {
    wake(shared.waker);  // alone, it has met all others already
}

std::vector<Connection*> ControlRoot::connections() {
    std::vector<Connection*> all = entrance_.connections();
    for (const Member& member : members_)
        if (member.line && member.line->open()) all.push_back(member.line.get());
    return all;
}

void ControlRoot::act_on(Message post) {
    take(0, std::move(post), Clock::now());
}

void ControlRoot::serve(Clock::time_point now) {
    if (!met_) let_in(now);
    for (size_t rank = 1; rank < members_.size(); ++rank)
        serve_member(static_cast<int>(rank), now);
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
        due = std::min(due, inquiry_->due());
    else if (!shared_.stopped())
        due = std::min(due, paces_.due());
    if (loss_) due = std::min(due, loss_->due);
    if (members_.size() > 1 && !shared_.stopped()) due = std::min(due, heartbeat_.due());
    return due;
}

void ControlRoot::let_in(Clock::time_point now) {
    for (Entrance::Arrival& arrival : entrance_.serve(now))
        members_[static_cast<size_t>(arrival.rank)] = {
            std::move(arrival.connection), true, false, {}};
    if (entrance_.complete()) {
        send_to_all(Message(MessageKind::welcome));
        shared_.welcome();
    } else if (now >= meeting_due_) {
        report_missing();
    }
    met_ = entrance_.complete() || shared_.stopped();
    if (met_) entrance_.close();
}

void ControlRoot::report_missing() {
    const std::vector<int> missing = entrance_.missing();
    stop({0, 3,
          fmt::format("{} of {} did not come to {} within {:g} seconds: start all "
                      "processes, with the same address",
                      ranks_text(missing), members_.size(),
                      shared_.placement.rendezvous.address,
                      shared_.options.timeout_seconds)},
         true);
}

void ControlRoot::serve_member(int rank, Clock::time_point now) {
    Member& member = members_[static_cast<size_t>(rank)];
    if (!member.line) return;
    try {
        while (std::optional<Message> message = member.line->next())
            take(rank, std::move(*message), now);
    } catch (const ProtocolError&) {
        member.line->close();
    }
    if (!member.line->open() && member.expected) lose(rank, now);
}

void ControlRoot::take(int rank, Message message, Clock::time_point now) {
    Member& member = members_[static_cast<size_t>(rank)];
    switch (message.kind) {
        case MessageKind::all_gather:
        case MessageKind::broadcast:
            return take_part(rank, std::move(message));
        case MessageKind::failure:
            return stop(with_loss(unpack_failure(*message.body)));
        case MessageKind::pace:
            return paces_.note(rank, unpack_pace(*message.body), now);
        case MessageKind::description:
            if (inquiry_) inquiry_->answer(rank, *message.body);
            return;
        case MessageKind::beat:
            return;
        case MessageKind::goodbye:
            member.expected = false;
            member.farewell_due = true;
            left_[static_cast<size_t>(rank)] = true;
            paces_.note(rank, Pace::unwatched, now);
            return check_round();
        default:
            throw ProtocolError("a message that only rank 0 sends");
    }
}

void ControlRoot::take_part(int rank, Message message) {
    if (shared_.stopped()) return;
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
    send_to_all({MessageKind::stop, pack(failure)});
    shared_.stop(std::move(failure), missing);
    leaving_due_ = kNever;
}

void ControlRoot::lose(int rank, Clock::time_point now) {
    members_[static_cast<size_t>(rank)].expected = false;
    if (inquiry_) inquiry_->give_up(rank);
    if (loss_ || shared_.stopped()) return;
    loss_ = Loss{{rank, 1, loss_text(rank)}, now + kBetterReason};
}

std::string ControlRoot::loss_text(int rank) const {
    if (shared_.placement.supervised) return {};  // the supervisor says it
    return fmt::format(
        "lockstep: rank {} was lost: its process ended without a word, as "
        "one does that is killed, crashes or has no memory left",
        rank);
}

void ControlRoot::serve_heartbeat() {
    for (size_t rank = 1; rank < members_.size(); ++rank) {
        Member& member = members_[rank];
        if (!member.expected) continue;
        if (member.silence.beat(*member.line) < heartbeat_.patience()) continue;
        member.expected = false;
        stop({static_cast<int>(rank), 1, silence_text(static_cast<int>(rank))});
        return member.line->close();
    }
}

Failure ControlRoot::with_loss(Failure failure) const {
    // What others fail of just after a process was lost may come of that.
    if (!loss_ || loss_->failure.text.empty()) return failure;
    if (!failure.text.ends_with('\n')) failure.text += '\n';
    failure.text += loss_->failure.text;
    return failure;
}

void ControlRoot::serve_inquiry(Clock::time_point now) {
    const std::optional<int> stalled = paces_.standstill(now);
    if (!stalled)
        inquiry_.reset();  // one moves again
    else if (!inquiry_)
        begin_inquiry(*stalled);
    if (inquiry_ && inquiry_->finished(now)) end_inquiry();
}

void ControlRoot::begin_inquiry(int stalled_rank) {
    inquiry_.emplace(shared_.placement.size, stalled_rank, Clock::now() + kAnswer);
    send_to_all(Message(MessageKind::describe));
    inquiry_->answer(0, shared_.describe());
    for (size_t rank = 1; rank < members_.size(); ++rank)
        if (!members_[rank].expected) inquiry_->give_up(static_cast<int>(rank));
}

void ControlRoot::end_inquiry() {
    const int stalled = inquiry_->stalled_rank();
    stop({stalled, 1, shared_.explain(inquiry_->descriptions(), stalled)});
}

void ControlRoot::serve_leaving(Clock::time_point now) {
    if (!left_[0]) {
        left_[0] = true;
        check_round();
    }
    const double patience = shared_.stopped() ? shared_.options.grace_seconds + 1
                                              : shared_.options.timeout_seconds;
    if (leaving_due_ == kNever) leaving_due_ = after(now, patience);
    if (now < leaving_due_ || shared_.stopped()) return;
    std::vector<int> late;
    for (size_t rank = 1; rank < members_.size(); ++rank)
        if (members_[rank].expected) late.push_back(static_cast<int>(rank));
    if (late.empty()) return;
    stop({late.front(), 1,
          fmt::format("lockstep: {} did not end within {:g} seconds after rank 0 had",
                      ranks_text(late), shared_.options.timeout_seconds)});
    leaving_due_ = after(now, shared_.options.grace_seconds + 1);
}

void ControlRoot::send_farewells() {
    // Who gets one may end in error, and a launcher then kill this process: the text of a
    // stopped run comes first.
    if (shared_.text_due() != kNever) return;
    for (Member& member : members_)
        if (std::exchange(member.farewell_due, false))
            member.line->send(Message(MessageKind::farewell));
}

bool ControlRoot::finished(Clock::time_point now) const {
    if (now >= leaving_due_ && shared_.stopped()) return true;
    return !loss_ && std::all_of(members_.begin(), members_.end(), [](const Member& one) {
        return !one.expected && !one.farewell_due &&
               (!one.line || !one.line->open() || one.line->flushed());
    });
}

}  // namespace lockstep::gpu
