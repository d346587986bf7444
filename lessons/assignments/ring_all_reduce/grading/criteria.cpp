#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

namespace {

constexpr auto kWay = Judge::Way::to_rank_before;

TaskRun given(const Judge& judge, const std::string& task, int ranks,
              std::int64_t elements, DType dtype = DType::f64) {
    TaskRun run{
        fmt::format("{} rank{}, {} element{}{}", ranks, ranks == 1 ? "" : "s", elements,
                    elements == 1 ? "" : "s", dtype == DType::f64 ? "" : " in f32"),
        {}};
    for (int rank = 0; rank < ranks; ++rank) {
        const std::string name = fmt::format("{}, rank {}", run.name, rank);
        const HostTensor buffer = judge.normal(name, {elements}).as(dtype);
        run.ranks.push_back({task, {{"buffer", {buffer}}}, {}});
    }
    return run;
}

/// Returns runs, drawn again for each grading: the number of ranks divides the elements
/// or not; fewer elements than ranks; one rank; another type; a larger ring. The first
/// run has equal chunks, so that a wrong direction does not also give wrong sizes.
std::vector<TaskRun> rings(const Judge& judge, const std::string& task) {
    const auto draw = [&](const char* name, std::int64_t low, std::int64_t high) {
        return judge.draw(name, low, high);
    };
    const auto ranks = static_cast<int>(draw("ranks", 6, 8));
    return {
        given(judge, task, 4, 4 * draw("fours", 2, 9)),
        given(judge, task, 2, draw("two", 5, 19)),
        given(judge, task, 3, 3 * draw("threes", 2, 9) + draw("rest of threes", 1, 2)),
        given(judge, task, 1, draw("one", 2, 9)),
        given(judge, task, 5, draw("few", 1, 4)),
        given(judge, task, 4, 4 * draw("floats", 3, 9) + draw("rest of floats", 1, 3),
              DType::f32),
        given(judge, task, ranks, draw("elements", 33, 95))};
}

/// Returns a run with messages so large that latency is only a small part of their time.
std::vector<TaskRun> long_ring(const Judge& judge, const std::string& task) {
    const auto ranks = static_cast<int>(judge.draw("ranks of the long one", 5, 7));
    return {given(judge, task, ranks, ranks * judge.draw("long", 7'000, 9'000))};
}

const HostTensor& buffer_of(const TaskRun& run) {
    return run.ranks.front().tensors.at("buffer").values;
}

/// Judges whether messages are chunks, and not whole buffers. Chunks may be padded; two
/// ranks have nothing smaller than half of the buffer to send.
void ask_chunks(Judge& judge, const TaskRun& run) {
    const HostTensor& buffer = buffer_of(run);
    const std::int64_t ranks = std::ssize(run.ranks);
    const std::int64_t most =
        2 * ((buffer.elements() + ranks - 1) / ranks) * bytes_of(buffer.dtype());
    std::int64_t longest = 0;
    for (const TraceFlow& flow : judge.run(run).report.flows)
        longest = std::max(longest, flow.bytes);
    judge.ask(longest <= most,
              fmt::format("{}: messages of a chunk: at most {} bytes", run.name, most),
              fmt::format("{} bytes", longest),
              "ranks send chunks of the buffer, and not the whole buffer");
}

/// Judges the chunks that the task should complete: each rank's own chunk and, if the
/// task gathers them, all chunks.
void judge_values(Judge& judge, const TaskRun& run) {
    judge.run_ring(run, kWay);
    AskedValues asked{{"own chunk"}};
    if (buffer_of(run).dtype() == DType::f32) asked.bound = 1e-5;
    judge.as_right(run, asked);
    asked.tensors.clear();
    judge.as_right(run, asked);
    ask_chunks(judge, run);
}

/// Requires right values, and messages in the right direction, before costs are judged.
void needs_right_ring(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_values);
    judge.one_way(run.name, judge.run(run).report, kWay);
}

