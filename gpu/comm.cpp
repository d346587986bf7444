#include "gpu/comm.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "gpu/pause.hpp"

namespace lockstep::gpu {

/// Operations launched together: their buffers, and the event that ends them.
class Comm::Pending final : public PendingWork {
  public:
    Pending(RankRun& run, std::int64_t number, std::span<CommOperation> operations)
        : run_(run), number_(number) {
        for (CommOperation& operation : operations)
            for (Tensor* buffer : {&operation.output, &operation.input})
                buffers_.push_back(std::move(*buffer));
    }

    void wait(SourceLine at) override {
        run_.watch.check();
        run_.log.waited(number_, at);
        TraceEvent label;
        label.rank = run_.rank;
        Stream& stream = run_.device.stream();
        const std::size_t span =
            run_.spans.open(Spans::Kind::waiting, std::move(label), stream);
        stream.wait(end);
        run_.spans.close(span, stream);
        // What frees or overwrites the buffers from now on comes after the event.
        buffers_.clear();
    }

    bool done() const { return end.done(); }

    Event end;

  private:
    void release() noexcept override { delete this; }

    RankRun& run_;
    std::int64_t number_;
    std::vector<Tensor> buffers_;
};

Comm::Comm(RankRun& run, const std::string& name, int rank, std::vector<int> ranks,
           int number, NcclHandle handle)
    : Communicator(run.device, name, rank, static_cast<int>(ranks.size())),
      run_(run),
      ranks_(std::move(ranks)),
      number_(number),
      own_(std::move(handle)),
      token_(run.device.scratch({1}, DType::i32)),
      traffic_(&run.traffic.emplace_back(RankRun::Counts{name, {}}).counts) {}

Comm::Comm(RankRun& run, const std::string& name, int rank, std::vector<int> ranks,
           int number, NcclHandle* lent)
    : Comm(run, name, rank, std::move(ranks), number, NcclHandle(nullptr, run.watch)) {
    lent_ = lent;
}

Comm::~Comm() {
    try {
        // Alone, what was launched ends by itself.
        if (std::uncaught_exceptions() == 0 || run_.watch.alone()) {
            finish();
            return;
        }
    } catch (const std::exception&) {
    }
    // The run has failed, and what still runs may wait for peers that never come: it ends
    // before its stream does.
    (lent_ != nullptr ? *lent_ : own_).abort();
}

void Comm::finish() {
    Pause pause;
    while (!in_flight_.empty()) {
        let_go_of_finished();
        run_.watch.check();
        if (!in_flight_.empty()) pause();
    }
}

void Comm::let_go_of_finished() {
    while (!in_flight_.empty() && in_flight_.front()->done())
        in_flight_.pop_front();
}

Work Comm::do_launch(std::span<CommOperation> operations, SourceLine at) {
    run_.watch.progress();
    run_.watch.check();
    let_go_of_finished();
    const std::int64_t number = run_.log.launched(number_, operations);

    for (CommOperation& operation : operations)
        set_aside(operation);
    // After what the device issued before.
    stream_.wait_for(run_.device.stream());
    const std::size_t span =
        run_.spans.open(Spans::Kind::communication, label_of(operations, at), stream_);
    GPU_CHECK(ncclGroupStart());
    for (const CommOperation& operation : operations) {
        enqueue(operation);
        count(operation);
    }
    GPU_CHECK(ncclGroupEnd());
    handle().settle();
    run_.spans.close(span, stream_);

    boost::intrusive_ptr<Pending> pending(new Pending(run_, number, operations));
    stream_.record(pending->end);
    in_flight_.push_back(pending);
    return Work(pending.get());
}

void Comm::enqueue(const CommOperation& operation) {
    const void* input = operation.input.bytes_begin();
    void* output = operation.output.bytes_begin();
    const auto count = static_cast<std::size_t>(operation.count);
    const ncclDataType_t type = nccl_type(operation.dtype);
    const ncclRedOp_t reduction = nccl_operation(operation.reduction);
    const ncclComm_t comm = handle().get();
    cudaStream_t stream = stream_.get();
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
            return;
    }
}

void Comm::meet() {
    stream_.wait_for(run_.device.stream());
    enqueue_barrier();
    handle().settle();
    wait_here();
}

/// Until the stream has nothing left.
void Comm::wait_here() {
    Event reached;
    stream_.record(reached);
    for (Pause pause; !reached.done(); pause())
        run_.watch.check();
}

