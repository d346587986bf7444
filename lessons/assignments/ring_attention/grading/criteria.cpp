#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/assignments/ring_attention/grading/causes.hpp"
#include "lessons/assignments/ring_attention/grading/online_softmax.hpp"
#include "lessons/assignments/ring_attention/grading/whole_attention.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"
#include "src/core/host_tensor.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/device/operations/attention.hpp"

namespace lockstep::lessons {

using namespace ring_attention;

namespace {

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

WholeAttention whole_of(const Judge& judge, const SharedSequence& of) {
    const auto draw = [&](const char* what) {
        return judge.normal(fmt::format("{}: {}", of.name(), what), of.shape());
    };
    return {draw("queries"), draw("keys"), draw("values"),
            draw("dy"),      of.heads,     of.causal};
}

/// A rank's tokens of (batch, heads, tokens).
HostTensor tokens_of(const HostTensor& whole, const Chunk& rank) {
    const Shape& shape = whole.shape();
    HostTensor own({shape[0], shape[1], rank.count}, DType::f64);
    for (std::int64_t i = 0; i < own.elements(); ++i)
        own.set(i, whole.at(i / rank.count * shape[2] + rank.begin + i % rank.count));
    return own;
}

/// Arithmetic and links alone take time; a hop takes a little less than the attention to
/// a block beside which it goes.
ClusterSpec timing_cluster(const Judge& judge) {
    constexpr double kLink = 1e9, kPart = 0.85;
    const SharedSequence of = long_sequence(judge);
    ClusterSpec spec = examination_cluster();
    spec.launch_seconds = spec.memory_bytes_per_second = 0;
    spec.inside = spec.between = {0, kLink};
    const std::int64_t tokens = of.tokens / of.ranks;  // the fewest of a rank
    const auto flops = static_cast<double>(tokens) *
                       static_cast<double>(4 * of.width + ops::Attend::kFlopsOfPair);
    const double bytes = 2.0 * sizeof(double) * static_cast<double>(of.width);
    spec.flops_f64 = kPart * flops * kLink / bytes;
    return spec;
}

/// The way there and the way back.
enum class Exercise : std::uint8_t { forward, backward };

const char* task_of(Exercise exercise) {
    return exercise == Exercise::forward ? "forward" : "backward";
}
const char* id_of(Exercise exercise) {
    return exercise == Exercise::forward ? "a5.2" : "a5.3";
}

TaskRun task_run(const Judge& judge, Exercise exercise, const SharedSequence& of) {
    const WholeAttention whole = whole_of(judge, of);
    const bool backward = exercise == Exercise::backward;
    const WholeResult forward =
        backward ? attention_of(whole, right_view(whole)) : WholeResult{};
    TaskRun asked{of.name(), {}, timing_cluster(judge)};
    for (int rank = 0; rank < of.ranks; ++rank) {
        const Chunk own = of.own(rank);
        const auto own_rows = [&](const HostTensor& tensor) {
            return TaskTensor{tensor.rows(own.begin, own.count)};
        };
        RankTask given{task_of(exercise), {}, {}};
        given.numbers = {
            {"tokens", of.tokens}, {"heads", of.heads}, {"causal", of.causal}};
        given.tensors = {{"queries", own_rows(whole.queries)},
                         {"keys", own_rows(whole.keys)},
                         {"values", own_rows(whole.values)}};
        if (backward) {
            given.tensors["y"] = own_rows(forward.y);
            given.tensors["log_sum_exp"] = {tokens_of(forward.log_sum_exp, own)};
            given.tensors["dy"] = own_rows(whole.dy);
        }
        asked.ranks.push_back(given);
    }
    return asked;
}

std::string text_of(const SharedSequence& of, int rank, const std::string& name,
                    const HostTensor& tensor) {
    return fmt::format("{}: rank {}: {} {}", of.name(), rank, name,
                       tensor.shape().text());
}

/// Returns a run that came to its end, by what is allowed.
const TaskResult& run(Judge& judge, Exercise exercise, const SharedSequence& of) {
    return judge.run_ring(task_run(judge, exercise, of), Judge::Way::to_next);
}

/// Asks that what each rank left is as expected; else `cause` says what it is.
void ask_close(Judge& judge, const SharedSequence& of, const TaskResult& result,
               const std::string& name,
               const std::function<HostTensor(const Chunk& own)>& expected,
               const std::function<std::string(int rank, const Left& left)>& cause) {
    Left left;
    for (const RankResult& rank : result.ranks)
        left.push_back(judge.left(rank, name));
    for (int rank = 0; rank < of.ranks; ++rank)
        try {
            const HostTensor own = expected(of.own(rank));
            judge.close(text_of(of, rank, name, own),
                        left[static_cast<std::size_t>(rank)], own);
        } catch (Judge::No& no) {
            const std::string way =
                Judge::other_way(result.report, of.ranks, Judge::Way::to_next);
            no.explain(way.empty() ? cause(rank, left) : way);
            throw;
        }
}

/// Returns a run whose numbers are right.
const TaskResult& right_forward(Judge& judge, const SharedSequence& of) {
    const TaskResult& result = run(judge, Exercise::forward, of);
    const WholeAttention whole = whole_of(judge, of);
    const WholeResult expected = attention_of(whole, right_view(whole));
    ask_close(
        judge, of, result, "y",
        [&](const Chunk& own) { return expected.y.rows(own.begin, own.count); },
        [&](int rank, const Left& y) { return cause_of_y(of, whole, rank, y); });
    ask_close(
        judge, of, result, "log_sum_exp",
        [&](const Chunk& own) { return tokens_of(expected.log_sum_exp, own); },
        [](int, const Left&) { return std::string(); });
    return result;
}

const TaskResult& right_backward(Judge& judge, const SharedSequence& of) {
    const TaskResult& result = run(judge, Exercise::backward, of);
    const WholeAttention whole = whole_of(judge, of);
    const View view = right_view(whole);
    const WholeGradients expected = gradients_of(whole, attention_of(whole, view), view);
    const std::vector<std::pair<std::string, const HostTensor*>> all{
        {"dq", &expected.dq}, {"dk", &expected.dk}, {"dv", &expected.dv}};
    for (const auto& [name, tensor] : all)
        ask_close(
            judge, of, result, name,
            [&, rows = tensor](const Chunk& own) {
                return rows->rows(own.begin, own.count);
            },
            [&, of_what = name](int rank, const Left& gradient) {
                return cause_of_gradient(of, whole, rank, of_what, gradient);
            });
    return result;
}

const TaskResult& right_run(Judge& judge, Exercise exercise, const SharedSequence& of) {
    return exercise == Exercise::forward ? right_forward(judge, of)
                                         : right_backward(judge, of);
}

/// Judges that the inputs stay as they are.
void judge_inputs(Judge& judge, const TaskResult& result, const TaskRun& asked,
                  const SharedSequence& of) {
    for (int rank = 0; rank < of.ranks; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        for (const auto& [name, given] : asked.ranks[index].tensors)
            judge.same(text_of(of, rank, name, given.values) + " after the call",
                       judge.left(result.ranks[index], name), given.values);
    }
}

void judge_values(Judge& judge, Exercise exercise) {
    for (SharedSequence of : sequences(judge))
        for (const bool causal : {false, true}) {
            of.causal = causal;
            const TaskResult& result = right_run(judge, exercise, of);
            judge_inputs(judge, result, task_run(judge, exercise, of), of);
        }
}

/// Returns a run whose numbers are right, for what it cost: else values have said what is
/// wrong.
const TaskResult& right(const Judge& judge, Exercise exercise, const SharedSequence& of) {
    const TaskResult* result = nullptr;
    needs(judge, fmt::format("{}-values", id_of(exercise)),
          [&](Judge& asking) { result = &right_run(asking, exercise, of); });
    return *result;
}

/// A block comes to all ranks but the one before its own, which hands it on no more. Keys
/// and values travel in one message or in two.
void ask_forward_sent(Judge& judge, const std::string& name, const SharedSequence& of,
                      int rank, const RankReport& left) {
    const std::int64_t hops = of.ranks - 1;
    const std::int64_t all = of.bytes_of_blocks();
    const std::int64_t sent = all - of.block_bytes(of.next(rank));
    try {
        judge.figure(name + ": sent", "bytes", sent, left.bytes_sent());
    } catch (Judge::No& no) {
        if (of.ranks > 1 && left.bytes_sent() == all)
            no.said =
                "that is a hop more of each block: the last one brings it home, "
                "where nobody needs it";
        throw;
    }
    judge.figure(name + ": messages", "messages", 2 * hops, left.messages_sent(),
                 {50, 0});
}

/// So do their gradients. The hop home of what a rank itself adds to its block's
/// gradients is made or spared.
void ask_backward_sent(Judge& judge, const std::string& name, const SharedSequence& of,
                       int rank, const RankReport& left) {
    const std::int64_t sent = left.bytes_sent(), messages = left.messages_sent();
    if (of.ranks == 1) {
        judge.ask(sent == 0 && messages == 0, name + ": nothing sent",
                  fmt::format("{} bytes in {} messages", sent, messages));
        return;
    }
    const std::int64_t blocks = of.bytes_of_blocks() - of.block_bytes(of.next(rank));
    const std::int64_t spared = blocks + of.bytes_of_blocks() - of.block_bytes(rank);
    const std::int64_t made = blocks + of.bytes_of_blocks();
    judge.ask(
        sent == spared || sent == made,
        fmt::format("{}: sent: {} or {} bytes", name, spared, made),
        fmt::format("{} bytes", sent),
        sent == blocks ? "those are the blocks alone: gradients do not travel" : "");
    const int fewest = 2 * (of.ranks - 1), most = 4 * of.ranks - 2;
    judge.ask(messages >= fewest && messages <= most,
              fmt::format("{}: {} to {} messages", name, fewest, most),
              fmt::format("{} messages", messages));
}

/// With a mask fewer hops would do, so that there only the way is looked at.
void judge_bytes(Judge& judge, Exercise exercise) {
    for (SharedSequence of : sequences(judge)) {
        const TaskResult& result = right(judge, exercise, of);
        judge.one_way(of.name(), result.report, Judge::Way::to_next);
        for (int rank = 0; rank < of.ranks; ++rank) {
            const RankReport& left = result.report.ranks[static_cast<std::size_t>(rank)];
            const std::string name =
                fmt::format("{}: {}: rank {}", id_of(exercise), of.name(), rank);
            if (exercise == Exercise::backward)
                ask_backward_sent(judge, name, of, rank, left);
            else
                ask_forward_sent(judge, name, of, rank, left);
        }
        of.causal = true;
        const TaskResult* causal = nullptr;
        needs(judge, fmt::format("{}-values", id_of(exercise)),
              [&](Judge& asking) { causal = &run(asking, exercise, of); });
        judge.one_way(of.name(), causal->report, Judge::Way::to_next);
    }
}

/// Queries, keys, values and y; the state's maximum and sum of each row; and the block
/// that is attended to, and the next, neither of which is the rank's own.
std::int64_t forward_peak(const SharedSequence& of) {
    return 4 * of.bytes(0) + 2 * of.bytes_of_rows(0) + 2 * of.block_bytes(0);
}

/// Queries, keys, values, y, dy and the three gradients; the log of the sum and dy y of
/// each row; the block that is worked on and the next; and of gradients those of this
/// block, what comes to be added to them, and those of the block before, which leave.
std::int64_t backward_peak(const SharedSequence& of) {
    return 8 * of.bytes(0) + 2 * of.bytes_of_rows(0) + 5 * of.block_bytes(0);
}

void judge_memory(Judge& judge, Exercise exercise) {
    const SharedSequence of = long_sequence(judge);
    const TaskResult& result = right(judge, exercise, of);
    const bool backward = exercise == Exercise::backward;
    const std::int64_t expected = backward ? backward_peak(of) : forward_peak(of);
    const std::int64_t block = of.block_bytes(0);
    for (int rank = 0; rank < of.ranks; ++rank) {
        const std::int64_t peak =
            result.report.ranks[static_cast<std::size_t>(rank)].memory.peak;
        try {
            judge.figure(fmt::format("{}: {}: rank {}: peak with blocks of {} bytes",
                                     id_of(exercise), of.name(), rank, block),
                         "bytes of memory", expected, peak, {100, backward ? 5 : 10});
        } catch (Judge::No& no) {
            no.said = fmt::format(
                "that is {:.1f} blocks more than it takes",
                static_cast<double>(peak - expected) / static_cast<double>(block));
            throw;
        }
    }
}

/// Knows how long arithmetic and hops take.
class Times {
  public:
    Times(const Judge& judge, const SharedSequence& of)
        : of_(of), spec_(timing_cluster(judge)) {}

