#include "gpu/comm.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::gpu {

namespace {

Channel& open_channel(RankRun& run, const std::string& name, std::vector<int> ranks,
                      int number) {
    Channel& channel = run.channels.emplace_back();
    channel.name = name;
    channel.ranks = std::move(ranks);
    channel.number = number;
    channel.token = run.device.scratch({1}, DType::i32);
    return channel;
}

}  // namespace

Comm::Comm(RankRun& run, Channel& channel, int rank, SourceLine made_at)
    : Communicator(run.device, channel.name, rank,
                   static_cast<int>(channel.ranks.size())),
      handle_(run.handle),
      run_(run),
      channel_(channel),
      made_at_(made_at) {}

Comm::~Comm() {
    if (*handle_ == nullptr || std::uncaught_exceptions() > 0) return;
    try {
        require_groups_started();
    } catch (const FaultError&) {
        if (!run_.mistake) run_.mistake = std::current_exception();
    }
}

std::unique_ptr<Comm> Comm::make_world(RankRun& run, NcclHandle& handle, int ranks) {
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    Channel& channel = open_channel(run, "world", std::move(members), 0);
    channel.handle = &handle;
    return std::unique_ptr<Comm>(new Comm(run, channel, run.rank, {}));
}

RankRun& Comm::run(SourceLine at) const {
    if (*handle_ == nullptr) throw used_after_run(made_at_, at);
    return run_;
}

Work Comm::do_launch(std::span<CommOperation> operations, SourceLine at) {
    // Requires that the run still goes on.
    RankRun& run = this->run(at);
    run.nccl.watch().progress();
    const auto doing = [&] { return during(names_of(operations), at); };
    return run.naming(doing, [&] { return launch(run, operations, at); });
}

Work Comm::launch(RankRun& run, std::span<CommOperation> operations, SourceLine at) {
    run.nccl.check();
    channel_.let_go_of_finished();

    // Write the request into the log.
    const std::int64_t number = run.log.launched(channel_.number, operations);
    for (CommOperation& operation : operations) {
        set_aside(operation);
        count(operation);
        run.device.forget_indices(operation.output);
    }

    // The launch begins after earlier operations of the device and after earlier launches
    // of this communicator. NCCL finds the partners and moves the values.
    channel_.stream.wait_for(run.device.stream());
    const std::size_t span = run.spans.open(Spans::Kind::communication,
                                            label_of(operations, at), channel_.stream);
    NcclGroup group;
    for (const CommOperation& operation : operations)
        enqueue(operation);
    group.end();
    channel_.handle->settle();
    run.spans.close(span, channel_.stream);
    run.log.launch_returned();

    // The returned work waits for the end of the launch.
    return channel_.launched(new LaunchedWork(handle_, number, operations));
}

std::string Comm::names_of(std::span<const CommOperation> operations) {
    std::string names;
    for (const CommOperation& operation : operations)
        add_verb(names, operation);
    return names;
}

TraceEvent Comm::label_of(std::span<const CommOperation> operations,
                          SourceLine at) const {
    TraceEvent label{.rank = run_.rank,
                     .queue = name(),
                     .name = names_of(operations),
                     .kind = "communication",
                     .micro_batch = run_.monitor.micro_batch(),
                     .at = at};
    for (const CommOperation& operation : operations)
        label.bytes += operation.bytes();
    return label;
}

void Comm::count(const CommOperation& operation) {
    if (operation.is_no_message(rank())) return;
    TrafficByLink& counts = channel_.traffic[static_cast<std::size_t>(operation.verb)];
    const std::int64_t element_bytes = bytes_of(operation.dtype);
    if (is_point_to_point(operation.verb)) {
        const int peer = channel_.ranks[operation.peer];
        counts[run_.same_node(run_.rank, peer) ? 0 : 1].add(
            message_share(operation.verb, operation.count * element_bytes));
        return;
    }
    const TrafficByLink share = collective_share(
        {operation.verb, operation.count, element_bytes, size(),
         std::max(operation.peer, 0)},
        rank(), channel_.ranks, [&](int a, int b) { return run_.same_node(a, b); });
    for (std::size_t link = 0; link < counts.size(); ++link)
        counts[link].add(share[link]);
}

void Comm::meet() {
    const Tensor greeted = run_.device.scratch({2}, DType::i32);
    channel_.stream.wait_for(run_.device.stream());
    enqueue_barrier();
    channel_.handle->settle(NcclHandle::Call::first);
    NcclGroup group;
    enqueue_greetings(greeted);
    group.end();
    channel_.handle->settle(NcclHandle::Call::first);
    wait_here();
}

