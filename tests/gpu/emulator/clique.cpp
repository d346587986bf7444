#include "tests/gpu/emulator/clique.hpp"

#include <chrono>
#include <cstdlib>
#include <future>
#include <string_view>
#include <sys/socket.h>
#include <thread>

#include "tests/gpu/emulator/fault.hpp"
#include "tests/gpu/emulator/meeting.hpp"
#include "tests/gpu/emulator/settings.hpp"

namespace emulated {

Clique::Clique(std::string name, int rank, int size, int device, bool blocking)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      device_(device),
      blocking_(blocking) {}

void Clique::connect() {
    std::vector<Descriptor> sockets = meet(name_, rank_, size_, device_, stop());
    {
        const std::lock_guard lock(mutex_);
        sockets_ = std::move(sockets);
    }
    const char* later = std::getenv("NCCL_RUNTIME_CONNECT");
    if (later != nullptr && std::string_view(later) == "0") connect_collectives();
}

void Clique::connect_collectives() {
    has_collectives_ = true;
    std::this_thread::sleep_for(
        std::chrono::milliseconds(settings().connect_milliseconds));
}

namespace {

/// Returns the messages of a call; empty for a collective, which has other connections.
std::set<std::pair<int, int>> messages_of(const Call& call, int rank, int size) {
    std::set<std::pair<int, int>> messages;
    for (int peer = 0; peer < size; ++peer) {
        const bool is_root = rank == call.peer, is_peer = peer == call.peer;
        const bool all = call.verb == Verb::all_to_all;
        if (all || (call.verb == Verb::send && is_peer) ||
            (call.verb == Verb::gather && is_peer) ||
            (call.verb == Verb::scatter && is_root))
            messages.insert({rank, peer});
        if (all || (call.verb == Verb::receive && is_peer) ||
            (call.verb == Verb::gather && is_root) ||
            (call.verb == Verb::scatter && is_peer))
            messages.insert({peer, rank});
    }
    messages.erase({rank, rank});
    return messages;
}

}  // namespace

void Clique::connect_for(const std::vector<Call>& calls) {
    std::set<std::pair<int, int>> unmet;
    for (const Call& call : calls) {
        const auto messages = messages_of(call, rank_, size_);
        if (messages.empty() && !call.is_message() && !has_collectives_)
            connect_collectives();
        unmet.insert(messages.begin(), messages.end());
    }
    std::erase_if(unmet,
                  [&](const auto& ends) { return !has_messages_.insert(ends).second; });
    std::vector<std::future<void>> meetings;
    meetings.reserve(unmet.size());
    for (const auto& [from, to] : unmet)
        meetings.push_back(std::async(std::launch::async, [this, from = from, to = to] {
            exchange(name_ + "/" + std::to_string(from) + ">" + std::to_string(to),
                     rank_ == from ? 0 : 1, 2, rank_, stop());
            std::this_thread::sleep_for(
                std::chrono::milliseconds(settings().connect_milliseconds));
        }));
    for (std::future<void>& meeting : meetings)
        meeting.get();
}

void Clique::begin_job() {
    const std::lock_guard lock(mutex_);
    state_ = ncclInProgress;
    ++running_;
}

void Clique::end_job(ncclResult_t result) {
    const std::lock_guard lock(mutex_);
    if (state_ == ncclInProgress) state_ = result;
    --running_;
    changed_.notify_all();
}

std::uint64_t Clique::next_ticket() {
    const std::lock_guard lock(mutex_);
    return tickets_++;
}

void Clique::run(std::uint64_t ticket, Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == ticket || aborted_; });
    if (aborted_) return;
    ++running_;
    lock.unlock();
    // A device with a fault runs no kernels any more; other devices' kernels wait for its
    // kernels.
    const Stop gone = [this] { return aborted() || is_faulted(device_); };
    const Messages::End end = gone() ? Messages::End::stopped : batch.run(sockets_, gone);
    lock.lock();
    if (end == Messages::End::peer_lost) {
        state_ = ncclRemoteError;
        changed_.wait(lock, [&] { return aborted_.load(); });
    }
    --running_;
    ++turn_;
    changed_.notify_all();
}

bool Clique::busy() const {
    const std::lock_guard lock(mutex_);
    return turn_ != tickets_ && !aborted_;
}

void Clique::wait_until_quiet() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == tickets_ || aborted_; });
}

void Clique::abort() {
    std::unique_lock lock(mutex_);
    aborted_ = true;
    for (const Descriptor& socket : sockets_)
        if (socket) shutdown(socket.number(), SHUT_RDWR);
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_ == 0; });
}

}  // namespace emulated
