#include <functional>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"
#include "src/cost/cluster_spec.hpp"

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
    int before(int rank) const { return (rank + ranks - 1) % ranks; }
    Chunk chunk_of(int rank) const { return chunk(elements, ranks, rank); }
    std::int64_t bytes() const { return elements * bytes_of(dtype); }
    std::int64_t chunk_bytes(int rank) const {
        return chunk_of(rank).count * bytes_of(dtype);
    }
};

/// Sizes that ranks divide and do not divide, fewer elements than ranks, one rank,
/// another type, and a larger ring; drawn anew for each grading. The first has chunks of
/// one size, so that a wrong way round is no mistake of sizes.
std::vector<Ring> rings(const Judge& judge) {
    const auto draw = [&](const char* name, std::int64_t low, std::int64_t high) {
        return judge.draw(name, low, high);
    };
    return {{4, 4 * draw("fours", 2, 9)},
            {2, draw("two", 5, 19)},
            {3, 3 * draw("threes", 2, 9) + draw("rest of threes", 1, 2)},
            {1, draw("one", 2, 9)},
            {5, draw("few", 1, 4)},
            {4, 4 * draw("floats", 3, 9) + draw("rest of floats", 1, 3), DType::f32},
            {static_cast<int>(draw("ranks", 6, 8)), draw("elements", 33, 95)}};
}

/// One whose messages are long against their latency.
Ring long_ring(const Judge& judge) {
    const auto ranks = static_cast<int>(judge.draw("ranks of the long one", 5, 7));
    return {ranks, ranks * judge.draw("long", 7'000, 9'000)};
}

HostTensor buffer_of(const Judge& judge, const Ring& ring, int rank) {
    return judge.normal(fmt::format("{}, rank {}", ring.name(), rank), {ring.elements})
        .as(ring.dtype);
}

/// Each rank's buffer.
std::vector<HostTensor> buffers_of(const Judge& judge, const Ring& ring) {
    std::vector<HostTensor> buffers;
    buffers.reserve(static_cast<std::size_t>(ring.ranks));
    for (int rank = 0; rank < ring.ranks; ++rank)
        buffers.push_back(buffer_of(judge, ring, rank));
    return buffers;
}

void add_to(HostTensor& sum, const HostTensor& values, double factor = 1) {
    for (std::int64_t i = 0; i < sum.elements(); ++i)
        sum.set(i, sum.at(i) + factor * values.at(i));
}

HostTensor sum_of(const std::vector<HostTensor>& buffers) {
    HostTensor sum(buffers[0].shape(), buffers[0].dtype());
    for (const HostTensor& buffer : buffers)
        add_to(sum, buffer);
    return sum;
}

// Why a run went wrong, as far as what it left and sent tells.

/// Says what a rank's chunk holds, if it is not the sum over all ranks: `got` and the
/// same chunk of each rank's buffer.
std::string cause_of_sum(const Ring& ring, const HostTensor& got,
                         const std::vector<HostTensor>& of_ranks, int rank) {
    const auto is = [&](const HostTensor& values) {
        return Judge::are_close(got, values, ring.bound());
    };
    HostTensor mean(got.shape(), got.dtype());
    for (const HostTensor& values : of_ranks)
        add_to(mean, values, 1.0 / ring.ranks);
    if (ring.ranks > 1 && is(mean))
        return "that is the mean over the ranks; a sum is asked";
    for (int only = 0; only < ring.ranks; ++only) {
        if (!is(of_ranks[static_cast<std::size_t>(only)])) continue;
        return only == rank
                   ? "these are the rank's own values: nothing was added to "
                     "them; is the last hop missing?"
                   : fmt::format("these are the values of rank {} alone, and no sum",
                                 only);
    }
    const HostTensor sum = sum_of(of_ranks);
    for (int missing = 0; missing < ring.ranks; ++missing) {
        HostTensor others = sum;
        add_to(others, of_ranks[static_cast<std::size_t>(missing)], -1);
        if (is(others))
            return fmt::format(
                "the sum lacks the values of rank {}: these are the values before a hop "
                "that is missing",
                missing);
        add_to(others, of_ranks[static_cast<std::size_t>(missing)], 2);
        if (is(others))
            return fmt::format("the values of rank {} are in the sum twice", missing);
    }
    return "";
}

