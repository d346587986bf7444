#include "tests/gpu/emulator/clique.hpp"

#include <sys/socket.h>

#include "tests/gpu/emulator/meeting.hpp"

namespace emulated {

Clique::Clique(std::string name, int rank, int size, int device, bool blocking)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      device_(device),
      blocking_(blocking) {}

void Clique::connect() {
    std::vector<Descriptor> sockets = meet(name_, rank_, size_, device_, stop());
    const std::lock_guard lock(mutex_);
    sockets_ = std::move(sockets);
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
    const Messages::End end = batch.run(sockets_, stop());
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