    /// All that a rank computes forward.
    Picoseconds forward() const {
        return computing(pairs() * (4 * of_.width + ops::Attend::kFlopsOfPair) +
                         rows() * (of_.width + ops::FinishAttention::kFlopsOfRow));
    }
    /// Backward: dy y, and gradients that are added to those that come.
    Picoseconds backward() const {
        return computing(pairs() * (10 * of_.width + ops::AttendBackward::kFlopsOfPair) +
                         rows() * of_.width * 2 * of_.ranks);
    }
    Picoseconds hop() const { return message_time(spec_.inside, of_.block_bytes(0)); }

  private:
    std::int64_t rows() const { return of_.own(0).count * of_.batch * of_.heads; }
    std::int64_t pairs() const { return rows() * of_.tokens; }
    Picoseconds computing(std::int64_t flops) const {
        return operation_time(spec_, flops, 0, DType::f64);
    }

    SharedSequence of_;
    ClusterSpec spec_;
};

/// A time that a known mistake gives.
struct Slow {
    Picoseconds time = 0;
    std::string said;
};

/// Returns what comes of waiting for hops while there is nothing to compute. The last hop
/// of gradients is in `least`; none come to the first two blocks, nor does a block come
/// behind the last one. A hop begins when the one before it is done.
std::vector<Slow> slow_times(const SharedSequence& of, Exercise exercise,
                             Picoseconds least, Picoseconds hop) {
    const int hops = of.ranks - 1;
    const std::string next =
        "each block waits for the hop of the next one, and nothing is computed meanwhile";
    if (exercise == Exercise::forward) return {{least + hops * hop, next}};
    return {{least + (hops - 1) * hop,
             "each block waits for the hop of the gradients that come to it, and nothing "
             "is computed meanwhile"},
            {least + (2 * hops - 2) * hop, next}};
}

/// A rank's work; backward also the gradients' hop home, which no work hides.
void judge_time(Judge& judge, Exercise exercise) {
    constexpr Picoseconds kNear = 33;  // a part of so many, either way
    const SharedSequence of = long_sequence(judge);
    const TaskResult& result = right(judge, exercise, of);
    const Times times(judge, of);
    const Picoseconds least =
        exercise == Exercise::forward ? times.forward() : times.backward() + times.hop();
    const Picoseconds measured = result.report.makespan();
    try {
        judge.figure(fmt::format("{}: {}: time", id_of(exercise), of.name()),
                     kPicoseconds, least, measured, {100, 10});
    } catch (Judge::No& no) {
        for (const Slow& slow : slow_times(of, exercise, least, times.hop()))
            if (no.said.empty() && std::abs(measured - slow.time) * kNear < slow.time)
                no.said = slow.said;
        throw;
    }
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    const char* step, std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("ring-self-attention", step),
            std::move(judge)};
}

}  // namespace

