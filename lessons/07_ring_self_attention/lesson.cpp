#include "lessons/07_ring_self_attention/lesson.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/device/formulas.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/norm.hpp"
#include "src/parallel/ring_products.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

namespace lockstep::lessons {

RingLesson::RingLesson(const LessonOptions& options, Record& record)
    : Lesson(options, record),
      ranks(options.ranks.value_or(4)),
      method(context_method(options.values.word("method"))),
      order(token_order(options.values.word("order"))) {
    task = make_context_gpt_task(options, ranks, method);
    const BlockSizes& block = task->sizes.block;
    require(method != ContextMethod::ulysses || block.kv_heads % ranks == 0,
            "--set method=ulysses: {} ranks share out the heads of keys and values, {} "
            "here; a multiple of {} is expected",
            ranks, block.kv_heads, ranks);
    note("heads", block.heads);
    note("kv_heads", block.kv_heads);
    note("hidden", block.hidden);
    note("context", task->sizes.context);
    // A weight is a sum of a term for each token of each step.
    record.options.sum_length = task->tokens() * task->steps;
}

std::string key_of(ContextMethod method) {
    std::string key = name_of(method);
    std::ranges::replace(key, '-', '_');
    return key;
}

AttentionProblem RingLesson::large() const {
    constexpr std::int64_t kTokensPerRank = 8192;
    AttentionProblem problem;
    problem.tokens = kTokensPerRank * ranks;
    problem.sizes.heads = least_multiple(ranks, 32);
    problem.sizes.causal = false;
    problem.width = 128;
    problem.dtype = DType::bf16;
    problem.shapes_alone = true;
    return problem;
}

namespace {

constexpr int kLeastRanks = 2;
constexpr int kMostRanks = 16;

/// A few tokens a device, for what is computed; and a problem of a size that is
/// trained in earnest, in 16 bits, for shapes only.
AttentionProblem small(const RingLesson& lesson, bool causal) {
    constexpr std::int64_t kTokensPerRank = 4;
    AttentionProblem problem;
    problem.tokens = kTokensPerRank * lesson.ranks;
    problem.sizes = {/*heads=*/2, causal};
    problem.width = 4;
    problem.dtype = lesson.options().dtype;
    problem.seed = lesson.options().seed;
    return problem;
}

/// Leaves what goes into the small problem in the record.
void record_small(RingLesson& lesson) {
    if (!lesson.has_numbers()) return;
    const AttentionProblem problem = small(lesson, /*causal=*/false);
    lesson.record().inputs.insert_or_assign("attention/x", problem.x());
    lesson.record().inputs.insert_or_assign("attention/dy", problem.dy());
    lesson.record().models["attention"] = {{"kind", "attention"},
                                           {"heads", problem.sizes.heads},
                                           {"head_width", problem.width},
                                           {"backward_from", "dy"}};
}

/// The largest relative difference of y and dx from one device's.
double core_difference(RingLesson& lesson, const std::string& variant,
                       const RunReport& shared, bool causal) {
    const RunReport alone =
        run_core(*make_cluster(lesson.options(), 1), small(lesson, causal));
    NamedTensors together;
    for (const char* name : {"y", "dx"}) {
        together.emplace(name, whole_kept(shared, name, TokenOrder::contiguous));
        lesson.record().outputs.insert_or_assign(variant + "/" + name, together.at(name));
    }
    return difference(together, all_kept(alone)).relative;
}

/// Runs a method on the small problem, leaves y and dx in the record,
/// and holds them against one device's.
void check_method(RingLesson& lesson, Findings& found, ContextMethod method) {
    record_small(lesson);
    for (const bool causal : {false, true}) {
        const std::string variant =
            std::string(name_of(method)) + (causal ? "_causal" : "");
        const RunReport report = run_method(*make_cluster(lesson.options(), lesson.ranks),
                                            small(lesson, causal), method);
        lesson.record().runs.emplace_back(variant, report);
        if (lesson.has_numbers())
            found.at_most(key_of(method) + (causal ? ".causal" : ".values"),
                          core_difference(lesson, variant, report, causal),
                          lesson.bound());
    }
}

constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kChanged = 2;  ///< the token that is changed
constexpr std::int64_t kHidden = 8;
constexpr std::int64_t kHeads = 2;

/// Tokens whose rows differ in any bit.
std::int64_t changed_tokens(const HostTensor& a, const HostTensor& b) {
    std::int64_t changed = 0;
    for (std::int64_t token = 0; token < a.shape()[0]; ++token)
        changed += a.rows(token, 1) == b.rows(token, 1) ? 0 : 1;
    return changed;
}

using MakeLayer = std::function<std::unique_ptr<Module>(const ParameterInit&)>;

/// In how many tokens the layer's output changes where one token of its input does.
std::int64_t tokens_reached(const LessonOptions& options, std::int64_t columns,
                            const MakeLayer& make) {
    HostTensor x({kTokens, 1, columns}, options.dtype);
    const RandomStream stream(options.seed, "reach/x");
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, stream.normal(static_cast<std::uint64_t>(i)));
    HostTensor other = x;
    for (std::int64_t i = 0; i < columns; ++i)
        other.set(kChanged * columns + i, -x.at(kChanged * columns + i));
    const RunReport report = make_cluster(options, 1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto layer = make({device, options.dtype, options.seed, "layer"});
        Saved before, after;
        rank.keep("before", layer->forward(device.upload(x), before));
        rank.keep("after", layer->forward(device.upload(other), after));
    });
    const auto& kept = report.ranks.front().kept;
    return changed_tokens(kept.at("before"), kept.at("after"));
}

