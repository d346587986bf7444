#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lessons/07_ring_self_attention/attention_problem.hpp"
#include "lessons/runner/curves.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/comm/mesh.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/device/formulas.hpp"
#include "src/device/ledger.hpp"
#include "src/device/operations/attention.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/norm.hpp"
#include "src/parallel/context_parallel.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/ring_products.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/report/compare.hpp"

namespace lockstep::lessons {

namespace {

/// A single device runs CoreAttention, which holds all scores, or FlashAttention. Several
/// devices run context-parallel attention.
enum class AttentionKind { core, flash, shared };

/// How a step's tokens are sharded: replicas have different sequences, parts have
/// different tokens of the same sequences.
struct ContextRun {
    int replicas = 1;
    int parts = 1;
    ContextMethod method = ContextMethod::ring_attention;
    TokenOrder order = TokenOrder::contiguous;
    AttentionKind attention = AttentionKind::shared;

    static ContextRun alone(AttentionKind attention) {
        ContextRun run;
        run.attention = attention;
        return run;
    }
    /// Returns two replicas of ranks / 2 parts, or nothing if `ranks` is odd or 2.
    static std::optional<ContextRun> mesh_of(int ranks);

    int ranks() const { return replicas * parts; }
};

GptSizes sizes_of(const LessonOptions& options, int ranks, bool shares_heads,
                  std::int64_t vocabulary) {
    GptSizes sizes;
    sizes.vocabulary = vocabulary;
    sizes.context =
        options.values.integer("context", least_multiple(std::int64_t{2} * ranks, 256));
    sizes.layers = options.values.integer("layers");
    BlockSizes& block = sizes.block;
    block.heads =
        options.values.integer("heads", least_multiple(shares_heads ? ranks : 1, 4));
    block.kv_heads = options.values.integer("kv_heads", block.heads);
    block.hidden = options.values.integer("hidden", 16 * block.heads);
    require_shared_out("context", sizes.context, std::int64_t{2} * ranks,
                       fmt::format("two stretches of each of {} ranks", ranks));
    require_shared_out("hidden", block.hidden, block.heads, "the heads");
    require(block.heads % block.kv_heads == 0,
            "--set kv_heads={}: it must divide the {} heads, because each head of keys "
            "and values serves the same number of heads",
            block.kv_heads, block.heads);
    return sizes;
}

std::optional<ContextRun> ContextRun::mesh_of(int ranks) {
    if (ranks % 2 != 0 || ranks == 2) return std::nullopt;
    ContextRun mesh;
    mesh.replicas = 2;
    mesh.parts = ranks / 2;
    return mesh;
}

/// Makes a GPT whose sequences can be sharded over `ranks` devices in any order. If the
/// method shards heads, the GPT's heads can be sharded, too.
std::shared_ptr<const GptTask> make_context_gpt_task(const LessonOptions& options,
                                                     int ranks, ContextMethod method) {
    const bool shares_heads = method == ContextMethod::ulysses;
    auto task = make_gpt_task(
        options, options.values.integer("batch"), [&](std::int64_t vocabulary) {
            return sizes_of(options, ranks, shares_heads, vocabulary);
        });
    require(!ContextRun::mesh_of(ranks) || task->batch % 2 == 0,
            "--set batch={}: it must be even, because it is sharded over two replicas",
            task->batch);
    return task;
}

/// The state that the lesson's experiments share.
struct RingLesson final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    RingLesson(const LessonOptions& options, Record& record)
        : Lesson(options, record),
          ranks(options.ranks.value_or(4)),
          method(context_method(options.values.word("method"))),
          order(token_order(options.values.word("order"))) {
        task = make_context_gpt_task(options, ranks, method);
        const BlockSizes& block = task->sizes.block;
        require(method != ContextMethod::ulysses || block.kv_heads % ranks == 0,
                "--set method=ulysses: the {} heads of keys and values are sharded over "
                "the ranks; their number must be a multiple of {}",
                block.kv_heads, ranks);
        note_task(*this, *task, {"heads", "kv_heads", "hidden", "context"});
    }