/// Exchanges messages with both neighbours.
void Comm::enqueue_greetings(const Tensor& greeted) {
    if (size() == 1) return;
    const int neighbours[] = {(rank() + 1) % size(), (rank() + size() - 1) % size()};
    const int sides = size() == 2 ? 1 : 2;
    for (int side = 0; side < sides; ++side) {
        GPU_CHECK(ncclSend(channel_.token.bytes_begin(), 1, ncclInt32, neighbours[side],
                           nccl(), stream()));
        GPU_CHECK(ncclRecv(greeted.slice(side, 1).bytes_begin(), 1, ncclInt32,
                           neighbours[side], nccl(), stream()));
    }
}

/// Waits on the host until the stream is empty.
void Comm::wait_here() {
    Event reached;
    channel_.stream.record(reached);
    for (Pause pause; !reached.done(); pause())
        run_.while_waiting();
}

std::unique_ptr<Communicator> Comm::do_split(const SplitRequest& request, SourceLine at) {
    // Requires that the run still goes on.
    RankRun& run = this->run(at);
    const auto doing = [&] { return during("split", at); };
    return run.naming(doing, [&] { return split_in(run, request, at); });
}

std::unique_ptr<Communicator> Comm::split_in(RankRun& run, const SplitRequest& request,
                                             SourceLine at) {
    run.nccl.check();

    // Write the request into the log.
    const int number = run.log.split(channel_.number, request, at);
    CommOperation operation;
    operation.verb = Verb::split;
    count(operation);

    // Every rank sends its colour and key to all. NCCL can only split an idle
    // communicator, so places_of_all waits until this one is idle.
    const int color = request.color;
    const int key = request.key;
    const std::vector<Place> places = places_of_all(color, key);
    NcclHandle part = channel_.handle->split(color, key);
    if (!part) return nullptr;

    // The ranks of one colour, ordered by their keys, make a communicator.
    std::vector<int> members;
    for (int member = 0; member < size(); ++member)
        if (places[member].color == color) members.push_back(member);
    std::stable_sort(members.begin(), members.end(),
                     [&](int a, int b) { return places[a].key < places[b].key; });
    require_expected(request, members, at);
    const auto mine = std::find(members.begin(), members.end(), rank());
    const int place = static_cast<int>(mine - members.begin());
    for (int& member : members)
        member = channel_.ranks[member];
    Channel& channel = open_channel(run, request.name, std::move(members), number);
    channel.own = std::move(part);
    channel.handle = &channel.own;
    std::unique_ptr<Comm> comm(new Comm(run, channel, place, at));
    comm->meet();
    return comm;
}

/// A rank on a GPU does not see the other ranks' requests, so the diagnosis lacks them.
void Comm::require_expected(const SplitRequest& request, const std::vector<int>& made,
                            SourceLine at) const {
    if (request.members.empty() || request.members == made) return;
    Diagnosis diagnosis = diagnosis_of("F06");
    diagnosis.communicator = name();
    diagnosis.members = channel_.ranks;
    diagnosis.sentence = fmt::format(
        "rank {} calls {} at {}, but together the calls of the ranks of {} make {} from "
        "{}",
        owner(), text_of(request), at.text(), name(), request.name, member_text(made));
    diagnosis.parties.push_back({{owner()}, text_of(request), "members", at, {}});
    throw FaultError(std::move(diagnosis));
}

/// Returns what every rank passed to a split, exchanged by an all-gather.
std::vector<Comm::Place> Comm::places_of_all(int color, int key) {
    static_assert(sizeof(Place) == 2 * sizeof(std::int32_t));
    std::vector<Place> all(static_cast<std::size_t>(size()));
    const Tensor one = run_.device.scratch({2}, DType::i32);
    const Tensor each = run_.device.scratch({std::int64_t{2} * size()}, DType::i32);
    HostTensor mine({2}, DType::i32);
    mine.set(0, color);
    mine.set(1, key);
    run_.device.transfer_from_host(one, mine);
    channel_.stream.wait_for(run_.device.stream());
    GPU_CHECK(ncclAllGather(one.bytes_begin(), each.bytes_begin(), 2, ncclInt32, nccl(),
                            stream()));
    channel_.handle->settle();
    wait_here();
    GPU_CHECK(cudaMemcpyAsync(all.data(), each.bytes_begin(), all.size() * sizeof(Place),
                              cudaMemcpyDeviceToHost, stream()));
    GPU_CHECK(cudaStreamSynchronize(stream()));
    return all;
}

BytesByVerb Comm::do_bytes_sent(SourceLine at) const {
    run(at);
    BytesByVerb bytes{};
    for (std::size_t verb = 0; verb < kVerbs; ++verb)
        for (const TrafficCount& link : channel_.traffic[verb])
            bytes[verb] += link.bytes_sent;
    return bytes;
}

// The calls of NCCL for each verb.

/// NCCL's all-to-all needs two buffers; ours also accepts one buffer for both.
void Comm::set_aside(CommOperation& operation) {
    if (operation.verb != Verb::all_to_all || operation.count == 0 ||
        !operation.input.overlaps(operation.output))
        return;
    const Tensor aside = run_.device.scratch(operation.input.shape(),
                                             operation.input.dtype(), operation.at);
    run_.device.transfer(aside, operation.input, operation.at);
    operation.input = aside;
}