Assignment ring_attention_assignment() {
    const auto of = [](auto judge, Exercise exercise) {
        return [=](Judge& with) { judge(with, exercise); };
    };
    return {
        "ring-attention",
        "Ring attention",
        "The online softmax by hand; then attention over a sequence that lies on several "
        "devices, forward and backward, by blocks of keys and values that go round a "
        "ring.",
        {"online_softmax.hpp", "online_softmax.cpp", "ring_attention.hpp",
         "ring_attention.cpp", "adapters.cpp"},
        {criterion("a5.1-values", "absorb, merge and finish give what one softmax gives",
                   15, "online", judge_online_softmax),
         criterion("a5.2-values", "forward is attention over the whole sequence", 15,
                   "online", of(judge_values, Exercise::forward)),
         criterion("a5.2-bytes", "forward sends each block n - 1 hops round the ring", 10,
                   "bytes", of(judge_bytes, Exercise::forward)),
         criterion("a5.2-memory", "forward holds two blocks of keys and values", 10,
                   "memory", of(judge_memory, Exercise::forward)),
         criterion("a5.2-time", "forward hides each hop behind attention to a block", 10,
                   "overlap", of(judge_time, Exercise::forward)),
         criterion("a5.3-values", "backward gives the gradients of the whole sequence",
                   15, "online", of(judge_values, Exercise::backward)),
         criterion("a5.3-bytes",
                   "backward sends blocks and their gradients round the ring", 10,
                   "bytes", of(judge_bytes, Exercise::backward)),
         criterion("a5.3-memory", "backward piles up neither blocks nor gradients", 5,
                   "memory", of(judge_memory, Exercise::backward)),
         criterion("a5.3-time", "backward hides both hops behind its work on a block", 10,
                   "overlap", of(judge_time, Exercise::backward))},
        ring_attention_solutions};
}

}  // namespace lockstep::lessons