    /// Returns the bound of successive roundings: of scores, weights and output, of their
    /// three gradients, and of sums over the devices, forward and backward.
    double bound() const {
        return RoundingBound{2e-5, 1e-12}.value(options().dtype, 6 + 2 * ranks);
    }
    /// Returns a problem of realistic size, in 16 bits, for shapes only.
    AttentionProblem large() const;

    int ranks;
    std::shared_ptr<const GptTask> task;
    ContextMethod method;
    TokenOrder order;
};

/// Returns the name that the page gives a method: "ring_attention".
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

/// Returns a problem of a few tokens on each device. Unlike large(), it is computed with
/// numbers.
AttentionProblem small(const RingLesson& lesson, bool causal) {
    constexpr std::int64_t kTokensPerRank = 4;
    AttentionProblem problem;
    problem.tokens = kTokensPerRank * lesson.ranks;
    problem.sizes = {/*heads=*/2, causal};
    problem.width = 4;
    problem.dtype = lesson.dtype();
    problem.seed = lesson.options().seed;
    return problem;
}

/// Records the inputs of the small problem.
void record_small(RingLesson& lesson) {
    if (!lesson.has_numbers()) return;
    const AttentionProblem problem = small(lesson, /*causal=*/false);
    lesson.record_input("attention/x", problem.x());
    lesson.record_input("attention/dy", problem.dy());
    lesson.record().models["attention"] = {{"kind", "attention"},
                                           {"heads", problem.sizes.heads},
                                           {"head_width", problem.width},
                                           {"backward_from", "dy"}};
}

/// Returns the largest relative difference of y and dx from one device's.
double core_difference(RingLesson& lesson, const std::string& variant,
                       const RunReport& shared, bool causal) {
    const RunReport alone = run_core(*lesson.devices(1), small(lesson, causal));
    NamedTensors together;
    for (const char* name : {"y", "dx"}) {
        together.emplace(name, whole_kept(shared, name, TokenOrder::contiguous));
        lesson.record_output(variant + "/" + name, together.at(name));
    }
    return difference(together, all_kept(alone)).relative;
}

/// Runs a method on the small problem, records y and dx, and compares
/// them with one device's.
void check_method(RingLesson& lesson, Findings& found, ContextMethod method) {
    record_small(lesson);
    for (const bool causal : {false, true}) {
        const std::string variant =
            std::string(name_of(method)) + (causal ? "_causal" : "");
        const RunReport report =
            run_method(*lesson.devices(lesson.ranks), small(lesson, causal), method);
        lesson.record_run(variant, report);
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

/// Returns the number of tokens whose rows differ in any bit.
std::int64_t changed_tokens(const HostTensor& a, const HostTensor& b) {
    std::int64_t changed = 0;
    for (std::int64_t token = 0; token < a.shape()[0]; ++token)
        changed += a.rows(token, 1) == b.rows(token, 1) ? 0 : 1;
    return changed;
}

using MakeLayer = std::function<std::unique_ptr<Module>(const ParameterInit&)>;

/// Returns in how many tokens a layer's output changes if one input token changes.
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
    const auto& kept = report.ranks[0].kept;
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
        found.equal(name, tokens_reached(lesson.options(), columns, make), expected);
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

/// Each rank keeps its row block of "scores" and, in the series "from", the rank whose
/// keys it had at each hop.
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

/// Shows which blocks of its scores each rank has, hop by hop.
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

/// Shows after which hop each rank computes each block.
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

/// More ranks than this do not fit side by side.
constexpr int kMostBeside = 6;

/// Puts the rows of all ranks, (b, a, s/N, s) each, together as (b, a, s, s).
HostTensor all_scores(const RunReport& report) {
    const HostTensor& first = report.ranks[0].kept.at("scores");
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
    const RunReport report = run_scores(*lesson.devices(lesson.ranks), problem);
    found.give("hops",
               lesson.ranks <= kMostBeside ? hop_by_hop(report) : hops_by_block(report));
    const RunReport alone = run_scores(*lesson.devices(1), problem);
    const HostTensor together = all_scores(report);
    record_small(lesson);
    lesson.record_output("scores", together);
    found.at_most("scores",
                  relative_difference(together, alone.ranks[0].kept.at("scores")),
                  lesson.bound());
}

void output(RingLesson& lesson, Findings& found) {
    check_method(lesson, found, ContextMethod::ring_self_attention);
}

/// The elements and messages that a rank sent in forward, and in both passes.
struct Counted {
    Sent forward;
    Sent both;
};

Counted count(const AttentionProblem& problem, ContextMethod method, int ranks) {
    const auto sent = [&](Passes passes) {
        const RunReport report = run_method(*make_shapes_only_cluster(ranks), problem,
                                            method, TokenOrder::contiguous, passes);
        const RankReport& rank = report.ranks[0];
        return Sent{rank.bytes_sent() / bytes_of(problem.dtype), rank.messages_sent()};
    };
    return {sent(Passes::forward), sent(Passes::both)};
}

/// Returns the count of numbers in a rank's keys, or in its values: e = b c a w.
std::int64_t block_of(const ContextShape& shape) {
    return shape.batch * shape.heads * (shape.tokens / shape.ranks) * shape.width;
}

/// Writes a number of elements as a multiple of e.
Figure in_blocks(std::int64_t elements, const ContextShape& shape) {
    return Figure::count(ratio(elements, block_of(shape)));
}

Sent sum(const Sent& a, const Sent& b) {
    return {a.elements + b.elements, a.messages + b.messages};
}

/// Returns how many elements a rank sends for a whole tensor-parallel block.
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
    return report.ranks[0].bytes_sent() / bytes_of(problem.dtype);
}

/// Gives the numbers and messages that a method sends on the large problem, and compares
/// them with the formulas.
void check_sent(RingLesson& lesson, Findings& found, ContextMethod method) {
    const AttentionProblem problem = lesson.large();
    const ContextShape shape = problem.shared_out_to(lesson.ranks);
    const Counted counted = count(problem, method, lesson.ranks);
    const Sent forward = sent_forward(method, shape);
    const Sent both = sum(forward, sent_backward(method, shape));
    const std::string key = key_of(method) + ".";
    const auto hold = [&](const char* what, std::int64_t sent, std::int64_t formula) {
        found.equal(key + what, sent, formula);
    };
    found.give(key + "forward_blocks", in_blocks(counted.forward.elements, shape));
    found.give(key + "both_blocks", in_blocks(counted.both.elements, shape));
    hold("forward", counted.forward.elements, forward.elements);
    hold("both", counted.both.elements, both.elements);
    hold("messages", counted.both.messages, both.messages);
}

/// Counts what Ring Self-Attention sends, and what a tensor-parallel block sends.
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
    found.equal("shared_weights", shared_weights, tensor_parallel_elements(shape));
    found.give("shared_weights_blocks", in_blocks(shared_weights, shape));
}

// Six keys in two blocks, and one query, which is 1. Heads have width 1, so the
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
        const double rescaling = rescale ? formulas::rescaling(maximum, larger) : 1;
        sum *= rescaling;
        y *= rescaling;
        maximum = larger;
        for (int i = first; i < first + kBlock; ++i) {
            const double p = std::exp(kScores[i] - maximum);
            sum += p;
            y += p * kValues[i];
        }
    }
};