void Comm::enqueue(const CommOperation& operation) {
    const void* input = operation.input.bytes_begin();
    void* output = operation.output.bytes_begin();
    const auto count = static_cast<std::size_t>(operation.count);
    const ncclDataType_t type = nccl_type(operation.dtype);
    const ncclRedOp_t reduction = nccl_operation(operation.reduction);
    const ncclComm_t comm = nccl();
    const cudaStream_t stream = this->stream();
    if (operation.verb == Verb::barrier) return enqueue_barrier();
    if (count == 0) return;
    switch (operation.verb) {
        case Verb::all_reduce:
            GPU_CHECK(ncclAllReduce(input, output, count, type, reduction, comm, stream));
            return;
        case Verb::all_gather:
            GPU_CHECK(ncclAllGather(input, output, count, type, comm, stream));
            return;
        case Verb::reduce_scatter:
            GPU_CHECK(
                ncclReduceScatter(input, output, count, type, reduction, comm, stream));
            return;
        case Verb::broadcast:
            GPU_CHECK(
                ncclBroadcast(input, output, count, type, operation.peer, comm, stream));
            return;
        case Verb::reduce:
            GPU_CHECK(ncclReduce(input, output, count, type, reduction, operation.peer,
                                 comm, stream));
            return;
        case Verb::gather:
            return enqueue_gather(operation);
        case Verb::scatter:
            return enqueue_scatter(operation);
        case Verb::all_to_all:
            return enqueue_all_to_all(operation);
        case Verb::send:
            GPU_CHECK(ncclSend(input, count, type, operation.peer, comm, stream));
            return;
        case Verb::recv:
            GPU_CHECK(ncclRecv(output, count, type, operation.peer, comm, stream));
            return;
        case Verb::barrier:
        case Verb::split:
        case Verb::copy:
            return;
    }
}

/// An all-reduce cannot end before every rank has begun it; nobody reads the value.
void Comm::enqueue_barrier() {
    GPU_CHECK(ncclAllReduce(channel_.token.bytes_begin(), channel_.token.bytes_begin(), 1,
                            ncclInt32, ncclMax, nccl(), stream()));
}

// The collectives that distribute blocks. NCCL has calls for them since version 2.28. In
// older versions, messages in one group do the same.

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)

void Comm::enqueue_all_to_all(const CommOperation& operation) {
    GPU_CHECK(ncclAlltoAll(operation.input.bytes_begin(), operation.output.bytes_begin(),
                           static_cast<std::size_t>(operation.count),
                           nccl_type(operation.dtype), nccl(), stream()));
}

void Comm::enqueue_gather(const CommOperation& operation) {
    GPU_CHECK(ncclGather(operation.input.bytes_begin(), operation.output.bytes_begin(),
                         static_cast<std::size_t>(operation.count),
                         nccl_type(operation.dtype), operation.peer, nccl(), stream()));
}

void Comm::enqueue_scatter(const CommOperation& operation) {
    GPU_CHECK(ncclScatter(operation.input.bytes_begin(), operation.output.bytes_begin(),
                          static_cast<std::size_t>(operation.count),
                          nccl_type(operation.dtype), operation.peer, nccl(), stream()));
}

#else

void Comm::enqueue_message(Verb verb, const Tensor& buffer, std::int64_t begin,
                           std::int64_t count, int peer) {
    const Tensor block = buffer.slice(begin, count);
    if (verb == Verb::send)
        GPU_CHECK(ncclSend(block.bytes_begin(), static_cast<std::size_t>(count),
                           nccl_type(block.dtype()), peer, nccl(), stream()));
    else
        GPU_CHECK(ncclRecv(block.bytes_begin(), static_cast<std::size_t>(count),
                           nccl_type(block.dtype()), peer, nccl(), stream()));
}

void Comm::enqueue_all_to_all(const CommOperation& operation) {
    for (int peer = 0; peer < size(); ++peer) {
        const std::int64_t begin = peer * operation.count;
        enqueue_message(Verb::send, operation.input, begin, operation.count, peer);
        enqueue_message(Verb::recv, operation.output, begin, operation.count, peer);
    }
}

void Comm::enqueue_gather(const CommOperation& operation) {
    enqueue_message(Verb::send, operation.input, 0, operation.count, operation.peer);
    if (rank() != operation.peer) return;
    for (int peer = 0; peer < size(); ++peer)
        enqueue_message(Verb::recv, operation.output, peer * operation.count,
                        operation.count, peer);
}

void Comm::enqueue_scatter(const CommOperation& operation) {
    enqueue_message(Verb::recv, operation.output, 0, operation.count, operation.peer);
    if (rank() != operation.peer) return;
    for (int peer = 0; peer < size(); ++peer)
        enqueue_message(Verb::send, operation.input, peer * operation.count,
                        operation.count, peer);
}

#endif

}  // namespace lockstep::gpu
