#include "tests/gpu/emulator/batch.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/gpu/emulator/memory.hpp"
#include "tests/gpu/emulator/reduction.hpp"
#include "tests/gpu/emulator/settings.hpp"

namespace emulated {

namespace {

std::size_t bytes(const Call& call) {
    return call.count * bytes_of(call.type);
}

/// How many bytes a call reads from its buffers, and writes to them, on this rank.
struct Extent {
    std::size_t send, receive;
};

Extent extent(const Call& call, int rank, int size) {
    const std::size_t one = bytes(call), all = one * static_cast<std::size_t>(size);
    const bool root = rank == call.peer;
    switch (call.verb) {
        case Verb::all_reduce:
            return {one, one};
        case Verb::reduce_scatter:
            return {all, one};
        case Verb::reduce:
            return {one, root ? one : 0};
        case Verb::all_gather:
            return {one, all};
        case Verb::broadcast:
            return {root ? one : 0, one};
        case Verb::all_to_all:
            return {all, all};
        case Verb::gather:
            return {one, root ? all : 0};
        case Verb::scatter:
            return {root ? all : 0, one};
        case Verb::send:
            return {one, 0};
        case Verb::receive:
            return {0, one};
    }
    return {0, 0};
}

/// Returns whether the buffers are where NCCL's in-place operations need them.
bool in_place(const Call& call, int rank) {
    const std::size_t mine = static_cast<std::size_t>(rank) * bytes(call);
    switch (call.verb) {
        case Verb::all_reduce:
        case Verb::reduce:
        case Verb::broadcast:
            return call.send == call.receive;
        case Verb::reduce_scatter:
        case Verb::scatter:
            return call.receive == call.send + mine;
        case Verb::all_gather:
        case Verb::gather:
            return call.send == call.receive + mine;
        default:
            return false;
    }
}

void copy(char* to, const char* from, std::size_t n) {
    if (to != from && n > 0) std::memcpy(to, from, n);
}

}  // namespace

void check_buffers(const Call& call, int rank, int size) {
    const Extent used = extent(call, rank, size);
    require_reachable(call.send, used.send, "the send buffer of an NCCL operation");
    require_reachable(call.receive, used.receive,
                      "the receive buffer of an NCCL operation");
    const bool overlap = used.send > 0 && used.receive > 0 &&
                         call.send < call.receive + used.receive &&
                         call.receive < call.send + used.send;
    if (overlap && !in_place(call, rank))
        die("the buffers of an NCCL operation overlap, but not as an in-place operation "
            "allows");
}

Batch::Batch(std::vector<Call> calls, int rank, int size)
    : calls_(std::move(calls)), rank_(rank), size_(size), messages_(size) {
    std::stable_partition(calls_.begin(), calls_.end(),
                          [](const Call& call) { return !call.is_message(); });
    for (const Call& call : calls_)
        if (call.is_message() && call.peer == rank_)
            (call.verb == Verb::send ? self_sends_ : self_receives_).push_back(call);
}

bool Batch::self_messages_match() const {
    return std::equal(self_sends_.begin(), self_sends_.end(), self_receives_.begin(),
                      self_receives_.end(), [](const Call& from, const Call& to) {
                          return bytes(from) == bytes(to);
                      });
}

Messages::End Batch::run(const std::vector<Descriptor>& sockets, const Stop& stop) {
    for (const Call& call : calls_)
        plan(call);
    for (std::size_t i = 0; i < self_sends_.size(); ++i)
        copy(self_receives_[i].receive, self_sends_[i].send, bytes(self_sends_[i]));
    const Messages::End end = messages_.run(sockets, stop);
    if (end == Messages::End::complete)
        for (const std::function<void()>& step : afterwards_)
            step();
    return end;
}

void Batch::plan(const Call& call) {
    switch (call.verb) {
        case Verb::all_reduce:
        case Verb::reduce_scatter:
        case Verb::reduce:
            return plan_reduction(call);
        case Verb::all_gather:
        case Verb::gather:
            return plan_gathering(call);
        case Verb::broadcast:
        case Verb::all_to_all:
        case Verb::scatter:
            return plan_dealing(call);
        case Verb::send:
            if (call.peer != rank_) messages_.send(call.peer, call.send, bytes(call));
            return;
        case Verb::receive:
            if (call.peer != rank_)
                messages_.receive(call.peer, call.receive, bytes(call));
            return;
    }
}

void Batch::exchange_with_others(const std::function<void(int peer)>& each) {
    for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_) each(peer);
}

/// All parts are sent to the ranks that want the sum. These ranks add the parts in the
/// order of ranks.
void Batch::plan_reduction(const Call& call) {
    const std::size_t block = bytes(call);
    const auto block_of = [=](int rank) {
        return call.verb == Verb::reduce_scatter ? static_cast<std::size_t>(rank) * block
                                                 : 0;
    };
    const auto wants = [=](int rank) {
        return call.verb != Verb::reduce || rank == call.peer;
    };
    auto others =
        std::make_shared<std::vector<char>>(static_cast<std::size_t>(size_) * block);
    std::vector<const char*> parts(static_cast<std::size_t>(size_));
    parts[static_cast<std::size_t>(rank_)] = call.send + block_of(rank_);
    exchange_with_others([&](int peer) {
        char* const part = others->data() + static_cast<std::size_t>(peer) * block;
        parts[static_cast<std::size_t>(peer)] = part;
        if (wants(peer)) messages_.send(peer, call.send + block_of(peer), block);
        if (wants(rank_)) messages_.receive(peer, part, block);
    });
    if (wants(rank_))
        afterwards_.push_back([call, others, parts] {
            reduce(call.type, call.reduction, parts, call.receive, call.count);
        });
}

/// Each rank's block is sent to all ranks that want the blocks.
void Batch::plan_gathering(const Call& call) {
    const std::size_t block = bytes(call);
    const auto wants = [&](int rank) {
        return call.verb == Verb::all_gather || rank == call.peer;
    };
    const auto place = [&](int rank) {
        return call.receive + static_cast<std::size_t>(rank) * block;
    };
    if (wants(rank_)) copy(place(rank_), call.send, block);
    exchange_with_others([&](int peer) {
        if (wants(peer)) messages_.send(peer, call.send, block);
        if (wants(rank_)) messages_.receive(peer, place(peer), block);
    });
}

/// Each rank that gives data sends each rank a block; in a broadcast all are the same.
void Batch::plan_dealing(const Call& call) {
    const std::size_t block = bytes(call);
    const auto gives = [&](int rank) {
        return call.verb == Verb::all_to_all || rank == call.peer;
    };
    const auto block_for = [&](int rank) {
        const bool same = call.verb == Verb::broadcast;
        return call.send + (same ? 0 : static_cast<std::size_t>(rank) * block);
    };
    const auto place = [&](int from) {
        const bool one = call.verb != Verb::all_to_all;
        return call.receive + (one ? 0 : static_cast<std::size_t>(from) * block);
    };
    if (gives(rank_)) copy(place(rank_), block_for(rank_), block);
    exchange_with_others([&](int peer) {
        if (gives(rank_)) messages_.send(peer, block_for(peer), block);
        if (gives(peer)) messages_.receive(peer, place(peer), block);
    });
}

}  // namespace emulated
