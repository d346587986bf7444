// What a rank's process may ask of its device and its communicators, as calls of theirs.

#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "lessons/grader/remote/rank_session.hpp"
#include "src/comm/expect.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

Work start_one(Communicator& group, const CommOperation& asked) {
    switch (asked.verb) {
        case Verb::all_reduce:
            return group.all_reduce(asked.output, asked.input, asked.reduction, asked.at);
        case Verb::all_gather:
            return group.all_gather(asked.output, asked.input, asked.at);
        case Verb::reduce_scatter:
            return group.reduce_scatter(asked.output, asked.input, asked.reduction,
                                        asked.at);
        case Verb::broadcast:
            return group.broadcast(asked.input, asked.peer, asked.at);
        case Verb::reduce:
            return group.reduce(asked.input, asked.peer, asked.reduction, asked.at);
        case Verb::gather:
            return group.gather(asked.output, asked.input, asked.peer, asked.at);
        case Verb::scatter:
            return group.scatter(asked.output, asked.input, asked.peer, asked.at);
        case Verb::all_to_all:
            return group.all_to_all(asked.output, asked.input, asked.at);
        case Verb::send:
            return group.send(asked.input, asked.peer, asked.at);
        case Verb::recv:
            return group.recv(asked.output, asked.peer, asked.at);
        case Verb::barrier:
            return group.barrier(asked.at);
        case Verb::split:
            break;
    }
    throw WireError("a split is launched");
}

void add_to(Group& group, const CommOperation& asked) {
    switch (asked.verb) {
        case Verb::all_reduce:
            group.all_reduce(asked.output, asked.reduction, asked.at);
            return;
        case Verb::all_gather:
            group.all_gather(asked.output, asked.input, asked.at);
            return;
        case Verb::reduce_scatter:
            group.reduce_scatter(asked.output, asked.input, asked.reduction, asked.at);
            return;
        case Verb::broadcast:
            group.broadcast(asked.input, asked.peer, asked.at);
            return;
        case Verb::reduce:
            group.reduce(asked.input, asked.peer, asked.reduction, asked.at);
            return;
        case Verb::send:
            group.send(asked.input, asked.peer, asked.at);
            return;
        case Verb::recv:
            group.recv(asked.output, asked.peer, asked.at);
            return;
        default:
            throw WireError("a group has what no group takes");
    }
}

}  // namespace

/// What attention takes is bounded by no memory, and nothing ends it on its way.
void RankSession::require_short(const AttentionHeads& heads, SourceLine at) {
    const Heads& queries = heads.queries;
    const Heads& keys = heads.keys;
    constexpr double kBesideWidth = 16;
    const double pairs =
        static_cast<double>(queries.rows()) * static_cast<double>(keys.rows()) *
        static_cast<double>(queries.batches()) * static_cast<double>(queries.heads);
    require(pairs * (kBesideWidth + static_cast<double>(queries.width)) <= kMostAttention,
            at,
            "attention of {} queries to {} keys in {} batches of {} heads of "
            "width {} takes more time than a graded program has",
            queries.rows(), keys.rows(), queries.batches(), queries.heads, queries.width);
}

void RankSession::empty(WireReader& in, WireWriter& out) {
    rank_.device().set_category(in.get<MemoryCategory>());
    const auto shape = in.get<Shape>();
    const auto dtype = in.get<DType>();
    const auto at = in.get<SourceLine>();
    in.end();
    out(rank_.device().empty(shape, dtype, at));
}

void RankSession::upload_into(WireReader& in) {
    const auto destination = in.get<Tensor>();
    const auto values = in.get<HostTensor>();
    const auto at = in.get<SourceLine>();
    in.end();
    rank_.device().upload_into(destination, values, at);
}