/// Returns the softmax's weighted mean, computed all at once.
double at_once() {
    double sum = 0, y = 0;
    for (int i = 0; i < kCount; ++i) {
        sum += std::exp(kScores[i]);
        y += std::exp(kScores[i]) * kValues[i];
    }
    return y / sum;
}

/// Computes the same on a device, which keeps the sum after each block, and "y".
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
    found.give(block, {"m"_is = Figure::count(state.maximum),
                       "l"_is = Figure::decimals(state.sum, 4),
                       "o"_is = Figure::decimals(state.y, 4),
                       "y"_is = Figure::decimals(state.y / state.sum, 4)});
}

/// Computes six scores by hand and on a device, and then checks Ring Attention.
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
        const RunReport report = run_blocks(*lesson.devices(1), lesson.dtype());
        const auto& kept = report.ranks[0].kept;
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

/// Runs attention forward and backward on a cluster.
using RunOn = std::function<RunReport(Cluster&, const AttentionProblem&)>;

struct Way {
    std::string key;
    int ranks;
    int matrices;  ///< how many matrices of scores its ranks together hold at the peak
    RunOn run;
};

std::vector<Way> ways(int ranks) {
    std::vector<Way> all{{"core", 1, 3, run_core}, {"flash", 1, 0, run_flash}};
    for (const ContextMethod method : all_context_methods())
        all.push_back({key_of(method), ranks,
                       method == ContextMethod::ring_self_attention ? 3 : 0,
                       [method](Cluster& cluster, const AttentionProblem& problem) {
                           return run_method(cluster, problem, method);
                       }});
    return all;
}