/// Returns how many messages are allowed: a student need not send empty chunks.
Allowed messages_allowed(const TaskRun& run) {
    return {buffer_of(run).elements() < std::ssize(run.ranks) ? 100 : 0, 0};
}

/// Judges the bytes of a reduce-scatter or an all-gather: exactly those of the reference.
void judge_bytes(Judge& judge, const TaskRun& run) {
    needs_right_ring(judge, run);
    judge.figures_as_right(run, judge.exercise(),
                           {{kSent}, {kMessages, messages_allowed(run)}});
}

/// Judges the bytes of an all-reduce. Which chunks a rank does not send depends on the
/// student's order of chunks. Only the sum over all ranks is always the same.
void judge_all_bytes(Judge& judge, const TaskRun& run) {
    needs_right_ring(judge, run);
    const std::string name = "a1.3: " + run.name;
    judge.figure_as_right(run, name + ": sent by all", "bytes",
                          std::mem_fn(&RunReport::bytes_sent));
    judge.figure_as_right(run, name + ": messages of all", "messages",
                          std::mem_fn(&RunReport::messages_sent), messages_allowed(run));
    const HostTensor& buffer = buffer_of(run);
    const std::int64_t smallest_chunk = buffer.elements() / std::ssize(run.ranks);
    const std::int64_t most =
        2 * (buffer.elements() - smallest_chunk) * bytes_of(buffer.dtype());
    for (const RankReport& rank : judge.run(run).report.ranks)
        judge.ask(rank.bytes_sent() <= most,
                  fmt::format("{}: each rank sends at most {} bytes", name, most),
                  fmt::format("{} bytes", rank.bytes_sent()));
}

void judge_time(Judge& judge, const TaskRun& run) {
    needs_right_ring(judge, run);
    judge.time_as_right(run, "a1.3", {100, 10},
                        "a hop sends a chunk and receives one at the same time, if both "
                        "are in a group()");
}

void judge_memory(Judge& judge, const TaskRun& run) {
    needs_right_ring(judge, run);
    judge.figures_as_right(run, "a1.3", {{kPeak, {100, 2}}});
}

}  // namespace

Assignment ring_all_reduce_assignment() {
    return {
        "ring-all-reduce",
        "A ring all-reduce",
        "Reduce-scatter, all-gather and all-reduce out of send and recv, for any number "
        "of ranks and elements.",
        {"ring.hpp", "ring.cpp", "adapters.cpp"},
        taught_by(
            "gradient-accumulation",
            {{"a1.1-values", "reduce_scatter leaves each rank its chunk of the sum", 25,
              "ring", each_run({rings}, "reduce_scatter", judge_values)},
             {"a1.1-bytes", "reduce_scatter sends round the ring, all but one chunk", 10,
              "ring", each_run({rings}, "reduce_scatter", judge_bytes)},
             {"a1.2-values", "all_gather leaves every rank all chunks", 25, "ring",
              each_run({rings}, "all_gather", judge_values)},
             {"a1.2-bytes", "all_gather sends round the ring, all but one chunk", 10,
              "ring", each_run({rings}, "all_gather", judge_bytes)},
             {"a1.3-values", "all_reduce leaves every rank the sum", 10, "ring",
              each_run({rings}, "all_reduce", judge_values)},
             {"a1.3-bytes", "all_reduce sends 2(n-1)/n of the buffer", 5, "ring",
              each_run({rings}, "all_reduce", judge_all_bytes)},
             {"a1.3-time", "all_reduce keeps all links busy at once", 10, "ring",
              each_run({long_ring}, "all_reduce", judge_time)},
             {"a1.3-memory", "all_reduce needs memory for the buffer and one chunk only",
              5, "ring", each_run({long_ring}, "all_reduce", judge_memory)}}),
        ring_all_reduce_solutions};
}

}  // namespace lockstep::lessons