std::vector<HostTensor> chunks_of(const std::vector<HostTensor>& buffers,
                                  const Chunk& part) {
    std::vector<HostTensor> chunks;
    chunks.reserve(buffers.size());
    for (const HostTensor& buffer : buffers)
        chunks.push_back(buffer.rows(part.begin, part.count));
    return chunks;
}

/// Returns a run that came to its end, by what is allowed.
const TaskResult& run(Judge& judge, const std::string& task, const Ring& ring) {
    TaskRun asked{ring.name(), {}};
    for (int rank = 0; rank < ring.ranks; ++rank)
        asked.ranks.push_back({task, {{"buffer", {buffer_of(judge, ring, rank)}}}, {}});
    return judge.run_ring(asked, Judge::Way::to_rank_before);
}

const HostTensor& buffer_left(Judge& judge, const Ring& ring, const TaskResult& result,
                              int rank) {
    const HostTensor& left =
        judge.left(result.ranks[static_cast<std::size_t>(rank)], "buffer");
    Judge::form(fmt::format("{}: the buffer of rank {}", ring.name(), rank), left,
                {ring.elements}, ring.dtype);
    return left;
}

/// Asks that a chunk of what a rank left is as expected; else `cause` says what it is.
void ask_chunk(Judge& judge, const Ring& ring, const TaskResult& result, int rank,
               int chunk, const HostTensor& expected,
               const std::function<std::string(const HostTensor&)>& cause) {
    const Chunk part = ring.chunk_of(chunk);
    const HostTensor got =
        buffer_left(judge, ring, result, rank).rows(part.begin, part.count);
    try {
        judge.close(fmt::format("{}: chunk {} on rank {}", ring.name(), chunk, rank), got,
                    expected.rows(part.begin, part.count), ring.bound());
    } catch (Judge::No& no) {
        const std::string way =
            Judge::other_way(result.report, ring.ranks, Judge::Way::to_rank_before);
        no.explain(way.empty() ? cause(got) : way);
        throw;
    }
}

/// Returns a run of reduce_scatter whose values are right.
const TaskResult& scattered(Judge& judge, const Ring& ring) {
    const TaskResult& result = run(judge, "reduce_scatter", ring);
    const auto buffers = buffers_of(judge, ring);
    for (int rank = 0; rank < ring.ranks; ++rank)
        ask_chunk(judge, ring, result, rank, rank, sum_of(buffers),
                  [&](const HostTensor& got) {
                      return cause_of_sum(ring, got,
                                          chunks_of(buffers, ring.chunk_of(rank)), rank);
                  });
    return result;
}

/// Says whose values a chunk is made of, if they are not those of the rank whose it is.
std::string cause_of_gathered(const Ring& ring, const HostTensor& got,
                              const std::vector<HostTensor>& of_ranks, int rank) {
    for (int from = 0; from < ring.ranks; ++from)
        if (Judge::are_close(got, of_ranks[static_cast<std::size_t>(from)], ring.bound()))
            return from == rank
                       ? "that is what the rank held there itself: the chunk did not "
                         "arrive; is a hop missing, or does a rank hand on another chunk?"
                       : fmt::format(
                             "that is what rank {} held there: each rank hands "
                             "on what it received last, its own chunk first",
                             from);
    return "";
}