/// Returns the maximum number of bytes that a device holds.
std::int64_t peak_of(const Way& way, AttentionProblem problem, std::int64_t tokens) {
    problem.tokens = tokens;
    return way.run(*make_shapes_only_cluster(way.ranks), problem).most_held();
}

/// Returns the largest multiple of `step` tokens whose peak fits a device of `capacity`.
/// The peak grows with the number of tokens.
std::int64_t longest(const Way& way, const AttentionProblem& problem, std::int64_t step,
                     std::int64_t capacity) {
    return step * largest_that([&](std::int64_t steps) {
               return peak_of(way, problem, steps * step) <= capacity;
           });
}

/// Returns whether devices of that capacity can run that many tokens.
bool runs(const Way& way, AttentionProblem problem, std::int64_t tokens,
          std::int64_t capacity) {
    problem.tokens = tokens;
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = capacity;
    try {
        way.run(*make_shapes_only_cluster(way.ranks, spec), problem);
        return true;
    } catch (const OutOfMemoryError&) {
        return false;
    }
}

/// Returns the power of N that is nearest to a growth by the factor `times`.
const char* growth_key(double times, int ranks) {
    const double power = std::log(times) / std::log(ranks);
    return power < 0.25   ? "none"
           : power < 0.75 ? "root"
           : power < 1.5  ? "linear"
                          : "square";
}

constexpr std::int64_t kCapacity = std::int64_t{16} << 30;

void weigh_scores(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const std::int64_t s = problem.tokens;
    const auto square = static_cast<double>(2 * problem.sizes.heads * s * s);
    for (const Way& way : ways(lesson.ranks)) {
        const std::int64_t peak = peak_of(way, problem, s);
        // f(s) = p s² + q s: f(2 s) - 2 f(s) = 2 p s²
        const std::int64_t quadratic = (peak_of(way, problem, 2 * s) - 2 * peak) / 2;
        found.give(way.key, {"held"_is = Figure::memory(peak),
                             "matrices"_is =
                                 Figure::count(static_cast<double>(quadratic) / square)});
        found.equal(way.key + ".square", Figure::memory(quadratic),
                    way.matrices * square / way.ranks);
    }
}

void find_longest(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const std::int64_t step = std::int64_t{8} * lesson.ranks;
    found.give({"capacity"_is = Figure::memory(kCapacity), "longest_step"_is = step});
    double one = 0;
    for (const Way& way : ways(lesson.ranks)) {
        const std::int64_t tokens = longest(way, problem, step, kCapacity);
        if (one == 0) one = static_cast<double>(tokens);
        const double times = static_cast<double>(tokens) / one;
        found.give(way.key,
                   {"tokens"_is = tokens, "times"_is = Figure::decimals(times, 2)});
        if (way.key == key_of(ContextMethod::ring_self_attention))
            found.give("growth", growth_key(times, lesson.ranks));
        const bool fits = runs(way, problem, tokens, kCapacity) &&
                          !runs(way, problem, tokens + step, kCapacity);
        found.equal(way.key + ".fits", fits ? 1 : 0, 1);
    }
}

