#include "gpu/launcher/entrance.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lockstep::gpu {

namespace {

using namespace std::chrono_literals;

constexpr auto kMostSilence = 5s;
constexpr auto kSilenceInACrowd = 500ms;
constexpr size_t kMostStrangers = 256;

}  // namespace

Entrance::Entrance(const Placement& placement)
    : address_(placement.rendezvous.address),
      secret_(placement.rendezvous.secret),
      own_(hello_of(placement)),
      here_(static_cast<size_t>(placement.size)),
      missing_(placement.size - 1) {
    here_[0] = true;
    if (missing_ > 0) listener_ = listen_at(meeting_place(placement));
}

int Entrance::listener() const {
    return Clock::now() < crowded_until() ? -1 : listener_.number();
}

void Entrance::add_connections(std::vector<Connection*>& all) {
    for (Stranger& stranger : strangers_)
        all.push_back(stranger.line.get());
}

std::vector<Entrance::Arrival> Entrance::serve(Clock::time_point now) {
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
        if (hear(*stranger) && now < stranger->since + kMostSilence) {
            ++stranger;
            continue;
        }
        if (!stranger->proved) ++turned_away_;
        stranger = strangers_.erase(stranger);
    }
    accept_all(now);
    return std::exchange(arrivals_, {});
}

void Entrance::accept_all(Clock::time_point now) {
    while (listener_.open() && now >= crowded_until()) {
        Descriptor socket = accept_from(listener_);
        if (!socket.open()) return;
        auto line = std::make_unique<Connection>(std::move(socket), Peer::stranger);
        strangers_.push_back({std::move(line), now});
        if (strangers_.size() <= kMostStrangers) continue;
        strangers_.pop_front();
        ++turned_away_;
    }
}

Clock::time_point Entrance::crowded_until() const {
    return strangers_.size() < kMostStrangers
               ? Clock::time_point::min()
               : strangers_.front().since + kSilenceInACrowd;
}

Clock::time_point Entrance::next_due() const {
    if (strangers_.empty()) return kNever;
    const auto due = strangers_.front().since + kMostSilence;
    const auto room = crowded_until();
    return Clock::now() < room ? std::min(due, room) : due;
}

bool Entrance::hear(Stranger& stranger) {
    const std::optional<Message> said = stranger.line->next();
    if (!said) return stranger.line->open();
    try {
        if (said->kind == MessageKind::hello && !stranger.hello) {
            stranger.hello = unpack<Hello>(*said->body);
            stranger.line->send({MessageKind::challenge, pack(stranger.challenge)});
            return true;
        }
        stranger.proved =
            said->kind == MessageKind::proof && stranger.hello &&
            same(unpack<Proof>(*said->body),
                 proof_of_member(secret_, *stranger.hello, stranger.challenge));
    } catch (const ProtocolError&) {
        return false;
    }
    if (stranger.proved) judge(stranger);
    return false;
}

void Entrance::judge(Stranger& stranger) {
    const Hello& hello = *stranger.hello;
    const std::string why = objection(hello);
    const Proof proof = proof_of_root(secret_, hello, stranger.challenge, why);
    stranger.line->send({MessageKind::verdict, pack(Verdict{why, proof})});
    if (!why.empty()) return;
    stranger.line->trust(Peer::member, static_cast<int>(own_.size));
    here_[hello.rank] = true;
    --missing_;
    arrivals_.push_back({static_cast<int>(hello.rank), std::move(stranger.line)});
}

std::string Entrance::objection(const Hello& hello) const {
    const std::string where = "the run that meets at " + address_;
    if (hello.version != own_.version)
        return where + " has another version of Lockstep: use the same everywhere";
    if (hello.token != own_.token)
        return where + " is another run: give each run its own LOCKSTEP_RENDEZVOUS";
    if (hello.size != own_.size || hello.rank >= own_.size)
        return fmt::format("{} has {} processes, but this process is rank {} of {}",
                           where, own_.size, hello.rank, hello.size);
    if (here_[hello.rank])
        return fmt::format(
            "{} has its rank {} already: another process came with the same rank, or "
            "another run with the same address",
            where, hello.rank);
    return {};
}

std::vector<int> Entrance::missing() const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < here_.size(); ++rank)
        if (!here_[rank]) ranks.push_back(static_cast<int>(rank));
    return ranks;
}

void Entrance::close() {
    listener_.close();
    strangers_.clear();
}

}  // namespace lockstep::gpu