/// Returns a run of all_gather whose values are right.
const TaskResult& gathered(Judge& judge, const Ring& ring) {
    const TaskResult& result = run(judge, "all_gather", ring);
    const auto buffers = buffers_of(judge, ring);
    for (int rank = 0; rank < ring.ranks; ++rank)
        for (int chunk = 0; chunk < ring.ranks; ++chunk)
            ask_chunk(judge, ring, result, rank, chunk,
                      buffers[static_cast<std::size_t>(chunk)],
                      [&](const HostTensor& got) {
                          return cause_of_gathered(
                              ring, got, chunks_of(buffers, ring.chunk_of(chunk)), rank);
                      });
    return result;
}

/// Returns a run of all_reduce whose values are right.
const TaskResult& reduced(Judge& judge, const Ring& ring) {
    const TaskResult& result = run(judge, "all_reduce", ring);
    const auto buffers = buffers_of(judge, ring);
    const HostTensor sum = sum_of(buffers);
    bool scattered = ring.ranks > 1;
    for (int rank = 0; rank < ring.ranks; ++rank) {
        const Chunk own = ring.chunk_of(rank);
        scattered = scattered &&
                    Judge::are_close(
                        buffer_left(judge, ring, result, rank).rows(own.begin, own.count),
                        sum.rows(own.begin, own.count), ring.bound());
    }
    for (int rank = 0; rank < ring.ranks; ++rank)
        for (int chunk = 0; chunk < ring.ranks; ++chunk)
            ask_chunk(judge, ring, result, rank, chunk, sum, [&](const HostTensor& got) {
                if (scattered)
                    return std::string(
                        "each rank has its own chunk of the sum: what is missing is "
                        "that they gather all chunks");
                return cause_of_sum(ring, got, chunks_of(buffers, ring.chunk_of(chunk)),
                                    rank);
            });
    return result;
}

using RightRun = const TaskResult& (*)(Judge&, const Ring&);

/// Returns a run whose values are right, for what it cost: else `id` has said what is
/// wrong.
const TaskResult& run_right(Judge& judge, const std::string& id, RightRun right,
                            const Ring& ring) {
    const TaskResult* result = nullptr;
    needs(judge, id, [&](Judge& asking) { result = &right(asking, ring); });
    judge.one_way(ring.name(), result->report, Judge::Way::to_rank_before);
    return *result;
}

void judge_values(Judge& judge, RightRun right) {
    for (const Ring& ring : rings(judge))
        right(judge, ring);
}

/// A chunk of nothing need not be sent.
Allowed messages_allowed(const Ring& ring) {
    return {ring.elements < ring.ranks ? 100 : 0, 0};
}

/// Judges the bytes of a reduce-scatter or an all-gather, which leave no choice: a rank
/// sends every chunk but one, `kept(ring, rank)`.
void judge_bytes(Judge& judge, const std::string& exercise, RightRun right,
                 int (*kept)(const Ring&, int)) {
    for (const Ring& ring : rings(judge)) {
        const TaskResult& result = run_right(judge, exercise + "-values", right, ring);
        for (int rank = 0; rank < ring.ranks; ++rank) {
            const RankReport& left = result.report.ranks[static_cast<std::size_t>(rank)];
            const std::string name =
                fmt::format("{}: {}: rank {}", exercise, ring.name(), rank);
            judge.figure(name + ": sent", "bytes",
                         ring.bytes() - ring.chunk_bytes(kept(ring, rank)),
                         left.bytes_sent());
            judge.figure(name + ": messages", "messages", ring.ranks - 1,
                         left.messages_sent(), messages_allowed(ring));
        }
    }
}

/// Its own chunk stays on a rank when it is whole.
int kept_by_scatter(const Ring&, int rank) {
    return rank;
}

/// The rank before, which takes the messages, has its own chunk.
int kept_by_gather(const Ring& ring, int rank) {
    return ring.before(rank);
}