/// Values that come to the host.
void RankSession::read(RankRequest request, WireReader& in, WireWriter& out) {
    const auto source = in.get<Tensor>();
    const auto at = in.get<SourceLine>();
    in.end();
    require(may_download_, at,
            "this is graded, and computes on the device: what is there cannot be read on "
            "the host");
    Device& device = rank_.device();
    out(request == RankRequest::download ? device.download(source, at)
                                         : device.peek(source, at));
}

void RankSession::perform(WireReader& in, WireWriter& out) {
    rank_.device().set_category(in.get<MemoryCategory>());
    with_operation(in.get<OperationKind>(), [&](auto op) {
        using Op = decltype(op);
        in(op);
        const auto at = in.get<SourceLine>();
        in.end();
        if constexpr (std::is_same_v<Op, ops::Attend> ||
                      std::is_same_v<Op, ops::AttendBackward>)
            require_short(op.heads, at);
        rank_.device().perform(OperationRef(op), at);
        if constexpr (kMakesResults<Op>)
            op.make([&out](const Tensor& result, const Shape&, DType) { out(result); });
    });
}

Communicator& RankSession::communicator(WireReader& in) {
    const int number = in.get<int>();
    if (number == kWorldNumber) return rank_.world();
    const auto found = communicators_.find(number);
    if (found == communicators_.end())
        throw WireError("a communicator that is not there");
    return *found->second;
}

void RankSession::keep(Work work, WireWriter& out) {
    works_.emplace(++last_work_, std::move(work));
    out(last_work_);
}

void RankSession::require_name(const std::string& name) {
    if (name.size() > kLongestName) throw WireError("a name is too long");
}

void RankSession::launch(WireReader& in, WireWriter& out) {
    Communicator& group = communicator(in);
    const auto operations = in.get<std::vector<CommOperation>>();
    const auto at = in.get<SourceLine>();
    in.end();
    if (operations.size() > kMostInGroup)
        throw WireError("a group has more operations than a program's has");
    if (!operations.empty())
        requests_ += static_cast<std::int64_t>(operations.size()) - 1;
    if (operations.size() == 1) return keep(start_one(group, operations.front()), out);
    Group together = group.group(at);
    for (const CommOperation& operation : operations)
        add_to(together, operation);
    keep(together.start(at), out);
}

void RankSession::all_to_all_v(WireReader& in, WireWriter& out) {
    Communicator& group = communicator(in);
    const auto output = in.get<Tensor>();
    const auto recv_counts = in.get<std::vector<std::int64_t>>();
    const auto input = in.get<Tensor>();
    const auto send_counts = in.get<std::vector<std::int64_t>>();
    const auto at = in.get<SourceLine>();
    in.end();
    keep(group.all_to_all_v(output, recv_counts, input, send_counts, at), out);
}

void RankSession::split(WireReader& in, WireWriter& out) {
    Communicator& group = communicator(in);
    const auto request = in.get<SplitRequest>();
    const auto at = in.get<SourceLine>();
    in.end();
    require_name(request.name);
    if (request.members.size() > static_cast<std::size_t>(group.size()))
        throw WireError("a split has more members than there are ranks");
    std::unique_ptr<Communicator> made = group.split(request, at);
    if (!made) return out(std::vector<int>{-1, 0, 0});
    out(std::vector<int>{++last_communicator_, made->rank(), made->size()});
    communicators_.emplace(last_communicator_, std::move(made));
}

void RankSession::say_of_replicas(RankRequest request, WireReader& in) {
    Communicator& group = communicator(in);
    const auto tensor = in.get<Tensor>();
    const auto name = in.get<std::string>();
    const auto at = in.get<SourceLine>();
    in.end();
    if (!tensor) throw WireError("replicas of no tensor");
    require_name(name);
    switch (request) {
        case RankRequest::expect_replicated:
            return lockstep::expect_replicated(group, tensor, name, at);
        case RankRequest::declare_replicas:
            return lockstep::declare_replicas(group, tensor, name, at);
        default:
            return lockstep::declare_same(group, tensor, name, at);
    }
}

}  // namespace lockstep::lessons
