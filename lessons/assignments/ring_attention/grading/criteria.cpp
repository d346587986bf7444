#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"
#include "src/core/host_tensor.hpp"
#include "src/device/operations/attention.hpp"

namespace lockstep::lessons {

namespace {

// The criteria expect this: plain loops over all keys, a softmax all at once.

/// Makes weights of one query's scores, which are finite or -infinity, and gives the log
/// of the sum of their exponentials. If all are -infinity, the weights are 0.
double make_weights(std::vector<double>& scores) {
    constexpr double kUnseen = -std::numeric_limits<double>::infinity();
    double maximum = kUnseen, sum = 0;
    for (const double score : scores)
        maximum = std::max(maximum, score);
    for (double& score : scores) {
        score = score == kUnseen ? 0 : std::exp(score - maximum);
        sum += score;
    }
    for (double& score : scores)
        score = sum > 0 ? score / sum : 0;
    return maximum + std::log(sum);
}

void add_to(HostTensor& tensor, std::int64_t index, double value) {
    tensor.set(index, tensor.at(index) + value);
}

/// A whole sequence: each (tokens, batch, heads width).
struct WholeAttention {
    HostTensor queries, keys, values, dy;
    std::int64_t heads = 1;
    bool causal = false;
};

struct ExpectedAttention {
    HostTensor y, dq, dk, dv;  ///< (tokens, batch, heads width)
    HostTensor log_sum_exp;    ///< (batch, heads, tokens)
};

/// One head of one sequence.
class Head {
  public:
    Head(const WholeAttention& of, std::int64_t number, ExpectedAttention& out)
        : of_(of),
          out_(out),
          tokens_(of.queries.shape()[0]),
          pitch_(of.queries.shape()[1] * of.queries.shape()[2]),
          width_(of.queries.shape()[2] / of.heads),
          number_(number) {}

    void attend(std::int64_t query) {
        const double factor = 1 / std::sqrt(static_cast<double>(width_));
        const std::int64_t i = at(query), seen = of_.causal ? query + 1 : tokens_;
        std::vector<double> p(static_cast<std::size_t>(seen));
        for (std::int64_t key = 0; key < seen; ++key)
            p[key] = factor * product(of_.queries, i, of_.keys, at(key));
        out_.log_sum_exp.set(number_ * tokens_ + query, make_weights(p));
        for (std::int64_t key = 0; key < seen; ++key)
            add(out_.y, i, p[key], of_.values, at(key));
        const double dy_y = product(of_.dy, i, out_.y, i);
        for (std::int64_t key = 0; key < seen; ++key) {
            const std::int64_t j = at(key);
            const double weight = p[key];
            const double ds =
                factor * weight * (product(of_.dy, i, of_.values, j) - dy_y);
            add(out_.dq, i, ds, of_.keys, j);
            add(out_.dk, j, ds, of_.queries, i);
            add(out_.dv, j, weight, of_.dy, i);
        }
    }

  private:
    /// Returns the index at which the head's columns of a token begin.
    std::int64_t at(std::int64_t token) const {
        return token * pitch_ + number_ * width_;
    }

    double product(const HostTensor& x, std::int64_t i, const HostTensor& y,
                   std::int64_t j) const {
        double sum = 0;
        for (std::int64_t c = 0; c < width_; ++c)
            sum += x.at(i + c) * y.at(j + c);
        return sum;
    }

    void add(HostTensor& sum, std::int64_t i, double factor, const HostTensor& x,
             std::int64_t j) const {
        for (std::int64_t c = 0; c < width_; ++c)
            add_to(sum, i + c, factor * x.at(j + c));
    }