void reach(RingLesson& lesson, Findings& found) {
    found.give({"numbers"_is = lesson.has_numbers(), "devices"_is = lesson.ranks,
                "last_device"_is = lesson.ranks - 1, "reach_tokens"_is = kTokens,
                "reach_changed"_is = kChanged, "reach_last"_is = kTokens - 1,
                "reach"_is = kTokens - kChanged,
                "reach_later"_is = kTokens - kChanged - 1, "reach_alone"_is = 1});
    if (!lesson.has_numbers()) return;
    const auto look = [&](const char* name, std::int64_t columns, std::int64_t expected,
                          const MakeLayer& make) {
        found.equal(name, tokens_reached(lesson.options(), columns, make),
                    static_cast<double>(expected));
    };
    look("reach.layer_norm", kHidden, 1, [](const ParameterInit& init) {
        return std::make_unique<LayerNorm>(init, kHidden);
    });
    look("reach.linear", kHidden, 1, [](const ParameterInit& init) {
        return std::make_unique<Linear>(init, kHidden, 3 * kHidden);
    });
    look("reach.mlp", kHidden, 1,
         [](const ParameterInit& init) { return make_mlp(init, kHidden, 4 * kHidden); });
    look("reach.attention", 3 * kHidden, kTokens - kChanged,
         [](const ParameterInit& init) {
             return std::make_unique<CoreAttention>(init.device,
                                                    AttentionSizes{kHeads, true});
         });
}

/// Each rank keeps its row block of "scores", and as the series "from"
/// whose keys it had, hop by hop.
RunReport run_scores(Cluster& cluster, const AttentionProblem& problem) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const Ring ring(device, rank.world());
        const Tensor x = device.upload(
            dealt_rows(problem.x(), {TokenOrder::contiguous, rank.size(), rank.index()}));
        const AttentionHeads own = attention_heads(x, problem.sizes);
        const PhaseScope phase(device, Phase::forward);
        rank.keep("scores", ring_products(device, ring, own.queries, own.keys,
                                          score_factor(problem.width)));
        for (int hops = 0; hops < ring.size(); ++hops)
            rank.keep_value("from", ring.origin(hops));
    });
}

int from(const RunReport& report, int rank, int hops) {
    return static_cast<int>(
        report.ranks[rank].series.at("from").at(static_cast<std::size_t>(hops)));
}

