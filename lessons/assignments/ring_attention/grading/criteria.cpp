#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"
#include "src/device/operations/attention.hpp"

namespace lockstep::lessons {

namespace {

// a5.1: blocks of keys are absorbed one after another, and in two states that are merged.

constexpr std::int64_t kWidth = 3;
constexpr double kUnseen = -std::numeric_limits<double>::infinity();

/// These are added to a row's scores, in the first block, in the middle ones and in the
/// last one. The maxima move little, rise, or fall; one row sees nothing; others see
/// nothing at first, or in the end.
constexpr double kShifts[][3] = {{0, 1, 2},
                                 {-990, 0, 990},
                                 {990, 0, -990},
                                 {kUnseen, kUnseen, kUnseen},
                                 {kUnseen, -990, kUnseen},
                                 {-990, -990, -990}};
constexpr std::int64_t kRows = std::size(kShifts);

/// Tensors by name.
using Parts = std::map<std::string, HostTensor>;

/// Returns blocks of keys: scores (rows, keys) and values (keys, width).
std::vector<Parts> draw_blocks(const Judge& judge) {
    const std::int64_t count = judge.draw("blocks", 4, 6);
    std::vector<Parts> blocks;
    for (std::int64_t b = 0; b < count; ++b) {
        const std::string name = fmt::format("block {}", b);
        // One of the blocks is empty.
        const std::int64_t keys = b == 2 ? 0 : judge.draw(name, 1, 5);
        HostTensor scores = judge.normal(name + ": scores", {kRows, keys});
        const int place = b == 0 ? 0 : (b + 1 < count ? 1 : 2);
        for (std::int64_t i = 0; i < scores.elements(); ++i)
            scores.set(i, scores.at(i) + kShifts[i / keys][place]);
        blocks.push_back({{"scores", scores},
                          {"values", judge.normal(name + ": values", {keys, kWidth})}});
    }
    return blocks;
}

/// "block 0, of whose keys rows 3 and 4 see none"
std::string text_of(const std::vector<Parts>& blocks, std::size_t b) {
    const HostTensor& scores = blocks[b].at("scores");
    const std::int64_t keys = scores.shape()[1];
    if (keys == 0) return fmt::format("block {}, which is empty", b);
    std::vector<std::int64_t> blind;
    for (std::int64_t row = 0; row < kRows; ++row)
        if (scores.at(row * keys) == kUnseen) blind.push_back(row);
    return fmt::format("block {}, of whose keys row{} {} see{} none", b,
                       blind.size() == 1 ? "" : "s", fmt::join(blind, " and "),
                       blind.size() == 1 ? "s" : "");
}

/// A state as the student's calls have made it, and as the reference's have.
struct State {
    std::string story = "nothing";  ///< "block 0, 1, 2": what it has absorbed
    Parts left{{"maximum", HostTensor::of({kRows}, std::vector<double>(kRows, kUnseen))},
               {"sum", HostTensor({kRows}, DType::f64)},
               {"output", HostTensor({kRows * kWidth}, DType::f64)}};
    Parts right = left;
    TaskRun last{};  ///< the call that made it, from right states
};

/// Makes a call. The states are kept here between calls: each of them is made in a
/// process of its own, so that nothing but the state is remembered.
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

/// Absorbs the blocks in [begin, end).
State absorbed(Judge& judge, State state, const std::vector<Parts>& blocks,
               std::size_t begin, std::size_t end) {
    for (std::size_t b = begin; b < end; ++b) {
        const std::string before = state.story == "nothing" ? "block" : state.story + ",";
        state = after(judge, "absorb", fmt::format("{} {}", before, b),
                      {{"state", state}}, blocks[b]);
    }
    return state;
}

/// Asks for the mean alone: a state may have any values that lead to it. If it is wrong,
/// says what the last call makes of a right state.
void ask_mean(Judge& judge, const State& state, const std::string& what) {
    const State end = after(judge, "finish", what, {{"state", state}});
    const HostTensor& mean = end.right.at("mean");
    try {
        judge.close(fmt::format("finish, {}, after {}", mean.shape().text(), what),
                    end.left.at("mean"), mean);
    } catch (Judge::No& no) {
        no.said.clear();
        AskedValues asked{{"output", "sum"}};
        asked.cause = [](const std::string&, const OfRanks& left) {
            for (std::int64_t i = 0; i < left[0].elements(); ++i)
                if (std::isnan(left[0].at(i)))
                    return "a row has seen nothing yet: -infinity less -infinity, or 0 "
                           "divided by 0, is NaN";
            return "";
        };
        judge.as_right(state.last, asked);
        asked.tensors = {"mean"};
        judge.as_right(end.last, asked);
        throw;
    }
}

void judge_online_softmax(Judge& judge) {
    const std::vector<Parts> blocks = draw_blocks(judge);
    const std::size_t count = blocks.size();
    State state;
    for (std::size_t b = 0; b < count; ++b) {
        state = absorbed(judge, state, blocks, b, b + 1);
        ask_mean(judge, state, text_of(blocks, b));
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

// a5.2 and a5.3: attention over a sequence that lies on several ranks.

struct SharedSequence {
    int ranks = 1;
    std::int64_t tokens = 1, batch = 1, heads = 1, width = 1;
    bool causal = false;

    /// "3 ranks, 4 tokens, causal"
    std::string name() const {
        return fmt::format("{} rank{}, {} tokens{}", ranks, ranks == 1 ? "" : "s", tokens,
                           causal ? ", causal" : "");
    }
};

/// One at which waiting and piling up cost visibly more.
SharedSequence long_sequence(const Judge& judge) {
    const int ranks = static_cast<int>(judge.draw("ranks of the long one", 5, 6));
    return {ranks, ranks * judge.draw("share of the long one", 18, 22), 1, 2, 8};
}

/// Tokens that ranks divide and do not divide, one token a rank, one rank, a larger ring,
/// and the long one, so that it is no case apart; drawn anew for each grading. The first
/// and the long one have blocks of one size, so that a wrong way round costs their
/// numbers nothing.
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

/// Arithmetic and links alone take time; a hop takes a little less than the attention to
/// a block beside which it goes.
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

/// Returns a run of "forward", or of "backward" from what the reference's forward gives.
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

// What is asked of a run.

constexpr Judge::Way kWay = Judge::Way::to_next;

/// Returns what the reference leaves on a rank if another one is there so often; the
/// ranks have equally many tokens.
const HostTensor& with_times(const Judge& judge, TaskRun run, const std::string& tensor,
                             std::size_t rank, std::size_t other, std::size_t times) {
    const std::size_t ranks = run.ranks.size() + times - 1;
    run.name += fmt::format(", rank {} {} times", other, times);
    const auto place = run.ranks.begin() + static_cast<std::ptrdiff_t>(other);
    if (times == 0)
        run.ranks.erase(place);
    else
        run.ranks.insert(place, RankTask(*place));
    for (RankTask& part : run.ranks)
        part.numbers["tokens"] =
            part.tensors.at("keys").values.shape()[0] * static_cast<std::int64_t>(ranks);
    return judge.right(run).ranks[other < rank ? rank + times - 1 : rank].tensors.at(
        tensor);
}

/// Says which rank's values are missing in what a rank left, or are twice in it, if that
/// other rank is so many hops away.
std::string cause_of_rank(const Judge& judge, const TaskRun& run,
                          const std::string& tensor, const HostTensor& left,
                          std::size_t rank, std::size_t hops) {
    const std::size_t other = (rank + hops) % run.ranks.size();
    const bool sums_ranks = tensor == "dk" || tensor == "dv";
    // If no rank sees the block that comes last, a known mistake says so.
    for (const std::size_t times : {sums_ranks || hops > 1 ? 0 : 2, 2})
        if (Judge::are_close(left, with_times(judge, run, tensor, rank, other, times)))
            return fmt::format(
                "{} rank {}{} is {} in it", sums_ranks ? "what" : "the block of", other,
                sums_ranks ? " contributes" : "", times == 0 ? "missing" : "twice");
    return "";
}

/// Says whose values a rank has, or which rank's it lacks or has twice, if there is no
/// mask.
std::string cause_of(const Judge& judge, const TaskRun& run, const std::string& tensor,
                     const OfRanks& left) {
    const std::size_t ranks = run.ranks.size();
    const auto& right = judge.right(run).ranks;
    std::size_t rank = 0;
    while (Judge::are_close(left[rank], right[rank].tensors.at(tensor)))
        ++rank;
    const bool sums_ranks = tensor == "dk" || tensor == "dv";
    const auto& numbers = run.ranks[0].numbers;
    const bool alike = numbers.at("causal") == 0 &&
                       numbers.at("tokens") % static_cast<std::int64_t>(ranks) == 0;
    for (std::size_t hops = 1; hops < ranks; ++hops) {
        const std::size_t other = (rank + hops) % ranks;
        if (sums_ranks && Judge::are_close(left[rank], right[other].tensors.at(tensor)))
            return fmt::format(
                "that is the gradient of rank {}'s block, {} hop{} short of home", other,
                hops, hops == 1 ? "" : "s");
        std::string said =
            alike ? cause_of_rank(judge, run, tensor, left[rank], rank, hops) : "";
        if (!said.empty()) return said;
    }
    return "";
}

std::string exercise_of(const std::string& task) {
    return task == "forward" ? "a5.2" : "a5.3";
}

void ask_values(Judge& judge, const TaskRun& run) {
    const RunReport& report = judge.run_ring(run, kWay).report;
    AskedValues asked;
    asked.cause = [&](const std::string& tensor, const OfRanks& left) {
        const std::string way =
            Judge::other_way(report, static_cast<int>(run.ranks.size()), kWay);
        return way.empty() ? cause_of(judge, run, tensor, left) : way;
    };
    const std::vector<std::string> forward{"y", "log_sum_exp"},
        backward{"dq", "dk", "dv"};
    for (const auto& name : run.ranks[0].task == "forward" ? forward : backward) {
        asked.tensors = {name};
        judge.as_right(run, asked);
    }
}

/// Asks for right values, and that the inputs stay as they are.
void judge_values(Judge& judge, const std::string& task) {
    for (SharedSequence sequence : sequences(judge))
        for (const bool causal : {false, true}) {
            sequence.causal = causal;
            const TaskRun run = given(judge, task, sequence);
            ask_values(judge, run);
            for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
                for (const auto& [name, tensor] : run.ranks[rank].tensors)
                    judge.same(fmt::format("{}: rank {}: {} {} after the call", run.name,
                                           rank, name, tensor.values.shape().text()),
                               judge.left(judge.run(run).ranks[rank], name),
                               tensor.values);
        }
}

/// What a run costs counts if its values are right.
void needs_values(const Judge& judge, const TaskRun& run) {
    judge.needs(exercise_of(run.ranks[0].task) + "-values",
                [&](Judge& asking) { ask_values(asking, run); });
}

/// A block makes n - 1 hops. A rank may send what it itself adds to its block's gradients
/// the hop home, too, which the reference spares. What the reference sends in two
/// messages may go in one.
void ask_sent(Judge& judge, const TaskRun& run, std::size_t rank) {
    const RankReport& left = judge.run(run).report.ranks[rank];
    const RankReport& right = judge.right(run).report.ranks[rank];
    const std::size_t ranks = run.ranks.size();
    const bool goes_home = run.ranks[0].task == "backward" && ranks > 1;
    const auto block_of = [&](std::size_t r) {
        return 2 * run.ranks[r].tensors.at("keys").values.bytes();
    };
    const std::int64_t sent = left.bytes_sent(), spared = right.bytes_sent();
    const std::int64_t made = spared + (goes_home ? block_of(rank) : 0);
    const std::string name =
        fmt::format("{}: {}: rank {}", exercise_of(run.ranks[0].task), run.name, rank);
    judge.ask(sent == spared || sent == made,
              goes_home ? fmt::format("{}: sent: {} or {} bytes", name, spared, made)
                        : fmt::format("{}: sent: {} bytes", name, spared),
              fmt::format("{} bytes", sent),
              sent == spared + block_of((rank + 1) % ranks)
                  ? "that is a hop more of each block: the last one brings it home, "
                    "where nobody needs it"
                  : "");
    const std::int64_t fewest = right.messages_sent() / 2;
    const std::int64_t most = right.messages_sent() + (goes_home ? 2 : 0);
    judge.ask(left.messages_sent() >= fewest && left.messages_sent() <= most,
              fmt::format("{}: {} to {} messages", name, fewest, most),
              fmt::format("{} messages", left.messages_sent()));
}

/// With a mask fewer hops would do, so that there only the way is looked at.
void judge_bytes(Judge& judge, const std::string& task) {
    for (SharedSequence sequence : sequences(judge)) {
        const TaskRun run = given(judge, task, sequence);
        needs_values(judge, run);
        judge.one_way(run.name, judge.run(run).report, kWay);
        for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
            ask_sent(judge, run, rank);
        sequence.causal = true;
        const TaskRun causal = given(judge, task, sequence);
        judge.needs(exercise_of(task) + "-values",
                    [&](Judge& asking) { asking.run_ring(causal, kWay); });
        judge.one_way(causal.name, judge.run(causal).report, kWay);
    }
}

void judge_memory(Judge& judge, const std::string& task) {
    const TaskRun run = given(judge, task, long_sequence(judge));
    needs_values(judge, run);
    const std::int64_t block = 2 * run.ranks[0].tensors.at("keys").values.bytes();
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const auto peak = [=](const RunReport& report) {
            return report.ranks[rank].memory.peak;
        };
        try {
            judge.figure_as_right(
                run,
                fmt::format("{}: {}: rank {}: peak with blocks of {} bytes",
                            exercise_of(task), run.name, rank, block),
                "bytes of memory", peak, {100, task == "forward" ? 10 : 5});
        } catch (Judge::No& no) {
            no.said = fmt::format("that is {:.1f} blocks more than it takes",
                                  static_cast<double>(peak(judge.run(run).report) -
                                                      peak(judge.right(run).report)) /
                                      static_cast<double>(block));
            throw;
        }
    }
}

void judge_time(Judge& judge, const std::string& task) {
    const TaskRun run = given(judge, task, long_sequence(judge));
    needs_values(judge, run);
    judge.time_as_right(run, exercise_of(task), {100, 10});
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    const char* step,
                    void (*judge)(Judge& judge, const std::string& task)) {
    const std::string task = id.starts_with("a5.2") ? "forward" : "backward";
    return {id, title, points, lesson_step("ring-self-attention", step),
            [=](Judge& asking) { judge(asking, task); }};
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
        {{"a5.1-values", "absorb, merge and finish give what one softmax gives", 15,
          lesson_step("ring-self-attention", "online"), judge_online_softmax},
         criterion("a5.2-values", "forward is attention over the whole sequence", 15,
                   "online", judge_values),
         criterion("a5.2-bytes", "forward sends each block n - 1 hops round the ring", 10,
                   "bytes", judge_bytes),
         criterion("a5.2-memory", "forward holds two blocks of keys and values", 10,
                   "memory", judge_memory),
         criterion("a5.2-time", "forward hides each hop behind attention to a block", 10,
                   "overlap", judge_time),
         criterion("a5.3-values", "backward gives the gradients of the whole sequence",
                   15, "online", judge_values),
         criterion("a5.3-bytes",
                   "backward sends blocks and their gradients round the ring", 10,
                   "bytes", judge_bytes),
         criterion("a5.3-memory", "backward piles up neither blocks nor gradients", 5,
                   "memory", judge_memory),
         criterion("a5.3-time", "backward hides both hops behind its work on a block", 10,
                   "overlap", judge_time)},
        ring_attention_solutions};
}

}  // namespace lockstep::lessons