void memory(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const std::int64_t a = problem.sizes.heads;
    const std::int64_t s = problem.tokens;
    const std::int64_t c = s / lesson.ranks;
    found.give({"scores_held"_is = Figure::bytes(2 * a * s * c),
                "scores_alone"_is = Figure::bytes(2 * a * s * s),
                "scores_own_keys"_is = Figure::bytes(2 * a * c * c),
                "scores_one_head"_is = Figure::bytes(2 * s * c)});
    weigh_scores(lesson, found);
    find_longest(lesson, found);
}

/// Returns a cluster where only arithmetic takes time, not launches, memory or links.
ClusterSpec arithmetic_alone() {
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = 0;
    spec.memory_bytes_per_second = 0;
    spec.launch_seconds = 0;
    spec.inside = spec.between = {0, 0};
    return spec;
}

/// Returns the pairs of tokens that each rank computed in Ring Attention's forward.
std::vector<std::int64_t> pairs_of(const RunReport& report,
                                   const AttentionProblem& problem) {
    const auto ranks = static_cast<std::int64_t>(report.ranks.size());
    const std::int64_t rows =
        problem.tokens / ranks * problem.batch * problem.sizes.heads;
    const std::int64_t finish =
        rows * problem.width + rows * ops::FinishAttention::kFlopsOfRow;
    const std::int64_t a_pair = (4 * problem.width + ops::Attend::kFlopsOfPair) *
                                problem.batch * problem.sizes.heads;
    std::vector<std::int64_t> pairs;
    for (const RankReport& rank : report.ranks)
        pairs.push_back((rank.flops - finish) / a_pair);
    return pairs;
}

/// Returns the pairs of the last rank if tokens are contiguous: all blocks before its own
/// block, and half of its own.
double pairs_of_last(const AttentionProblem& problem, int ranks) {
    const auto c = static_cast<double>(problem.tokens) / ranks;
    return (ranks - 1) * c * c + c * (c + 1) / 2;
}

std::int64_t spread(const std::vector<std::int64_t>& numbers) {
    return *std::max_element(numbers.begin(), numbers.end()) -
           *std::min_element(numbers.begin(), numbers.end());
}

/// Returns which device computes the most pairs.
const char* busiest_key(const std::vector<std::int64_t>& pairs) {
    const auto most = std::ranges::max_element(pairs);
    return spread(pairs) == 0        ? "alike"
           : most == pairs.begin()   ? "first"
           : most == pairs.end() - 1 ? "last"
                                     : "middle";
}

constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};

/// Runs Ring Attention's forward on the large problem, with tokens in this order. Only
/// the devices' arithmetic takes time.
RunReport run_causal(const RingLesson& lesson, TokenOrder order) {
    AttentionProblem problem = lesson.large();
    problem.sizes.causal = true;
    return run_method(*make_shapes_only_cluster(lesson.ranks, arithmetic_alone(),
                                                /*trace=*/true),
                      problem, ContextMethod::ring_attention, order, Passes::forward);
}

/// Gives the pairs of each device, by order.
void give_pairs(RingLesson& lesson, Findings& found, const std::vector<RunReport>& runs) {
    const AttentionProblem problem = lesson.large();
    std::vector<std::vector<std::int64_t>> pairs;
    pairs.reserve(runs.size());
    for (const RunReport& run : runs)
        pairs.push_back(pairs_of(run, problem));
    for (std::size_t rank = 0; rank < pairs.front().size(); ++rank) {
        Findings& row = found.row("pairs", {"device"_is = rank});
        for (std::size_t order = 0; order < std::size(kOrders); ++order)
            row.give(name_of(kOrders[order]), pairs[order][rank]);
    }
    found.give("busiest", busiest_key(pairs[0]));
    const auto c = static_cast<double>(problem.tokens) / lesson.ranks;
    found.equal("last_pairs", pairs[0].back(), pairs_of_last(problem, lesson.ranks));
    found.at_most("striped_spread", static_cast<double>(spread(pairs[1])) / (c * c), 1);
    found.equal("zigzag_spread", spread(pairs[2]), 0);
}