std::string trimmed(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

/// Shows what each rank has of its row block of scores, hop by hop.
std::string hop_by_hop(const RunReport& report) {
    const int n = static_cast<int>(report.ranks.size());
    constexpr int kWidth = 11;
    std::string head = "        ";
    for (int hops = 0; hops < n; ++hops)
        head += fmt::format("{:<{}}", fmt::format("hop {}", hops), kWidth);
    std::string text = trimmed(head);
    for (int rank = 0; rank < n; ++rank) {
        std::string line = fmt::format("rank {:<2} ", rank);
        std::string block(static_cast<std::size_t>(n), '.');
        for (int hops = 0; hops < n; ++hops) {
            const auto column = static_cast<std::size_t>(from(report, rank, hops));
            std::string now = block;
            now[column] = '@';
            block[column] = '#';
            line += fmt::format("{:<{}}", "|" + now + "|", kWidth);
        }
        text += trimmed(line);
    }
    text.pop_back();
    return text;
}

/// Shows after which hop each rank makes each block.
std::string hops_by_block(const RunReport& report) {
    const std::size_t n = report.ranks.size();
    std::string text = "keys   ";
    for (std::size_t origin = 0; origin < n; ++origin)
        text += fmt::format("{:>4}", origin);
    for (std::size_t rank = 0; rank < n; ++rank) {
        std::vector<int> hop(n);
        for (std::size_t hops = 0; hops < n; ++hops)
            hop[from(report, static_cast<int>(rank), static_cast<int>(hops))] =
                static_cast<int>(hops);
        text += fmt::format("\nrank {:<2}", rank);
        for (const int at : hop)
            text += fmt::format("{:>4}", at);
    }
    return text;
}

/// More ranks than these do not fit beside one another.
constexpr int kMostBeside = 6;

/// Rows of all ranks, (b, a, s/N, s) each, as (b, a, s, s).
HostTensor all_scores(const RunReport& report) {
    const HostTensor& first = report.ranks.front().kept.at("scores");
    const Shape& shape = first.shape();
    const auto n = static_cast<std::int64_t>(report.ranks.size());
    const std::int64_t share = shape[2], s = shape[3];
    HostTensor whole({shape[0], shape[1], n * share, s}, first.dtype());
    for (std::int64_t rank = 0; rank < n; ++rank) {
        const HostTensor& rows = report.ranks[rank].kept.at("scores");
        for (std::int64_t i = 0; i < rows.elements(); ++i) {
            const std::int64_t matrix = i / (share * s);
            const std::int64_t within = i % (share * s);
            whole.set((matrix * n + rank) * share * s + within, rows.at(i));
        }
    }
    return whole;
}

void scores(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = small(lesson, /*causal=*/false);
    found.give({"small_tokens"_is = problem.tokens,
                "small_share"_is = problem.tokens / lesson.ranks,
                "first_hop"_is = lesson.ranks - 1, "first_hop_sent"_is = 1,
                "hops_beside"_is = lesson.ranks <= kMostBeside});
    if (!lesson.has_numbers()) return;
    const RunReport report =
        run_scores(*make_cluster(lesson.options(), lesson.ranks), problem);
    found.give("hops",
               lesson.ranks <= kMostBeside ? hop_by_hop(report) : hops_by_block(report));
    const RunReport alone = run_scores(*make_cluster(lesson.options(), 1), problem);
    const HostTensor together = all_scores(report);
    record_small(lesson);
    lesson.record().outputs.insert_or_assign("scores", together);
    found.at_most("scores",
                  relative_difference(together, alone.ranks.front().kept.at("scores")),
                  lesson.bound());
}

void output(RingLesson& lesson, Findings& found) {
    check_method(lesson, found, ContextMethod::ring_self_attention);
}

/// What a rank sent in both passes, and in the first.
struct Counted {
    Sent forward;
    Sent both;
};

Counted count(const AttentionProblem& problem, ContextMethod method, int ranks) {
    const auto sent = [&](Passes passes) {
        const RunReport report = run_method(*make_shapes_only_cluster(ranks), problem,
                                            method, TokenOrder::contiguous, passes);
        const RankReport& rank = report.ranks.front();
        return Sent{rank.bytes_sent() / bytes_of(problem.dtype), rank.messages_sent()};
    };
    return {sent(Passes::forward), sent(Passes::both)};
}

/// The keys of a rank's tokens, or their values, as numbers: e = b c a w.
std::int64_t block_of(const ContextShape& of) {
    return of.batch * of.heads * (of.tokens / of.ranks) * of.width;
}

/// So many elements as a multiple of e.
Figure in_blocks(std::int64_t elements, const ContextShape& shape) {
    return Figure::count(static_cast<double>(elements) /
                         static_cast<double>(block_of(shape)));
}

Sent sum(const Sent& a, const Sent& b) {
    return {a.elements + b.elements, a.messages + b.messages};
}

/// Elements that a rank sends for a whole block whose weights are shared out.
std::int64_t count_tensor_parallel(const AttentionProblem& problem, int ranks) {
    const std::int64_t hidden = problem.sizes.heads * problem.width;
    const RunReport report = make_shapes_only_cluster(ranks)->run([&](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        BlockSizes sizes;
        sizes.hidden = hidden;
        sizes.heads = problem.sizes.heads;
        const auto block =
            make_block({device, problem.dtype, 1, "h.0"}, sizes, tensor_parallel({}, tp));
        const Shape shape{problem.tokens, problem.batch, hidden};
        Saved saved;
        block->forward(device.empty(shape, problem.dtype), saved);
        block->backward(device.empty(shape, problem.dtype), saved);
    });
    return report.ranks.front().bytes_sent() / bytes_of(problem.dtype);
}

/// Gives the numbers and messages that a method sends on the large problem, and holds
/// them against the formulas.
void check_sent(RingLesson& lesson, Findings& found, ContextMethod method) {
    const AttentionProblem problem = lesson.large();
    const ContextShape shape = problem.shared_out_to(lesson.ranks);
    const Counted counted = count(problem, method, lesson.ranks);
    const Sent forward = sent_forward(method, shape);
    const Sent both = sum(forward, sent_backward(method, shape));
    const std::string key = key_of(method) + ".";
    const auto hold = [&](const char* what, std::int64_t sent, std::int64_t formula) {
        found.equal(key + what, sent, static_cast<double>(formula));
    };
    found.give(key + "forward_blocks", in_blocks(counted.forward.elements, shape));
    found.give(key + "both_blocks", in_blocks(counted.both.elements, shape));
    hold("forward", counted.forward.elements, forward.elements);
    hold("both", counted.both.elements, both.elements);
    hold("messages", counted.both.messages, both.messages);
}

/// Counts what Ring Self-Attention sends, and a block whose weights are shared out.
void bytes(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const ContextShape shape = problem.shared_out_to(lesson.ranks);
    const std::int64_t block = block_of(shape);
    const std::int64_t hops = lesson.ranks - 1;
    found.give({"tokens"_is = problem.tokens, "share"_is = problem.tokens / lesson.ranks,
                "batch"_is = problem.batch, "heads"_is = shape.heads,
                "width"_is = shape.width, "hidden"_is = shape.heads * shape.width,
                "block"_is = block});

    found.give({"sent_forward"_is = 2 * hops * block,
                "sent_forward_n_hops"_is = std::int64_t{2} * lesson.ranks * block,
                "sent_forward_whole"_is = 2 * hops * lesson.ranks * block,
                "sent_backward"_is = 6 * hops * block,
                "sent_backward_small_sums"_is =
                    2 * hops * block + 4 * hops * block / lesson.ranks});
    check_sent(lesson, found, ContextMethod::ring_self_attention);

    const std::int64_t shared_weights = count_tensor_parallel(problem, lesson.ranks);
    found.equal("shared_weights", shared_weights,
                static_cast<double>(tensor_parallel_elements(shape)));
    found.give("shared_weights_blocks", in_blocks(shared_weights, shape));
}

// Six keys in two blocks, one query 1 and heads of width 1, so that the
// scores are the keys.
constexpr int kBlock = 3;
constexpr double kScores[] = {1, 3, 2, 5, 4, 0};
constexpr double kValues[] = {10, 20, 30, 40, 50, 60};
constexpr int kCount = 6;

/// The state of an online softmax.
struct State {
    double maximum = -std::numeric_limits<double>::infinity();
    double sum = 0;
    double y = 0;

    void take_in(int first, bool rescale) {
        double larger = maximum;
        for (int i = first; i < first + kBlock; ++i)
            larger = std::max(larger, kScores[i]);
        const double by = rescale ? formulas::rescaling(maximum, larger) : 1;
        sum *= by;
        y *= by;
        maximum = larger;
        for (int i = first; i < first + kBlock; ++i) {
            const double p = std::exp(kScores[i] - maximum);
            sum += p;
            y += p * kValues[i];
        }
    }
};

/// The softmax's weighted mean, all at once.
double at_once() {
    double sum = 0, y = 0;
    for (int i = 0; i < kCount; ++i) {
        sum += std::exp(kScores[i]);
        y += std::exp(kScores[i]) * kValues[i];
    }
    return y / sum;
}

/// Does the same on a device, which keeps its state after each block, and "y".
RunReport run_blocks(Cluster& cluster, DType dtype) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto upload = [&](const std::vector<double>& values) {
            const auto rows = static_cast<std::int64_t>(values.size());
            return device.upload(HostTensor::of(Shape{rows, 1, 1}, values).as(dtype));
        };
        const Heads query{upload({1}), 1, 1, 0};
        const OnlineAttention state = device.begin_attention(query);
        for (int first = 0; first < kCount; first += kBlock) {
            const auto block = [&](const double* from) {
                return Heads{upload({from + first, from + first + kBlock}), 1, 1, 0};
            };
            device.attend(state, {query, block(kScores), block(kValues)});
            rank.keep(fmt::format("sum_{}", first / kBlock), state.sum);
        }
        device.finish_attention(state);
        rank.keep("y", state.y);
    });
}

