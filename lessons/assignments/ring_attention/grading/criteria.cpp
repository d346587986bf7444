#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"
#include "src/device/operations/attention.hpp"

namespace lockstep::lessons {

namespace {

// a5.1: blocks of keys are absorbed in turn, and also in two states that are merged.

constexpr std::int64_t kWidth = 3;
constexpr double kUnseen = -std::numeric_limits<double>::infinity();

/// For each row, the numbers that are added to its scores in the first block, in the
/// middle blocks, and in the last block. A row's maximum changes little, rises, or falls.
/// One row sees no keys; another row sees none in the first and the last block.
constexpr double kShifts[][3] = {{0, 1, 2},
                                 {-990, 0, 990},
                                 {990, 0, -990},
                                 {kUnseen, kUnseen, kUnseen},
                                 {kUnseen, -990, kUnseen},
                                 {-990, -990, -990}};
constexpr std::int64_t kRows = std::size(kShifts);

/// Tensors by name.
using Parts = std::map<std::string, HostTensor>;

/// A block of keys: their scores (rows, keys) and values (keys, width).
struct KeyBlock {
    std::string name;
    Parts given;
};

std::vector<KeyBlock> draw_blocks(const Judge& judge) {
    constexpr const char* kUnseenBy[] = {"rows 3 and 4 see", "row 3 sees",
                                         "rows 3 and 4 see"};
    const std::int64_t count = judge.draw("blocks", 4, 6);
    std::vector<KeyBlock> blocks;
    for (std::int64_t b = 0; b < count; ++b) {
        const std::string name = fmt::format("block {}", b);
        // One of the blocks is empty.
        const std::int64_t keys = b == 2 ? 0 : judge.draw(name, 1, 5);
        HostTensor scores = judge.normal(name + ": scores", {kRows, keys});
        const int place = b == 0 ? 0 : (b + 1 < count ? 1 : 2);
        for (std::int64_t i = 0; i < scores.elements(); ++i)
            scores.set(i, scores.at(i) + kShifts[i / keys][place]);
        blocks.push_back(
            {keys == 0 ? name + ", which is empty"
                       : fmt::format("{}, in which {} no keys", name, kUnseenBy[place]),
             {{"scores", scores},
              {"values", judge.normal(name + ": values", {keys, kWidth})}}});
    }
    return blocks;
}

/// A state: the result of the student's calls, and the result of the reference's calls.
struct State {
    std::string story = "nothing";  ///< what it has absorbed: "block 0, 1, 2"
    Parts left{{"maximum", HostTensor::of({kRows}, std::vector<double>(kRows, kUnseen))},
               {"sum", HostTensor({kRows}, DType::f64)},
               {"output", HostTensor({kRows * kWidth}, DType::f64)}};
    Parts right = left;
    TaskRun last{};  ///< the call that made it, with right states as inputs
};

/// Returns the state after one more call. Each call runs in a process of its own, and
/// gets the earlier states from the grader, so a student's program can keep nothing else.
State after(Judge& judge, const std::string& task, const std::string& story,
            const std::map<std::string, State>& states, const Parts& block = {}) {
    const auto call = [&](const char* from, Parts State::*parts) {
        const RankTask given{task, {}, {{"rows", kRows}, {"width", kWidth}}, true};
        TaskRun run{story + from, {given}};
        auto& tensors = run.ranks[0].tensors;
        for (const auto& [name, state] : states)
            for (const auto& [part, values] : state.*parts)
                tensors[fmt::format("{} {}", name, part)] = {values};
        for (const auto& [name, values] : block)
            tensors[name] = {values};
        return run;
    };
    State made{story, {}, {}, call(", from a right state", &State::right)};
    made.right = judge.right(made.last).ranks[0].tensors;
    const RankResult& left = judge.run(call("", &State::left)).ranks[0];
    for (const auto& [part, values] : made.right) {
        made.left[part] = judge.left(left, part);
        Judge::form(fmt::format("a state stays as large as it was made; {} after {}",
                                part, story),
                    made.left[part], values.shape());
    }
    return made;
}

/// Returns the state after absorbing the blocks in [begin, end).
State absorbed(Judge& judge, State state, const std::vector<KeyBlock>& blocks,
               std::size_t begin, std::size_t end) {
    for (std::size_t b = begin; b < end; ++b) {
        const std::string before = state.story == "nothing" ? "block" : state.story + ",";
        state = after(judge, "absorb", fmt::format("{} {}", before, b),
                      {{"state", state}}, blocks[b].given);
    }
    return state;
}

/// Returns whether the first row whose mean is NaN has seen no keys.
bool row_is_unseen(const Judge& judge, const State& state, const State& end) {
    const HostTensor& mean = end.left.at("mean");
    const HostTensor& sum = judge.right(state.last).ranks.front().tensors.at("sum");
    std::int64_t first = 0;
    while (!std::isnan(mean.at(first)))
        ++first;
    return sum.at(first / mean.shape().columns()) == 0;
}

/// Judges only the mean, because a student may store other values in a state. If the mean
/// is wrong, judges whether the last call goes wrong even with the reference's state.
void ask_mean(Judge& judge, const State& state, const std::string& what) {
    const State end = after(judge, "finish", what, {{"state", state}});
    const HostTensor& mean = end.right.at("mean");
    try {
        judge.close(fmt::format("finish, {}, after {}", mean.shape().text(), what),
                    end.left.at("mean"), mean);
    } catch (Judge::No& no) {
        if (no.measured == "nan" && row_is_unseen(judge, state, end)) {
            no.said =
                "a row has seen nothing yet: -infinity less -infinity, or 0 divided by "
                "0, is NaN";
            throw;
        }
        judge.as_right(state.last, {{"output", "sum"}});
        judge.as_right(end.last, {{"mean"}});
        no.said.clear();
        throw;
    }
}

void judge_online_softmax(Judge& judge) {
    const std::vector<KeyBlock> blocks = draw_blocks(judge);
    const std::size_t count = blocks.size();
    State state;
    for (std::size_t b = 0; b < count; ++b) {
        state = absorbed(judge, state, blocks, b, b + 1);
        ask_mean(judge, state, blocks[b].name);
    }
    for (std::size_t split = 0; split <= count; ++split) {
        const std::string name =
            fmt::format("{} blocks merged with {}", split, count - split);
        const State first = absorbed(judge, {}, blocks, 0, split);
        const State rest = absorbed(judge, {}, blocks, split, count);
        state = after(judge, "merge",
                      fmt::format("{}, merged with {}", first.story, rest.story),
                      {{"state", first}, {"other", rest}});
        ask_mean(judge, state, name);
        if (split == count / 2)
            ask_mean(judge, absorbed(judge, state, blocks, 0, count),
                     name + ", and all absorbed once more");
    }
}

// a5.2 and a5.3: attention over a sequence that is sharded over ranks.

struct SharedSequence {
    int ranks = 1;
    std::int64_t tokens = 1, batch = 1, heads = 1, width = 1;
    bool causal = false;