void causal(RingLesson& lesson, Findings& found) {
    const AttentionProblem problem = lesson.large();
    const auto s = static_cast<double>(problem.tokens);
    const double c = s / lesson.ranks;
    found.give({"share_more"_is = problem.tokens / lesson.ranks + 1,
                "twice_devices"_is = 2 * lesson.ranks,
                "pairs_of_last"_is = Figure::count(pairs_of_last(problem, lesson.ranks)),
                "pairs_own_whole"_is = Figure::count(lesson.ranks * c * c),
                "pairs_without_own"_is = Figure::count((lesson.ranks - 1) * c * c),
                "pairs_all"_is = Figure::count(s * (s + 1) / 2)});
    std::vector<RunReport> runs;
    for (const TokenOrder order : kOrders) {
        runs.push_back(run_causal(lesson, order));
        const std::string name = name_of(order);
        lesson.record_run("causal_" + name, runs.back());
    }
    give_pairs(lesson, found, runs);
    found.timeline("contiguous", runs.front());
    found.timeline("zigzag", runs.back());
    const double slower = ratio(runs.front().makespan(), runs.back().makespan());
    found.give("time_ratio", Figure::decimals(slower, 2));
    found.at_most("time_ratio_gap", std::abs(slower - (2 - 1.0 / lesson.ranks)), 0.01);
}

/// Returns a cluster with 2 TFLOP/s in 16 bits. Launches, memory and a
/// message's latency are free.
ClusterSpec with_link(double bytes_per_second) {
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = 0;
    spec.memory_bytes_per_second = 0;
    spec.launch_seconds = 0;
    spec.inside = spec.between = {0, bytes_per_second};
    return spec;
}

constexpr double kLink = 10e9;

RunReport run_ring(const AttentionProblem& problem, int ranks, double bytes_per_second) {
    return run_method(*make_shapes_only_cluster(ranks, with_link(bytes_per_second), true),
                      problem, ContextMethod::ring_attention, TokenOrder::contiguous,
                      Passes::forward);
}

/// The times of attention to one block, of sending the block on, and of finishing after
/// the last block.
struct BlockTimes {
    Picoseconds attend, hop, finish;

    /// Returns the time of N blocks. Attention to a block overlaps with the next hop.
    Picoseconds formula(int ranks) const {
        return attend + (ranks - 1) * std::max(attend, hop) + finish;
    }
};

BlockTimes times_of(const AttentionProblem& problem, int ranks, const ClusterSpec& spec) {
    const std::int64_t c = problem.tokens / ranks;
    const std::int64_t rows = c * problem.batch * problem.sizes.heads;
    const auto time = [&](std::int64_t flops, DType dtype) {
        return operation_time(spec, flops, 0, dtype);
    };
    return {
        time(rows * c * (4 * problem.width + ops::Attend::kFlopsOfPair), problem.dtype),
        message_time(spec.inside, 2 * rows * problem.width * bytes_of(problem.dtype)),
        time(rows * problem.width + rows * ops::FinishAttention::kFlopsOfRow,
             computed_in(problem.dtype))};
}

/// Returns F/β. With this many tokens on a rank, attention takes as long as a hop.
double least_tokens(const AttentionProblem& problem) {
    return with_link(kLink).flops(problem.dtype) / kLink;
}

/// Gives the time of a block, of a hop and of all blocks, for several lengths.
void give_blocks(RingLesson& lesson, Findings& found) {
    AttentionProblem problem = lesson.large();
    const ClusterSpec spec = with_link(kLink);
    for (const double part : {0.25, 0.5, 1.0, 2.0, 4.0}) {
        const auto c = static_cast<std::int64_t>(part * least_tokens(problem));
        problem.tokens = c * lesson.ranks;
        const BlockTimes times = times_of(problem, lesson.ranks, spec);
        const Picoseconds took = run_ring(problem, lesson.ranks, kLink).makespan();
        const Picoseconds work = lesson.ranks * times.attend + times.finish;
        Findings& row = found.row(
            "lengths",
            {"share"_is = std::to_string(c), "attend"_is = Figure::time(times.attend),
             "hop"_is = Figure::time(times.hop),
             "work"_is = Figure::percent(100.0 * ratio(work, took))});
        row.equal("time", Figure::time(took), times.formula(lesson.ranks));
    }
}