/// Gives the state after a block.
void give_state(Findings& found, const std::string& block, const State& state) {
    found.give(block + ".m", Figure::count(state.maximum));
    found.give(block + ".l", Figure::decimals(state.sum, 4));
    found.give(block + ".o", Figure::decimals(state.y, 4));
    found.give(block + ".y", Figure::decimals(state.y / state.sum, 4));
}

/// Goes through six scores by hand, and on a device; then through a ring.
void online(RingLesson& lesson, Findings& found) {
    State first;
    first.take_in(0, /*rescale=*/true);
    State second = first;
    second.take_in(kBlock, /*rescale=*/true);
    give_state(found, "first", first);
    give_state(found, "second", second);
    const double rescaling = std::exp(first.maximum - second.maximum);
    found.give({"rescaling"_is = Figure::decimals(rescaling, 4),
                "rescaling_inverse"_is = Figure::decimals(1 / rescaling, 4),
                "rescaling_none"_is = 1});
    found.at_most("pencil", std::abs(second.y / second.sum - at_once()), 1e-13);
    State wrong;
    wrong.take_in(0, /*rescale=*/false);
    wrong.take_in(kBlock, /*rescale=*/false);
    found.give("not_rescaled", Figure::decimals(wrong.y / wrong.sum, 4));
    if (lesson.has_numbers()) {
        const RunReport report =
            run_blocks(*make_cluster(lesson.options(), 1), lesson.options().dtype);
        const auto& kept = report.ranks.front().kept;
        found.at_most("device_l", std::abs(kept.at("sum_0").at(0) - first.sum),
                      lesson.bound());
        found.at_most("device_y", std::abs(kept.at("y").at(0) - at_once()) / at_once(),
                      lesson.bound());
    }
    check_method(lesson, found, ContextMethod::ring_attention);
}