    const WholeAttention& of_;
    ExpectedAttention& out_;
    std::int64_t tokens_, pitch_, width_, number_;
};

/// Scores are multiplied by 1/sqrt(width).
ExpectedAttention expected_attention(const WholeAttention& of) {
    const Shape& shape = of.queries.shape();
    const HostTensor zeros(shape, DType::f64);
    ExpectedAttention out{zeros, zeros, zeros, zeros,
                          HostTensor({shape[1], of.heads, shape[0]}, DType::f64)};
    for (std::int64_t number = 0; number < shape[1] * of.heads; ++number)
        for (std::int64_t query = 0; query < shape[0]; ++query)
            Head(of, number, out).attend(query);
    return out;
}

namespace online_softmax {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kWidth = 3;

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

struct Blocks {
    std::vector<HostTensor> scores;  ///< (rows, keys)
    std::vector<HostTensor> values;  ///< (keys, width)
};

Blocks draw_blocks(const Judge& judge) {
    const std::int64_t count = judge.draw_anew("blocks", 4, 6);
    Blocks blocks;
    for (std::int64_t b = 0; b < count; ++b) {
        const std::string name = fmt::format("block {}", b);
        // One of the blocks is empty.
        const std::int64_t keys = b == 2 ? 0 : judge.draw_anew(name, 1, 5);
        HostTensor scores = judge.normal(name + ": scores", {kRows, keys});
        for (std::int64_t i = 0; i < scores.elements(); ++i)
            scores.set(i, scores.at(i) +
                              kShifts[i / keys][b == 0 ? 0 : (b + 1 < count ? 1 : 2)]);
        blocks.scores.push_back(scores);
        blocks.values.push_back(judge.normal(name + ": values", {keys, kWidth}));
    }
    return blocks;
}

/// Over the first `count` blocks.
HostTensor expected_mean(const Blocks& blocks, std::size_t count) {
    HostTensor mean({kRows, kWidth}, DType::f64);
    for (std::int64_t row = 0; row < kRows; ++row) {
        std::vector<double> weights, values;
        for (std::size_t b = 0; b < count; ++b) {
            const std::int64_t keys = blocks.values[b].shape()[0];
            for (std::int64_t key = 0; key < keys; ++key)
                weights.push_back(blocks.scores[b].at(row * keys + key));
            for (std::int64_t i = 0; i < keys * kWidth; ++i)
                values.push_back(blocks.values[b].at(i));
        }
        make_weights(weights);
        for (std::size_t i = 0; i < values.size(); ++i)
            add_to(mean, row * kWidth + static_cast<std::int64_t>(i) % kWidth,
                   weights[i / kWidth] * values[i]);
    }
    return mean;
}

/// "block 0, of whose keys rows 3 and 4 see none"
std::string text_of(const Blocks& blocks, std::size_t b) {
    const HostTensor& scores = blocks.scores[b];
    const std::int64_t keys = scores.shape()[1];
    if (keys == 0) return fmt::format("block {}, which is empty", b);
    std::vector<std::int64_t> blind;
    for (std::int64_t row = 0; row < kRows; ++row)
        if (scores.at(row * keys) == kUnseen) blind.push_back(row);
    return fmt::format("block {}, of whose keys row{} {} see{} none", b,
                       blind.size() == 1 ? "" : "s", fmt::join(blind, " and "),
                       blind.size() == 1 ? "s" : "");
}

/// A state, which the grader keeps between the calls that change it: each of them is made
/// in a process of its own, so that nothing but the state is remembered.
struct State {
    std::string story;  ///< "block 0, 1, 2": what it has absorbed, for sentences
    HostTensor maximum, sum, output;
};

State empty_state() {
    State state{"nothing", HostTensor({kRows}, DType::f64),
                HostTensor({kRows}, DType::f64),
                HostTensor({kRows * kWidth}, DType::f64)};
    for (std::int64_t row = 0; row < kRows; ++row)
        state.maximum.set(row, kUnseen);
    return state;
}

RankTask task_of(const std::string& name) {
    return {name, {}, {{"rows", kRows}, {"width", kWidth}}, /*may_download=*/true};
}

void give(RankTask& task, const std::string& name, const State& state) {
    task.tensors[name + " maximum"] = {state.maximum};
    task.tensors[name + " sum"] = {state.sum};
    task.tensors[name + " output"] = {state.output};
}

const HostTensor& value_of(Judge& judge, const TaskResult& result,
                           const std::string& name) {
    const auto& values = result.ranks.front().values;
    judge.ask(values.contains(name), fmt::format("a value '{}'", name), "none");
    return values.at(name);
}

/// Returns the state that a call has left, once it is as large as a state is.
State left_state(Judge& judge, const TaskResult& result, const std::string& story) {
    const State made = empty_state();
    const auto part = [&](const std::string& name, const HostTensor& like) {
        const HostTensor& left = value_of(judge, result, name);
        Judge::form(fmt::format("a state stays as large as it was made; {} after {}",
                                name, story),
                    left, like.shape());
        return left;
    };
    return {story, part("maximum", made.maximum), part("sum", made.sum),
            part("output", made.output)};
}

State absorbed(Judge& judge, const State& state, const Blocks& blocks, std::size_t b) {
    RankTask task = task_of("absorb");
    give(task, "state", state);
    task.tensors["scores"] = {blocks.scores[b]};
    task.tensors["values"] = {blocks.values[b]};
    const std::string story = state.story == "nothing"
                                  ? fmt::format("block {}", b)
                                  : fmt::format("{}, {}", state.story, b);
    return left_state(judge, judge.run({story, {task}}), story);
}

/// A state that has absorbed the blocks in [begin, end).
State absorbed(Judge& judge, const Blocks& blocks, std::size_t begin, std::size_t end) {
    State state = empty_state();
    for (std::size_t b = begin; b < end; ++b)
        state = absorbed(judge, state, blocks, b);
    return state;
}

State merged(Judge& judge, const State& state, const State& other) {
    RankTask task = task_of("merge");
    give(task, "state", state);
    give(task, "other", other);
    const std::string story = fmt::format("{}, merged with {}", state.story, other.story);
    return left_state(judge, judge.run({story, {task}}), story);
}

void ask_mean(Judge& judge, const State& state, const std::string& what,
              const HostTensor& expected) {
    RankTask task = task_of("finish");
    give(task, "state", state);
    const TaskResult& result = judge.run({what, {task}});
    judge.close(fmt::format("finish, {}, after {}", expected.shape().text(), what),
                value_of(judge, result, "mean"), expected);
}

/// a5.1: blocks of keys on the host, absorbed one after another, and in two states that
/// are merged.
void judge_online_softmax(Judge& judge) {
    const Blocks blocks = draw_blocks(judge);
    const std::size_t count = blocks.scores.size();
    State state = empty_state();
    for (std::size_t b = 0; b < count; ++b) {
        state = absorbed(judge, state, blocks, b);
        ask_mean(judge, state, text_of(blocks, b), expected_mean(blocks, b + 1));
    }
    const HostTensor all = expected_mean(blocks, count);
    for (std::size_t split = 0; split <= count; ++split) {
        const std::string name =
            fmt::format("{} blocks merged with {}", split, count - split);
        State both = merged(judge, absorbed(judge, blocks, 0, split),
                            absorbed(judge, blocks, split, count));
        ask_mean(judge, both, name, all);
        if (split != count / 2) continue;
        for (std::size_t b = 0; b < count; ++b)
            both = absorbed(judge, both, blocks, b);
        ask_mean(judge, both, name + ", and all absorbed once more", all);
    }
}

}  // namespace online_softmax

/// A sequence on several ranks.
struct Case {
    int ranks = 1;
    std::int64_t tokens = 1, batch = 1, heads = 1, width = 1;
    bool causal = false;