/// Values do not matter: that all have come does.
void Comm::enqueue_barrier() {
    GPU_CHECK(ncclAllReduce(token_.bytes_begin(), token_.bytes_begin(), 1, ncclInt32,
                            ncclMax, handle().get(), stream_.get()));
}

/// NCCL's all-to-all wants two buffers; ours may be one.
void Comm::set_aside(CommOperation& operation) {
    if (operation.verb != Verb::all_to_all || operation.count == 0 ||
        !operation.input.overlaps(operation.output))
        return;
    const Tensor aside =
        run_.device.scratch(operation.input.shape(), operation.input.dtype());
    run_.device.transfer(aside, operation.input);
    operation.input = aside;
}

TraceEvent Comm::label_of(std::span<const CommOperation> operations,
                          SourceLine at) const {
    TraceEvent label{.rank = run_.rank,
                     .queue = name(),
                     .name = {},
                     .kind = "communication",
                     .micro_batch = run_.monitor.micro_batch(),
                     .at = at};
    for (const CommOperation& operation : operations) {
        add_verb(label.name, operation.verb);
        label.bytes += operation.bytes();
    }
    return label;
}

void Comm::count(const CommOperation& operation) {
    TrafficByLink& counts = (*traffic_)[static_cast<std::size_t>(operation.verb)];
    const std::int64_t element_bytes = bytes_of(operation.dtype);
    if (is_point_to_point(operation.verb)) {
        const int peer = ranks_[static_cast<std::size_t>(operation.peer)];
        counts[run_.same_node(run_.rank, peer) ? 0 : 1] +=
            message_share(operation.verb, operation.count * element_bytes);
        return;
    }
    const TrafficByLink share = collective_share(
        {operation.verb, operation.count, element_bytes, size(),
         std::max(operation.peer, 0)},
        rank(), ranks_, [&](int a, int b) { return run_.same_node(a, b); });
    for (std::size_t link = 0; link < counts.size(); ++link)
        counts[link] += share[link];
}

std::unique_ptr<Communicator> Comm::do_split(int color, int key, const std::string& name,
                                             SourceLine at) {
    run_.watch.check();
    const int number = run_.log.split(number_, color, key, name, at);
    CommOperation operation;
    operation.verb = Verb::split;
    count(operation);
    // NCCL splits communicators that have nothing to do.
    finish();
    const std::vector<Place> places = places_of_all(color, key);
    NcclHandle part = handle().split(color, key);
    if (!part) return nullptr;

    std::vector<int> members;
    for (int member = 0; member < size(); ++member)
        if (places[static_cast<std::size_t>(member)].color == color)
            members.push_back(member);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
        return places[static_cast<std::size_t>(a)].key <
               places[static_cast<std::size_t>(b)].key;
    });
    const auto mine = std::find(members.begin(), members.end(), rank());
    const int place = static_cast<int>(mine - members.begin());
    for (int& member : members)
        member = ranks_[static_cast<std::size_t>(member)];
    return std::make_unique<Comm>(run_, name, place, std::move(members), number,
                                  std::move(part));
}

/// What every rank passed to a split, exchanged by an all-gather.
std::vector<Comm::Place> Comm::places_of_all(int color, int key) {
    static_assert(sizeof(Place) == 2 * sizeof(std::int32_t));
    const Place mine{color, key};
    std::vector<Place> all(static_cast<std::size_t>(size()));
    const Tensor one = run_.device.scratch({2}, DType::i32);
    const Tensor each = run_.device.scratch({2 * size()}, DType::i32);
    stream_.wait_for(run_.device.stream());
    GPU_CHECK(cudaMemcpyAsync(one.bytes_begin(), &mine, sizeof mine,
                              cudaMemcpyHostToDevice, stream_.get()));
    GPU_CHECK(ncclAllGather(one.bytes_begin(), each.bytes_begin(), 2, ncclInt32,
                            handle().get(), stream_.get()));
    handle().settle();
    wait_here();
    GPU_CHECK(cudaMemcpyAsync(all.data(), each.bytes_begin(), all.size() * sizeof mine,
                              cudaMemcpyDeviceToHost, stream_.get()));
    GPU_CHECK(cudaStreamSynchronize(stream_.get()));
    return all;
}

}  // namespace lockstep::gpu