/// Judges the bytes of an all-reduce. Which two chunks a rank does not send depends on
/// where each is whole; how much all ranks send together does not.
void judge_all_bytes(Judge& judge) {
    for (const Ring& ring : rings(judge)) {
        const TaskResult& result = run_right(judge, "a1.3-values", reduced, ring);
        const std::string name = "a1.3: " + ring.name();
        const std::int64_t hops = 2 * (std::int64_t{ring.ranks} - 1);
        judge.figure(name + ": sent by all", "bytes", hops * ring.bytes(),
                     result.report.bytes_sent());
        judge.figure(name + ": messages of all", "messages", hops * ring.ranks,
                     result.report.messages_sent(), messages_allowed(ring));
        const std::int64_t each = ring.elements / ring.ranks * bytes_of(ring.dtype);
        const std::int64_t most = 2 * (ring.bytes() - each);
        for (const RankReport& rank : result.report.ranks)
            judge.ask(ring.ranks == 1 || rank.bytes_sent() <= most,
                      fmt::format("{}: at most {} bytes a rank", name, most),
                      fmt::format("{} bytes", rank.bytes_sent()));
    }
}

/// 2(n - 1) messages of a chunk, and in half of the hops a chunk is added.
void judge_time(Judge& judge) {
    const Ring ring = long_ring(judge);
    const TaskResult& result = run_right(judge, "a1.3-values", reduced, ring);
    const ClusterSpec spec = examination_cluster();
    const std::int64_t bytes = ring.chunk_bytes(0);
    const Picoseconds hop = message_time(spec.inside, bytes);
    const Picoseconds addition =
        operation_time(spec, ring.chunk_of(0).count, 3 * bytes, ring.dtype);
    judge.figure(
        fmt::format("a1.3: {}: time", ring.name()), kPicoseconds,
        (ring.ranks - 1) * (2 * hop + addition), result.report.makespan(), {100, 10},
        "a hop sends a chunk and receives one at the same time, if both are in a "
        "group()");
}

/// The buffer, and room for a chunk.
void judge_memory(Judge& judge) {
    const Ring ring = long_ring(judge);
    const TaskResult& result = run_right(judge, "a1.3-values", reduced, ring);
    for (int rank = 0; rank < ring.ranks; ++rank)
        judge.figure(fmt::format("a1.3: {}: rank {}: peak", ring.name(), rank),
                     "bytes of memory", ring.bytes() + ring.chunk_bytes(0),
                     result.report.ranks[static_cast<std::size_t>(rank)].memory.peak,
                     {100, 2});
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("gradient-accumulation", "ring"),
            std::move(judge)};
}

}  // namespace

Assignment ring_all_reduce_assignment() {
    const auto values = [](RightRun right) {
        return [right](Judge& judge) { judge_values(judge, right); };
    };
    return {
        "ring-all-reduce",
        "A ring all-reduce",
        "Reduce-scatter, all-gather and all-reduce out of send and recv, for any number "
        "of ranks and elements.",
        {"ring.hpp", "ring.cpp", "adapters.cpp"},
        {criterion("a1.1-values", "reduce_scatter leaves each rank its chunk of the sum",
                   25, values(scattered)),
         criterion("a1.1-bytes", "reduce_scatter sends round the ring, all but one chunk",
                   10,
                   [](Judge& judge) {
                       judge_bytes(judge, "a1.1", scattered, kept_by_scatter);
                   }),
         criterion("a1.2-values", "all_gather leaves every rank all chunks", 25,
                   values(gathered)),
         criterion(
             "a1.2-bytes", "all_gather sends round the ring, all but one chunk", 10,
             [](Judge& judge) { judge_bytes(judge, "a1.2", gathered, kept_by_gather); }),
         criterion("a1.3-values", "all_reduce leaves every rank the sum", 10,
                   values(reduced)),
         criterion("a1.3-bytes", "all_reduce sends 2(n-1)/n of the buffer", 5,
                   judge_all_bytes),
         criterion("a1.3-time", "all_reduce keeps all links busy at once", 10,
                   judge_time),
         criterion("a1.3-memory", "all_reduce needs room for one chunk beside the buffer",
                   5, judge_memory)},
        ring_all_reduce_solutions};
}

}  // namespace lockstep::lessons
