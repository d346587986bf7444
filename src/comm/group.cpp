#include <exception>

#include <fmt/format.h>

#include "src/comm/communicator.hpp"
#include "src/core/require.hpp"

namespace lockstep {

Group::Group(Communicator& communicator, SourceLine at) : communicator_(communicator) {
    communicator_.group_open_ = true;
    communicator_.group_at_ = at;
    communicator_.grouped_.clear();
}

Group::~Group() {
    if (started_ || std::uncaught_exceptions() == 0) return;
    communicator_.group_open_ = false;
    communicator_.grouped_.clear();
}

/// Lets `fill` fill an operation of the group; one that it refuses is no part of it.
template <typename Fill>
Group& Group::add(SourceLine at, Fill fill) {
    require(!started_, at, [&] {
        return fmt::format("rank {} added to its group of {} begun at {} after its start",
                           communicator_.rank_, communicator_.name_,
                           communicator_.group_at_.text());
    });
    CommOperation& operation = communicator_.grouped_.emplace_back();
    try {
        fill(operation);
    } catch (...) {
        communicator_.grouped_.pop_back();
        throw;
    }
    return *this;
}

Group& Group::send(const Tensor& input, int peer, SourceLine at) {
    return add(at, [&](CommOperation& operation) {
        communicator_.fill_message(operation, Verb::send, input, peer, at);
    });
}

Group& Group::recv(const Tensor& output, int peer, SourceLine at) {
    return add(at, [&](CommOperation& operation) {
        communicator_.fill_message(operation, Verb::recv, output, peer, at);
    });
}

Group& Group::all_reduce(const Tensor& buffer, Reduction reduction, SourceLine at) {
    return add(at, [&](CommOperation& operation) {
        communicator_.fill_all_reduce(operation, buffer, buffer, reduction, at);
    });
}

Group& Group::all_gather(const Tensor& output, const Tensor& input, SourceLine at) {
    return add(at, [&](CommOperation& operation) {
        communicator_.fill_all_gather(operation, output, input, at);
    });
}

Group& Group::reduce_scatter(const Tensor& output, const Tensor& input,
                             Reduction reduction, SourceLine at) {
    return add(at, [&](CommOperation& operation) {
        communicator_.fill_reduce_scatter(operation, output, input, reduction, at);
    });
}

Group& Group::broadcast(const Tensor& buffer, int root, SourceLine at) {
    return add(at, [&](CommOperation& operation) {
        communicator_.fill_broadcast(operation, buffer, root, at);
    });
}

Group& Group::reduce(const Tensor& buffer, int root, Reduction reduction, SourceLine at) {
    return add(at, [&](CommOperation& operation) {
        communicator_.fill_reduce(operation, buffer, root, reduction, at);
    });
}

Work Group::start() {
    require(!started_, communicator_.group_at_,
            [] { return std::string("a group was started twice"); });
    started_ = true;
    communicator_.group_open_ = false;
    Work work = communicator_.do_launch(communicator_.grouped_, communicator_.group_at_);
    communicator_.grouped_.clear();
    return work;
}

}  // namespace lockstep