void overlap(RingLesson& lesson, Findings& found) {
    AttentionProblem problem = lesson.large();
    found.give({"least_tokens"_is = Figure::count(least_tokens(problem)),
                "least_tokens_bits"_is = Figure::count(8 * least_tokens(problem))});
    give_blocks(lesson, found);
    const auto c = static_cast<std::int64_t>(2 * least_tokens(problem));
    problem.tokens = c * lesson.ranks;
    const BlockTimes slow = times_of(problem, lesson.ranks, with_link(kLink / 4));
    found.give({"linked_share"_is = c,
                "slow_hop"_is = slow.hop <= slow.attend ? "hides" : "shows",
                "slow_hop_time"_is = Figure::time(slow.hop),
                "slow_block_time"_is = Figure::time(slow.attend)});
    for (const auto& [name, bandwidth] :
         {std::pair{"link", kLink}, std::pair{"slow_link", kLink / 4}}) {
        const RunReport report = run_ring(problem, lesson.ranks, bandwidth);
        lesson.record_run(name, report);
        found.timeline(name, report);
    }
}

/// Returns the kit that says which tokens a rank has, and how it attends.
GptKit kit_of(const ContextRun& run, Communicator& cp) {
    GptKit kit;
    switch (run.attention) {
        case AttentionKind::core:
            break;
        case AttentionKind::flash:
            kit.core = [](Device& device, const AttentionSizes& sizes) {
                return std::make_unique<FlashAttention>(device, sizes);
            };
            break;
        case AttentionKind::shared:
            return context_parallel(kit, cp, run.method, run.order);
    }
    return kit;
}

/// Trains on `cluster`, which has run.ranks() devices. Keeps what train() keeps.
RunReport train_gpt_context(Cluster& cluster, const GptTask& task, const ContextRun& run,
                            const Advance& advance = {}) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"dp", run.replicas}, {"cp", run.parts}});
        const GptKit kit = kit_of(run, mesh["cp"]);
        const auto gpt = make_gpt(task.init(device), task.sizes, kit);
        declare_replicas_of(rank.world(), *gpt);
        const std::int64_t sequences = task.batch / run.replicas;
        const auto batches = [&](int step) {
            // A rank's tokens are one share of the batch, with the weight 1/ranks.
            return std::vector{upload_tokens(device, task, step,
                                             mesh.coordinate("dp") * sequences, sequences,
                                             1.0 / rank.size(), kit.tokens)};
        };
        train_gpt(rank, *gpt, task, cross_entropy_loss, batches, advance);
    });
}

/// Returns the maximum number of bytes that a device holds while it trains with that
/// context, by the ledger of a run with shapes only.
std::int64_t training_peak(const GptTask& task, const ContextRun& run,
                           std::int64_t context) {
    GptTask one = task;
    one.sizes.context = context;
    one.steps = 1;
    return train_gpt_context(*make_shapes_only_cluster(run.ranks()), one, run)
        .most_held();
}

/// Returns the number of stores for RoundingBound.
int stores_of(const GptTask& task, int ranks) {
    return static_cast<int>(task.sizes.layers) * block_stores(ranks);
}

/// Returns the largest relative difference of the first gradients from one device's.
double gradient_difference(const NamedTensors& outputs, const std::string& variant) {
    return difference(named_under(outputs, variant + "/grad/"),
                      named_under(outputs, "gpt_1/grad/"))
        .relative;
}

std::vector<double> train_on(RingLesson& lesson, Findings& found, const ContextRun& run,
                             const std::string& variant, const std::string& check) {
    const RunReport report =
        train_gpt_context(*lesson.devices(run.ranks()), *lesson.task, run,
                          advancing(variant, lesson.task->steps));
    lesson.record_run(variant, report);
    if (!lesson.has_numbers()) return {};
    const bool alone = run.attention != AttentionKind::shared;
    std::vector<double> curve = losses_of(report);
    record_training(lesson.record(), variant, alone, curve, report);
    if (alone) return curve;
    found.at_most(check, gradient_difference(lesson.record().outputs, variant),
                  RoundingBound{2e-4, 1e-11}.value(lesson.dtype(),
                                                   stores_of(*lesson.task, run.ranks())));
    return curve;
}