    /// Returns a name such as "3 ranks, 4 tokens, causal".
    std::string name() const {
        return fmt::format("{} rank{}, {} tokens{}", ranks, ranks == 1 ? "" : "s", tokens,
                           causal ? ", causal" : "");
    }
};

/// Returns a sequence so long that unnecessary waits cost visibly more time, and too many
/// blocks visibly more memory.
SharedSequence long_sequence(const Judge& judge) {
    const int ranks = static_cast<int>(judge.draw("ranks of the long one", 5, 6));
    return {ranks, ranks * judge.draw("share of the long one", 18, 22), 1, 2, 8};
}

/// Returns sequences that are drawn again for each grading: the number of ranks divides
/// the tokens or not; one token on some ranks; one rank; a larger ring; a long sequence.
/// The first and the long sequence have equal blocks, so that a wrong direction around
/// the ring does not also give wrong sizes.
std::vector<SharedSequence> sequences(const Judge& judge) {
    const auto draw = [&](const char* name, std::int64_t low, std::int64_t high) {
        return judge.draw(name, low, high);
    };
    const int ranks = static_cast<int>(draw("ranks", 5, 7));
    return {{4, 4 * draw("fours", 2, 3), 1, draw("heads of 4", 1, 2), 2},
            {3, 3 + draw("rest of 3", 1, 2), 2, 2, draw("width of 3", 2, 4)},
            {1, draw("one", 4, 7), draw("batch of 1", 1, 2), 2, 2},
            {2, 2 * draw("twos", 2, 4) + 1, 1, 1, draw("width of 2", 3, 5)},
            {ranks, ranks * draw("share", 2, 4) + draw("rest", 1, ranks - 1),
             draw("batch", 1, 2), draw("heads", 2, 3), draw("width", 2, 5)},
            long_sequence(judge)};
}

/// Returns a cluster in which only arithmetic and links take time. A hop takes a little
/// less time than the attention to a block, with which it overlaps.
ClusterSpec timing_cluster(const Judge& judge) {
    constexpr double kLink = 1e9, kPart = 0.85;
    const SharedSequence sequence = long_sequence(judge);
    ClusterSpec spec = examination_cluster();
    spec.launch_seconds = spec.memory_bytes_per_second = 0;
    spec.inside = spec.between = {0, kLink};
    const std::int64_t tokens_of_rank = sequence.tokens / sequence.ranks;
    const auto tokens = static_cast<double>(tokens_of_rank);
    const auto width = static_cast<double>(sequence.width);
    const double flops = tokens * (4 * width + ops::Attend::kFlopsOfPair);
    spec.flops_f64 = kPart * flops * kLink / (2.0 * sizeof(double) * width);
    return spec;
}

/// Returns a run of "forward", or of "backward" after the reference's forward.
TaskRun given(const Judge& judge, const std::string& task,
              const SharedSequence& sequence) {
    const auto ranks = static_cast<std::size_t>(sequence.ranks);
    const RankTask same{task,
                        {},
                        {{"tokens", sequence.tokens},
                         {"heads", sequence.heads},
                         {"causal", sequence.causal}}};
    TaskRun run{sequence.name(), {ranks, same}, timing_cluster(judge)};
    for (const std::string name : {"queries", "keys", "values", "dy"}) {
        if (name == "dy" && task == "forward") return run;
        const HostTensor whole = judge.normal(
            fmt::format("{}: {}", sequence.name(), name),
            {sequence.tokens, sequence.batch, sequence.heads * sequence.width});
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const Chunk own =
                chunk(sequence.tokens, sequence.ranks, static_cast<int>(rank));
            run.ranks[rank].tensors[name] = {whole.rows(own.begin, own.count)};
        }
    }
    const TaskResult& forward = judge.right(given(judge, "forward", sequence));
    for (std::size_t rank = 0; rank < ranks; ++rank)
        for (const char* name : {"y", "log_sum_exp"})
            run.ranks[rank].tensors[name] = {forward.ranks[rank].tensors.at(name)};
    return run;
}

/// Returns runs of all sequences, each without and with a causal mask.
std::vector<TaskRun> runs(const Judge& judge, const std::string& task) {
    std::vector<TaskRun> all;
    for (SharedSequence sequence : sequences(judge))
        for (const bool causal : {false, true}) {
            sequence.causal = causal;
            all.push_back(given(judge, task, sequence));
        }
    return all;
}

std::vector<TaskRun> long_run(const Judge& judge, const std::string& task) {
    return {given(judge, task, long_sequence(judge))};
}

// Questions about a run.

constexpr Judge::Way kWay = Judge::Way::to_next;

bool goes_back(const TaskRun& run) {
    return run.ranks.front().task == "backward";
}

void judge_results(Judge& judge, const TaskRun& run) {
    const RunReport& report = judge.run_ring(run, kWay).report;
    AskedValues asked;
    asked.cause = [&](const std::string&, const std::vector<HostTensor>&) {
        return Judge::other_way(report, static_cast<int>(run.ranks.size()), kWay);
    };
    const std::vector<std::string> forward{"y", "log_sum_exp"};
    const std::vector<std::string> backward{"dq", "dk", "dv"};
    for (const std::string& name : goes_back(run) ? backward : forward) {
        asked.tensors = {name};
        judge.as_right(run, asked);
    }
}

bool is_causal(const TaskRun& run) {
    return run.ranks.front().numbers.at("causal") != 0;
}

/// Judges values, and whether a rank computes attention of its own queries only.
void judge_values(Judge& judge, const TaskRun& run) {
    judge_results(judge, run);
    judge.given_as_before(run);
    if (!is_causal(run))
        judge.figures_as_right(run, judge.exercise(),
                               {{kFlops,
                                 {50, 50},
                                 "a rank computes the attention of its own queries to "
                                 "each block, and of no others"}});
}

/// Judges bytes and messages. In backward, a student's rank may also send its own term of
/// its block's gradients around the ring, which is one more hop than in the reference. A
/// student may also send two messages of the reference as one.
void judge_sent(Judge& judge, const TaskRun& run) {
    const int ranks = static_cast<int>(run.ranks.size());
    const bool goes_home = goes_back(run) && ranks > 1;
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const std::int64_t spared = judge.right(run).report.ranks[rank].bytes_sent();
        const std::int64_t home =
            goes_home ? 2 * run.ranks[rank].tensors.at("keys").values.bytes() : 0;
        judge.figure_as_right(
            run,
            fmt::format("{}: {}: rank {}: sent{}", judge.exercise(), run.name, rank,
                        goes_home ? fmt::format(", or {} more", home) : ""),
            "bytes",
            [=](const RunReport& report) {
                const std::int64_t sent = report.ranks[rank].bytes_sent();
                return sent == spared + home ? spared : sent;
            },
            {},
            "a block makes n - 1 hops, and its gradients n: no rank needs its own block "
            "back");
    }
    // In backward, one more hop is allowed: two messages.
    const int more = goes_home ? 50 / (ranks - 1) : 0;
    judge.figures_as_right(run, judge.exercise(), {{kMessages, {50, more}}});
}