/// Counts what the other methods send.
void other_ways(RingLesson& lesson, Findings& found) {
    const ContextShape shape = lesson.large().shared_out_to(lesson.ranks);
    const std::int64_t hops = lesson.ranks - 1;
    const std::int64_t block = block_of(shape);
    found.give({"ring_backward"_is = in_blocks(2 * (hops + lesson.ranks) * block, shape),
                "ring_backward_not_home"_is = in_blocks(4 * hops * block, shape),
                "ulysses_forward"_is = in_blocks(4 * hops * block / lesson.ranks, shape),
                "ulysses_forward_all"_is = 4});
    for (const ContextMethod method :
         {ContextMethod::ring_attention, ContextMethod::gather, ContextMethod::ulysses})
        check_sent(lesson, found, method);
}

}  // namespace

LessonEntry ring_self_attention_lesson() {
    Choice methods{{}, name_of(ContextMethod::ring_attention)};
    for (const ContextMethod method : all_context_methods())
        methods.words.emplace_back(name_of(method));
    LessonEntry entry;
    entry.slug = "ring-self-attention";
    entry.folder = "07_ring_self_attention";
    entry.default_ranks = 4;
    entry.least_ranks = kLeastRanks;
    entry.most_ranks = kMostRanks;
    entry.settings = {
        {"method", "of step 10", methods},
        {"order", "of tokens in step 10",
         Choice{{"contiguous", "striped", "zigzag"}, "zigzag"}},
        {"layers", "transformer blocks of the GPT", Whole{1, 64, 2}},
        {"heads", "of attention; with ulysses a multiple of the ranks", Whole{1, 64},
         "4"},
        {"kv_heads", "of keys and values; divides the heads", Whole{1, 64}, "the heads"},
        {"hidden", "columns between layers; 16 a head", Whole{1, 1024}, "64"},
        {"context", "tokens of a sequence; a multiple of twice the ranks", Whole{1, 4096},
         "256"},
        {"batch", "sequences of a step", Whole{1, 1024, 4}},
        {"steps", "of training", Whole{1, 100'000, 40}},
        {"learning_rate", "of SGD with momentum 0.9", Real{0, 1e6, 0.2}},
    };
    entry.takes_text = true;
    entry.make = lesson_of<RingLesson>({{"reach", reach},
                                        {"scores", scores},
                                        {"output", output},
                                        {"bytes", bytes},
                                        {"online", online},
                                        {"other_ways", other_ways},
                                        {"memory", memory},
                                        {"causal", causal},
                                        {"overlap", overlap},
                                        {"train", train}});
    return entry;
}

}  // namespace lockstep::lessons