ContextRun shared_run(const RingLesson& lesson) {
    return {1, lesson.ranks, lesson.method, lesson.order, AttentionKind::shared};
}

void give_contexts(RingLesson& lesson, Findings& found, std::int64_t capacity) {
    const auto longest = [&](const ContextRun& run, std::int64_t step) {
        return step * largest_that([&](std::int64_t steps) {
                   return training_peak(*lesson.task, run, steps * step) <= capacity;
               });
    };
    const auto times = [&](std::int64_t alone) {
        return ratio(lesson.task->sizes.context, std::max<std::int64_t>(alone, 1));
    };
    const std::int64_t core = longest(ContextRun::alone(AttentionKind::core), 1);
    const std::int64_t flash = longest(ContextRun::alone(AttentionKind::flash), 1);
    found.give({"core.context"_is = core,
                "core.context_times"_is = Figure::decimals(times(core), 2),
                "flash.context"_is = flash,
                "flash.context_times"_is = Figure::decimals(times(flash), 2),
                "shared.context"_is =
                    longest(shared_run(lesson), std::int64_t{2} * lesson.ranks),
                "no_gain"_is = times(flash) < 1});
}

void train_all(RingLesson& lesson, Findings& found, std::int64_t capacity) {
    Curves curves;
    curves.add("alone", train_on(lesson, found, ContextRun::alone(AttentionKind::core),
                                 "gpt_1", ""));
    const std::string all = fmt::format("gpt_{}", lesson.ranks);
    curves.add("together", train_on(lesson, found, shared_run(lesson), all, "gradients"));
    found.at_most("held", Figure::bytes(lesson.record().runs.back().second.most_held()),
                  static_cast<double>(capacity));
    auto mesh = ContextRun::mesh_of(lesson.ranks);
    found.give("mesh", mesh.has_value());
    if (mesh) {
        mesh->method = lesson.method;
        mesh->order = lesson.order;
        found.give("mesh_parts", mesh->parts);
        curves.add("replicas",
                   train_on(lesson, found, *mesh, all + "_mesh", "mesh_gradients"));
    }
    if (lesson.has_numbers()) curves.give(found, "curve");
    lesson.values_at_most(
        found, "losses", lesson.has_numbers() ? curves.widest_gap() : 0,
        loss_bound(lesson.dtype(), stores_of(*lesson.task, lesson.ranks),
                   curves.losses.front()));
}

void train(RingLesson& lesson, Findings& found) {
    const GptSizes& sizes = lesson.task->sizes;
    const std::int64_t capacity =
        training_peak(*lesson.task, shared_run(lesson), sizes.context);
    found.give(
        {"gpt.layers"_is = sizes.layers, "gpt.hidden"_is = sizes.block.hidden,
         "gpt.heads"_is = sizes.block.heads, "gpt.sequences"_is = lesson.task->batch,
         "gpt.context"_is = sizes.context, "gpt.share"_is = sizes.context / lesson.ranks,
         "gpt.capacity"_is = Figure::memory(capacity),
         "method"_is = name_of(lesson.method), "order"_is = name_of(lesson.order)});
    give_contexts(lesson, found, capacity);
    record_gpt_inputs(lesson.record(), *lesson.task);
    train_all(lesson, found, capacity);
}

}  // namespace

LessonEntry ring_self_attention_lesson() {
    Choice methods{{}, name_of(ContextMethod::ring_attention)};
    for (const ContextMethod method : all_context_methods())
        methods.words.emplace_back(name_of(method));
    LessonEntry entry;
    entry.slug = "ring-self-attention";
    entry.folder = "07_ring_self_attention";
    entry.least_ranks = 2;
    entry.most_ranks = 16;
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