    std::string name() const {
        return fmt::format("{} rank{}, {} tokens{}", ranks, ranks == 1 ? "" : "s", tokens,
                           causal ? ", causal" : "");
    }
    Chunk own(int rank) const { return chunk(tokens, ranks, rank % ranks); }
    Shape shape() const { return {tokens, batch, heads * width}; }
    /// The bytes of one token's keys and values.
    std::int64_t token_bytes() const {
        return 2 * batch * heads * width * bytes_of(DType::f64);
    }
};

/// One at which waiting and piling up cost visibly more.
constexpr Case kLong{6, 6 * 20 + 3, 1, 2, 8};

/// Tokens that ranks divide and do not divide, one token a rank, one rank, a ring that
/// nobody has seen, and the long one, so that it is no case apart.
std::vector<Case> cases(const Judge& judge) {
    const int ranks = static_cast<int>(judge.draw("ranks", 5, 7));
    const std::int64_t rest = judge.draw("rest", 1, ranks - 1);
    const std::int64_t tokens = ranks * judge.draw("share", 2, 4) + rest;
    return {{4, 8, 1, 1, 2},
            {3, 4, 2, 2, 3},
            {1, 5, 1, 2, 2},
            {2, 7, 1, 1, 4},
            {ranks, tokens, judge.draw("batch", 1, 2), judge.draw("heads", 2, 3),
             judge.draw("width", 2, 5)},
            kLong};
}

WholeAttention whole_of(const Judge& judge, const Case& of) {
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
ClusterSpec timing_cluster() {
    constexpr double kLink = 1e9, kPart = 0.85;
    ClusterSpec spec = examination_cluster();
    spec.launch_seconds = spec.memory_bytes_per_second = 0;
    spec.inside = spec.between = {0, kLink};
    const std::int64_t tokens = kLong.tokens / kLong.ranks;  // the fewest of a rank
    const auto flops =
        static_cast<double>(tokens) * (4 * kLong.width + ops::Attend::kFlopsOfPair);
    const double bytes = 2.0 * sizeof(double) * kLong.width;
    spec.flops_f64 = kPart * flops * kLink / bytes;
    return spec;
}

TaskRun task_run(const Judge& judge, const std::string& task, const Case& of) {
    const WholeAttention whole = whole_of(judge, of);
    const bool backward = task == "backward";
    const ExpectedAttention expected =
        backward ? expected_attention(whole) : ExpectedAttention{};
    TaskRun asked{of.name(), {}, timing_cluster()};
    for (int rank = 0; rank < of.ranks; ++rank) {
        const Chunk own = of.own(rank);
        const auto own_rows = [&](const HostTensor& tensor) {
            return TaskTensor{tensor.rows(own.begin, own.count)};
        };
        RankTask given{task, {}, {}};
        given.numbers = {
            {"tokens", of.tokens}, {"heads", of.heads}, {"causal", of.causal}};
        given.tensors = {{"queries", own_rows(whole.queries)},
                         {"keys", own_rows(whole.keys)},
                         {"values", own_rows(whole.values)}};
        if (backward) {
            given.tensors["y"] = own_rows(expected.y);
            given.tensors["log_sum_exp"] = {tokens_of(expected.log_sum_exp, own)};
            given.tensors["dy"] = own_rows(whole.dy);
        }
        asked.ranks.push_back(given);
    }
    return asked;
}

std::string text_of(const Case& of, int rank, const std::string& name,
                    const HostTensor& tensor) {
    return fmt::format("{}: rank {}: {} {}", of.name(), rank, name,
                       tensor.shape().text());
}

/// Bytes, memory and time count only if the numbers that come out are right.
const TaskResult& run_right(Judge& judge, const std::string& task, const Case& of) {
    const TaskResult& result = judge.run(task_run(judge, task, of));
    const ExpectedAttention expected = expected_attention(whole_of(judge, of));
    const bool backward = task == "backward";
    std::vector<std::pair<std::string, const HostTensor*>> asked{{"y", &expected.y}};
    if (backward)
        asked = {{"dq", &expected.dq}, {"dk", &expected.dk}, {"dv", &expected.dv}};
    for (int rank = 0; rank < of.ranks; ++rank) {
        const RankResult& left = result.ranks[rank];
        const Chunk own = of.own(rank);
        const auto compare = [&](const std::string& name, const HostTensor& rows) {
            judge.close(text_of(of, rank, name, rows), judge.left(left, name), rows);
        };
        for (const auto& [name, whole] : asked)
            compare(name, whole->rows(own.begin, own.count));
        if (!backward) compare("log_sum_exp", tokens_of(expected.log_sum_exp, own));
    }
    return result;
}

/// Judges that the inputs stay as they are.
void judge_inputs(Judge& judge, const TaskResult& result, const TaskRun& asked,
                  const Case& of) {
    for (int rank = 0; rank < of.ranks; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        for (const auto& [name, given] : asked.ranks[index].tensors)
            judge.same(text_of(of, rank, name, given.values) + " after the call",
                       judge.left(result.ranks[index], name), given.values);
    }
}

void judge_values(Judge& judge, const std::string& task) {
    for (Case of : cases(judge))
        for (const bool causal : {false, true}) {
            of.causal = causal;
            const TaskResult& result = run_right(judge, task, of);
            judge_inputs(judge, result, task_run(judge, task, of), of);
        }
}

/// Keys and values travel in one message or in two.
void judge_forward_sent(Judge& judge, const std::string& name, const RankReport& left) {
    judge.as_reference(name + ": sent", "bytes", left.bytes_sent());
    judge.as_reference(name + ": messages", "messages", left.messages_sent(), {50, 0});
}

/// So do their gradients. The hop home of what a rank itself adds to its block's
/// gradients is made or spared.
void judge_backward_sent(Judge& judge, const std::string& name, const Case& of, int rank,
                         const RankReport& left) {
    const std::int64_t sent = left.bytes_sent(), messages = left.messages_sent();
    if (of.ranks == 1) {
        judge.ask(sent == 0 && messages == 0, name + ": nothing sent",
                  fmt::format("{} bytes in {} messages", sent, messages));
        return;
    }
    const std::int64_t own = of.own(rank).count, next = of.own(rank + 1).count;
    const std::int64_t spared = of.token_bytes() * (2 * of.tokens - own - next);
    const std::int64_t made = of.token_bytes() * (2 * of.tokens - next);
    judge.ask(sent == spared || sent == made,
              fmt::format("{}: sent: {} or {} bytes", name, spared, made),
              fmt::format("{} bytes", sent));
    const int fewest = 2 * (of.ranks - 1), most = 4 * of.ranks - 2;
    judge.ask(messages >= fewest && messages <= most,
              fmt::format("{}: {} to {} messages", name, fewest, most),
              fmt::format("{} messages", messages));
}

/// With a mask fewer hops would do, so that there only the way is looked at.
void judge_bytes(Judge& judge, const std::string& exercise, const std::string& task) {
    for (Case of : cases(judge)) {
        const TaskResult& result = run_right(judge, task, of);
        judge.one_way(of.name(), result.report, Judge::Way::to_next);
        for (int rank = 0; rank < of.ranks; ++rank) {
            const RankReport& left = result.report.ranks[rank];
            const std::string name =
                fmt::format("{}: {}: rank {}", exercise, of.name(), rank);
            if (task == "backward")
                judge_backward_sent(judge, name, of, rank, left);
            else
                judge_forward_sent(judge, name, left);
        }
        of.causal = true;
        judge.one_way(of.name(), judge.run(task_run(judge, task, of)).report,
                      Judge::Way::to_next);
    }
}

void judge_memory(Judge& judge, const std::string& exercise, const std::string& task,
                  int percent_more) {
    const TaskResult& result = run_right(judge, task, kLong);
    const std::int64_t most_tokens = (kLong.tokens + kLong.ranks - 1) / kLong.ranks;
    for (int rank = 0; rank < kLong.ranks; ++rank)
        judge.as_reference(
            fmt::format("{}: {}: rank {}: peak with blocks of up to {} bytes", exercise,
                        kLong.name(), rank, most_tokens * kLong.token_bytes()),
            "bytes of memory", result.report.ranks[rank].memory.peak,
            {100, percent_more});
}

void judge_time(Judge& judge, const std::string& exercise, const std::string& task) {
    const TaskResult& result = run_right(judge, task, kLong);
    judge.as_reference(fmt::format("{}: {}: time", exercise, kLong.name()), kPicoseconds,
                       result.report.makespan(), {100, 10});
}

Criterion criterion(const std::string& id, const std::string& title, int points, int step,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, fmt::format("ring-self-attention, step {}", step),
            std::move(judge)};
}

}  // namespace

Assignment ring_attention_assignment() {
    const auto of = [](auto judge, auto... rest) {
        return [=](Judge& with) { judge(with, rest...); };
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
                   15, 5, online_softmax::judge_online_softmax),
         criterion("a5.2-values", "forward is attention over the whole sequence", 15, 5,
                   of(judge_values, "forward")),
         criterion("a5.2-bytes", "forward sends each block n - 1 hops round the ring", 10,
                   4, of(judge_bytes, "a5.2", "forward")),
         criterion("a5.2-memory", "forward holds two blocks of keys and values", 10, 6,
                   of(judge_memory, "a5.2", "forward", 10)),
         criterion("a5.2-time", "forward hides each hop behind attention to a block", 10,
                   8, of(judge_time, "a5.2", "forward")),
         criterion("a5.3-values", "backward gives the gradients of the whole sequence",
                   15, 5, of(judge_values, "backward")),
         criterion("a5.3-bytes",
                   "backward sends blocks and their gradients round the ring", 10, 4,
                   of(judge_bytes, "a5.3", "backward")),
         criterion("a5.3-memory", "backward piles up neither blocks nor gradients", 5, 6,
                   of(judge_memory, "a5.3", "backward", 5)),
         criterion("a5.3-time", "backward hides both hops behind its work on a block", 10,
                   8, of(judge_time, "a5.3", "backward"))}};
}

}  // namespace lockstep::lessons