/// With a mask a student may leave out some hops, so only the direction is judged then.
void judge_bytes(Judge& judge, const TaskRun& run) {
    const bool causal = is_causal(run);
    if (causal)
        judge.needs_values(run);
    else
        judge.needs_values(run, judge_results);
    judge.one_way(run.name, judge.run(run).report, kWay);
    if (!causal) judge_sent(judge, run);
}

void judge_memory(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_results);
    judge.figures_as_right(run, judge.exercise(),
                           {{kPeak,
                             {100, goes_back(run) ? 5 : 10},
                             "blocks pile up: free a block, and its gradients, after it "
                             "has been used and sent on"}});
}

void judge_time(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_results);
    judge.time_as_right(run, judge.exercise(), {100, 10});
}

}  // namespace

Assignment ring_attention_assignment() {
    return {
        "ring-attention",
        "Ring attention",
        "The online softmax by hand; then attention over a sequence that lies on several "
        "devices, forward and backward, by blocks of keys and values that go round a "
        "ring.",
        {"online_softmax.hpp", "online_softmax.cpp", "ring_attention.hpp",
         "ring_attention.cpp", "adapters.cpp"},
        taught_by(
            "ring-self-attention",
            {{"a5.1-values", "absorb, merge and finish give what one softmax gives", 15,
              "online", judge_online_softmax},
             {"a5.2-values", "forward is attention over the whole sequence", 15, "online",
              each_run({runs}, "forward", judge_values)},
             {"a5.2-bytes", "forward sends each block n - 1 hops round the ring", 10,
              "bytes", each_run({runs}, "forward", judge_bytes)},
             {"a5.2-memory", "forward holds two blocks of keys and values", 10, "memory",
              each_run({long_run}, "forward", judge_memory)},
             {"a5.2-time", "forward hides each hop behind attention to a block", 10,
              "overlap", each_run({long_run}, "forward", judge_time)},
             {"a5.3-values", "backward gives the gradients of the whole sequence", 15,
              "online", each_run({runs}, "backward", judge_values)},
             {"a5.3-bytes", "backward sends blocks and their gradients round the ring",
              10, "bytes", each_run({runs}, "backward", judge_bytes)},
             {"a5.3-memory", "backward piles up neither blocks nor gradients", 5,
              "memory", each_run({long_run}, "backward", judge_memory)},
             {"a5.3-time", "backward hides both hops behind its work on a block", 10,
              "overlap", each_run({long_run}, "backward", judge_time)}}),
        ring_attention_solutions};
}

}  // namespace lockstep::lessons
