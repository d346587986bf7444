#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"

namespace lockstep::lessons {

namespace {

struct Ring {
    int ranks = 1;
    std::int64_t elements = 0;
    DType dtype = DType::f64;

    std::string name() const {
        return fmt::format("{} rank{}, {} element{}{}", ranks, ranks == 1 ? "" : "s",
                           elements, elements == 1 ? "" : "s",
                           dtype == DType::f64 ? "" : " in f32");
    }
    double bound() const { return dtype == DType::f64 ? 1e-10 : 1e-5; }
};

/// Sizes that ranks divide and do not divide, fewer elements than ranks, one rank,
/// another type, and a ring that nobody has seen.
std::vector<Ring> rings(const Judge& judge) {
    return {
        {2, 8},
        {3, 10},
        {1, 6},
        {5, 3},
        {4, 21, DType::f32},
        {static_cast<int>(judge.draw("ranks", 6, 8)), judge.draw("elements", 33, 95)}};
}

/// One whose messages are long against their latency.
constexpr Ring kLong{4, 40'000};

HostTensor buffer_of(const Judge& judge, const Ring& ring, int rank) {
    return judge.normal(fmt::format("{}, rank {}", ring.name(), rank), {ring.elements})
        .as(ring.dtype);
}

const TaskResult& run(Judge& judge, const std::string& task, const Ring& ring) {
    TaskRun asked{ring.name(), {}};
    for (int rank = 0; rank < ring.ranks; ++rank)
        asked.ranks.push_back({task, {{"buffer", {buffer_of(judge, ring, rank)}}}, {}});
    return judge.run(asked);
}

HostTensor sum_of(const Judge& judge, const Ring& ring) {
    HostTensor sum({ring.elements}, ring.dtype);
    for (int rank = 0; rank < ring.ranks; ++rank) {
        const HostTensor buffer = buffer_of(judge, ring, rank);
        for (std::int64_t i = 0; i < ring.elements; ++i)
            sum.set(i, sum.at(i) + buffer.at(i));
    }
    return sum;
}

Chunk own_chunk(const Ring& ring, int rank) {
    return chunk(ring.elements, ring.ranks, rank);
}

/// Every rank's chunk of its own buffer.
HostTensor gathered(const Judge& judge, const Ring& ring) {
    HostTensor all({ring.elements}, ring.dtype);
    for (int rank = 0; rank < ring.ranks; ++rank) {
        const HostTensor buffer = buffer_of(judge, ring, rank);
        const Chunk own = own_chunk(ring, rank);
        for (std::int64_t i = own.begin; i < own.begin + own.count; ++i)
            all.set(i, buffer.at(i));
    }
    return all;
}

std::string buffer_text(const Ring& ring, int rank) {
    return fmt::format("{}: the buffer of rank {}", ring.name(), rank);
}

void judge_reduce_scatter(Judge& judge) {
    for (const Ring& ring : rings(judge)) {
        const TaskResult& result = run(judge, "reduce_scatter", ring);
        const HostTensor sum = sum_of(judge, ring);
        for (int rank = 0; rank < ring.ranks; ++rank) {
            const Chunk own = own_chunk(ring, rank);
            const HostTensor& left = judge.left(result.ranks[rank], "buffer");
            Judge::form(buffer_text(ring, rank), left, {ring.elements}, ring.dtype);
            judge.close(fmt::format("{}: chunk {} on its rank", ring.name(), rank),
                        left.rows(own.begin, own.count), sum.rows(own.begin, own.count),
                        ring.bound());
        }
    }
}

/// Every rank's buffer came out as `expected`.
void judge_buffers(Judge& judge, const TaskResult& result, const Ring& ring,
                   const HostTensor& expected) {
    for (int rank = 0; rank < ring.ranks; ++rank)
        judge.close(buffer_text(ring, rank), judge.left(result.ranks[rank], "buffer"),
                    expected, ring.bound());
}

void judge_whole(Judge& judge, const std::string& task,
                 HostTensor (*expected)(const Judge&, const Ring&)) {
    for (const Ring& ring : rings(judge))
        judge_buffers(judge, run(judge, task, ring), ring, expected(judge, ring));
}

/// A chunk of nothing need not be sent.
Allowed messages_allowed(const Ring& ring) {
    return {ring.elements < ring.ranks ? 100 : 0, 0};
}

/// Judges the bytes of a reduce-scatter or an all-gather, which leave no choice.
void judge_bytes(Judge& judge, const std::string& exercise, const std::string& task) {
    for (const Ring& ring : rings(judge)) {
        const TaskResult& result = run(judge, task, ring);
        judge.one_way(ring.name(), result.report, Judge::Way::to_rank_before);
        for (int rank = 0; rank < ring.ranks; ++rank) {
            const RankReport& left = result.report.ranks[rank];
            const std::string name =
                fmt::format("{}: {}: rank {}", exercise, ring.name(), rank);
            judge.as_reference(name + ": sent", "bytes", left.bytes_sent());
            judge.as_reference(name + ": messages", "messages", left.messages_sent(),
                               messages_allowed(ring));
        }
    }
}

/// Judges the bytes of an all-reduce. Which two chunks a rank does not send depends on
/// where each is whole; how much all ranks send together does not.
void judge_all_bytes(Judge& judge) {
    for (const Ring& ring : rings(judge)) {
        const TaskResult& result = run(judge, "all_reduce", ring);
        judge.one_way(ring.name(), result.report, Judge::Way::to_rank_before);
        const std::string name = "a1.3: " + ring.name();
        judge.as_reference(name + ": sent by all", "bytes", result.report.bytes_sent());
        judge.as_reference(name + ": messages of all", "messages",
                           result.report.messages_sent(), messages_allowed(ring));
        const std::int64_t each = ring.elements / ring.ranks * bytes_of(ring.dtype);
        const std::int64_t most = 2 * (ring.elements * bytes_of(ring.dtype) - each);
        for (const RankReport& rank : result.report.ranks)
            judge.ask(ring.ranks == 1 || rank.bytes_sent() <= most,
                      fmt::format("{}: at most {} bytes a rank", name, most),
                      fmt::format("{} bytes", rank.bytes_sent()));
    }
}

/// Time and memory count only if the result is right, and was made by a ring.
const TaskResult& run_long(Judge& judge) {
    const TaskResult& result = run(judge, "all_reduce", kLong);
    judge_buffers(judge, result, kLong, sum_of(judge, kLong));
    judge.one_way(kLong.name(), result.report, Judge::Way::to_rank_before);
    return result;
}

void judge_time(Judge& judge) {
    const TaskResult& result = run_long(judge);
    judge.as_reference(fmt::format("a1.3: {}: time", kLong.name()), kPicoseconds,
                       result.report.makespan(), {100, 10});
}

void judge_memory(Judge& judge) {
    const TaskResult& result = run_long(judge);
    for (int rank = 0; rank < kLong.ranks; ++rank)
        judge.as_reference(fmt::format("a1.3: {}: rank {}: peak", kLong.name(), rank),
                           "bytes of memory", result.report.ranks[rank].memory.peak,
                           {100, 2});
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, "gradient-accumulation, step 5", std::move(judge)};
}

}  // namespace

Assignment ring_all_reduce_assignment() {
    const auto bytes = [](const std::string& exercise, const std::string& task) {
        return [exercise, task](Judge& judge) { judge_bytes(judge, exercise, task); };
    };
    return {
        "ring-all-reduce",
        "A ring all-reduce",
        "Reduce-scatter, all-gather and all-reduce out of send and recv, for any number "
        "of ranks and elements.",
        {"ring.hpp", "ring.cpp", "adapters.cpp"},
        {criterion("a1.1-values", "reduce_scatter leaves each rank its chunk of the sum",
                   15, judge_reduce_scatter),
         criterion("a1.1-bytes", "reduce_scatter sends round the ring, all but one chunk",
                   10, bytes("a1.1", "reduce_scatter")),
         criterion("a1.2-values", "all_gather leaves every rank all chunks", 15,
                   [](Judge& judge) { judge_whole(judge, "all_gather", gathered); }),
         criterion("a1.2-bytes", "all_gather sends round the ring, all but one chunk", 10,
                   bytes("a1.2", "all_gather")),
         criterion("a1.3-values", "all_reduce leaves every rank the sum", 20,
                   [](Judge& judge) { judge_whole(judge, "all_reduce", sum_of); }),
         criterion("a1.3-bytes", "all_reduce sends 2(n-1)/n of the buffer", 10,
                   judge_all_bytes),
         criterion("a1.3-time", "all_reduce keeps all links busy at once", 10,
                   judge_time),
         criterion("a1.3-memory", "all_reduce needs room for one chunk beside the buffer",
                   10, judge_memory)}};
}

}  // namespace lockstep::lessons
