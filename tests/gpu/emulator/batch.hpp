#pragma once

#include <functional>
#include <vector>

#include "tests/gpu/emulator/messages.hpp"

namespace emulated {

enum class Verb {
    all_reduce,
    reduce_scatter,
    reduce,
    all_gather,
    broadcast,
    all_to_all,
    gather,
    scatter,
    send,
    receive
};

/// One call of an operation, with the arguments of NCCL's functions; `peer` is the root
/// or the rank at the other end.
struct Call {
    Verb verb;
    const char* send = nullptr;
    char* receive = nullptr;
    std::size_t count = 0;
    ncclDataType_t type = ncclFloat32;
    ncclRedOp_t reduction = ncclSum;
    int peer = 0;

    bool is_message() const { return verb == Verb::send || verb == Verb::receive; }
    bool reduces() const { return verb <= Verb::reduce; }
};

/// Ends the process if a call's buffers are not memory of the GPU, or overlap in a way
/// that NCCL does not allow.
void check_buffers(const Call& call, int rank, int size);

/// The calls of one communicator in one group. Collectives run first, in order; messages
/// run later. So ranks may call a collective and a message in different orders.
class Batch {
  public:
    Batch(std::vector<Call> calls, int rank, int size);

    /// Runs on the stream's thread.
    Messages::End run(const std::vector<Descriptor>& sockets, const Stop& stop);

    /// Returns whether the rank's sends to itself match its receives from itself.
    bool self_messages_match() const;

  private:
    void plan(const Call& call);
    void plan_reduction(const Call& call);
    void plan_gathering(const Call& call);
    void plan_dealing(const Call& call);
    void exchange_with_others(const std::function<void(int peer)>& each);

    std::vector<Call> calls_;
    int rank_, size_;
    Messages messages_;
    std::vector<std::function<void()>> afterwards_;
    std::deque<Call> self_sends_, self_receives_;
};

}  // namespace emulated
