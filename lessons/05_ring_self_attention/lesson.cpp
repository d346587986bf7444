#include "lessons/05_ring_self_attention/lesson.hpp"

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

namespace {

constexpr int kLeastRanks = 2;
constexpr int kMostRanks = 16;

}  // namespace

RingLesson::RingLesson(const LessonOptions& options, Record& record)
    : Lesson(options, record),
      ranks_(options.ranks.value_or(4)),
      method_(context_method(options.values.word("method"))),
      order_(token_order(options.values.word("order"))) {
    task_ = make_context_gpt_task(options, ranks_, method_);
    const BlockSizes& block = task_->sizes.block;
    require(method_ != ContextMethod::ulysses || block.kv_heads % ranks_ == 0,
            "--set method=ulysses: {} ranks share out the heads of keys and values, {} "
            "here; a multiple of {} is expected",
            ranks_, block.kv_heads, ranks_);
    note("heads", block.heads);
    note("kv_heads", block.kv_heads);
    note("hidden", block.hidden);
    note("context", task_->sizes.context);
    // A weight is a sum of a term for each token of each step.
    record.options.sum_length = task_->tokens() * task_->steps;
}

std::vector<Step> RingLesson::steps() {
    return {
        step("What is different about attention", &RingLesson::whole_block),
        step("Scores, by a ring of keys", &RingLesson::scores),
        step("The output, by a ring of values", &RingLesson::output),
        step("What is sent", &RingLesson::bytes),
        step("Softmax, block by block", &RingLesson::online),
        step("How long a sequence fits", &RingLesson::memory),
        step("Causal attention: who works when", &RingLesson::causal),
        step("When a hop hides", &RingLesson::overlap),
        step("A GPT with a longer context than one device holds", &RingLesson::train)};
}

AttentionProblem RingLesson::small(bool causal) const {
    constexpr std::int64_t kTokensPerRank = 4;
    AttentionProblem problem;
    problem.tokens = kTokensPerRank * ranks_;
    problem.sizes = {/*heads=*/2, causal};
    problem.width = 4;
    problem.dtype = options().dtype;
    problem.seed = options().seed;
    return problem;
}

AttentionProblem RingLesson::large() const {
    constexpr std::int64_t kTokensPerRank = 8192;
    AttentionProblem problem;
    problem.tokens = kTokensPerRank * ranks_;
    problem.sizes.heads = least_multiple(ranks_, 32);
    problem.sizes.causal = false;
    problem.width = 128;
    problem.dtype = DType::bf16;
    problem.shapes_alone = true;
    return problem;
}

void RingLesson::record_small() {
    if (!has_numbers()) return;
    const AttentionProblem problem = small(/*causal=*/false);
    record().inputs.insert_or_assign("attention/x", problem.x());
    record().inputs.insert_or_assign("attention/dy", problem.dy());
    record().models["attention"] = {{"kind", "attention"},
                                    {"heads", problem.sizes.heads},
                                    {"head_width", problem.width},
                                    {"backward_from", "dy"}};
}

void RingLesson::check_core(Page& page, const std::string& variant,
                            const RunReport& shared, bool causal) {
    const RunReport alone = run_core(*make_cluster(options(), 1), small(causal));
    double worst = 0;
    for (const char* name : {"y", "dx"}) {
        const HostTensor whole = whole_kept(shared, name, TokenOrder::contiguous);
        record().outputs.insert_or_assign(variant + "/" + name, whole);
        const double here = relative_difference(whole, alone.ranks.front().kept.at(name));
        if (!(here <= worst)) worst = here;
    }
    page.check(Check::at_most(
        fmt::format("{} against one device: output, and gradients of queries, keys and "
                    "values, largest relative difference",
                    variant),
        worst, bound()));
}

void RingLesson::check_method(Page& page, ContextMethod method) {
    record_small();
    for (const bool causal : {false, true}) {
        const std::string variant =
            std::string(name_of(method)) + (causal ? "_causal" : "");
        const RunReport report =
            run_method(*make_cluster(options(), ranks_), small(causal), method);
        record().runs.emplace_back(variant, report);
        if (has_numbers()) check_core(page, variant, report, causal);
    }
    if (!has_numbers()) page.text("(Not compared, as this run computes shapes only.)");
}

LessonEntry ring_self_attention_lesson() {
    Choice methods{{}, name_of(ContextMethod::ring_attention)};
    for (const ContextMethod method : all_context_methods())
        methods.words.emplace_back(name_of(method));
    LessonEntry entry;
    entry.slug = "ring-self-attention";
    entry.title = "A sequence that lies on several devices";
    entry.question =
        "When each device has a part of a sequence's tokens, how does attention see them "
        "all, what does that send and hold, and who works when?";
    entry.default_ranks = 4;
    entry.least_ranks = kLeastRanks;
    entry.most_ranks = kMostRanks;
    entry.settings = {
        {"method", "of step 9", methods},
        {"order", "of tokens in step 9",
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
    entry.make = make_lesson<RingLesson>;
    return entry;
}

namespace {

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
std::int64_t reach(const LessonOptions& options, std::int64_t columns,
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

}  // namespace

void RingLesson::whole_block(Page& page) {
    page.text(fmt::format(
        "A long sequence fills a device with activations, whatever is done about "
        "weights. So share out the tokens: each of N devices gets s/N of the s tokens of "
        "a sequence, and all weights. What of a transformer block still works, if a "
        "device sees its own tokens alone? Change one token of {}, number {} counted "
        "from 0, and see which tokens of each layer's output change.",
        kTokens, kChanged));
    page.predict(
        "Attention is causal: a token sees those up to itself. In how many tokens of its "
        "output does the change show?",
        kTokens - kChanged, "tokens",
        fmt::format("tokens {} to {}: {} - {}", kChanged, kTokens - 1, kTokens,
                    kChanged));
    if (!has_numbers()) {
        page.text("(This run computes shapes only: there is nothing to show.)");
        return;
    }
    show_reach(page);
    page.text(
        "All else looks at one token at a time: to it, sharing out a sequence is no more "
        "than sharing out a batch, which is data parallelism. Attention alone needs keys "
        "and values of tokens that lie elsewhere, and how it gets them is all that this "
        "lesson is about. (\"Sequence parallelism\" is said of three things. In the "
        "lesson before last, Megatron's: tokens are shared out between tensor-parallel "
        "regions, and gathered for attention. Here Ring Self-Attention, and what came "
        "after it, by now mostly called context parallelism.)");
}

void RingLesson::show_reach(Page& page) {
    Table table{{"layer", "tokens that change"}, {}};
    std::vector<Check> checks;
    const auto look = [&](const char* name, std::int64_t columns, std::int64_t expected,
                          const MakeLayer& make) {
        const std::int64_t changed = reach(options(), columns, make);
        table.rows.push_back({name, std::to_string(changed)});
        checks.push_back(Check::equal(fmt::format("tokens that change behind {}", name),
                                      static_cast<double>(changed),
                                      static_cast<double>(expected)));
    };
    look("layer norm", kHidden, 1, [](const ParameterInit& init) {
        return std::make_unique<LayerNorm>(init, kHidden);
    });
    look("a linear layer", kHidden, 1, [](const ParameterInit& init) {
        return std::make_unique<Linear>(init, kHidden, 3 * kHidden);
    });
    look("the MLP", kHidden, 1,
         [](const ParameterInit& init) { return make_mlp(init, kHidden, 4 * kHidden); });
    look("attention", 3 * kHidden, kTokens - kChanged, [](const ParameterInit& init) {
        return std::make_unique<CoreAttention>(init.device, AttentionSizes{kHeads, true});
    });
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

namespace {

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
        head += fmt::format("{:<{}}",
                            hops == 0 ? "own keys" : fmt::format("hop {}", hops), kWidth);
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
    return text + "@ the block of scores made now   # made before   . not yet";
}

/// At which hop each rank makes each block, for more ranks than fit beside one another.
std::string by_block(const RunReport& report) {
    const std::size_t n = report.ranks.size();
    std::string text = "keys of";
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
    return text + "\nthe hop after which a block of scores is made";
}

std::string picture_of(const RunReport& report) {
    constexpr std::size_t kMostBeside = 6;
    return report.ranks.size() <= kMostBeside ? hop_by_hop(report) : by_block(report);
}

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

}  // namespace

void RingLesson::scores(Page& page) {
    const AttentionProblem problem = small(/*causal=*/false);
    page.text(fmt::format(
        "Deal the tokens out: of s = {} tokens each of N = {} devices gets s/N = {} in a "
        "row, and works out their queries, keys and values by itself. A device needs the "
        "scores of its own queries with all keys: s/N rows of the s x s scores. Ring "
        "Self-Attention (Li et al. 2021) keeps the queries where they are and sends the "
        "keys round: each device hands the keys it has to the next, and takes those of "
        "the previous, until all have seen all. N - 1 hops.",
        problem.tokens, ranks_, problem.tokens / ranks_));
    page.quote("ring");
    page.quote("ring-products");
    if (!has_numbers()) {
        page.text("(This run computes shapes only: there is nothing to show.)");
        return;
    }
    show_hops(page, problem);
    page.text(
        "While a block is being multiplied the next is already on its way: ring.travel "
        "starts the hop before it visits the block, and waits after.");
}

void RingLesson::show_hops(Page& page, const AttentionProblem& problem) {
    const RunReport report = run_scores(*make_cluster(options(), ranks_), problem);
    page.text("Which block of its scores each device makes, hop by hop:");
    page.verbatim(picture_of(report));
    const RunReport alone = run_scores(*make_cluster(options(), 1), problem);
    const HostTensor together = all_scores(report);
    record_small();
    record().outputs.insert_or_assign("scores", together);
    page.check(Check::at_most(
        "the row blocks together against one device's scores, largest relative "
        "difference",
        relative_difference(together, alone.ranks.front().kept.at("scores")), bound()));
}

void RingLesson::output(Page& page) {
    page.text(
        "A device now has whole rows of scores, so the softmax needs no message. The "
        "output is the weights times the values, so values go round once as well, and "
        "each device adds up what their blocks contribute.");
    page.quote("ring-sums");
    page.quote("ring-self-attention");
    page.text(
        "Backward is the same journey: values go round for the gradient of the weights, "
        "keys for that of the queries. The gradients of keys and values are sums over "
        "all queries, of which each device has its own: it works out what these "
        "contribute to all keys, and an all-reduce adds up.");
    page.quote("ring-self-attention-backward");
    check_method(page, ContextMethod::ring_self_attention);
}

namespace {

/// The bytes that a rank sent in both passes, and in the first.
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

/// B Z (s/N) A.
std::int64_t block_of(const ContextShape& of) {
    return of.batch * of.heads * (of.tokens / of.ranks) * of.width;
}

std::string blocks_text(std::int64_t elements, const ContextShape& shape) {
    return fmt::format(
        "{:.4g}", static_cast<double>(elements) / static_cast<double>(block_of(shape)));
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

/// Shows the bytes that each method sends, and checks them.
void show_methods(Page& page, const AttentionProblem& problem, int ranks) {
    const ContextShape shape = problem.shared_out_to(ranks);
    const auto in_blocks = [&](std::int64_t elements) {
        return blocks_text(elements, shape);
    };
    Table table{{"a device sends, in B Z (s/N) A", "forward", "both passes", "messages"},
                {}};
    std::vector<Check> checks;
    const auto hold = [&](const std::string& what, std::int64_t counted,
                          std::int64_t formula) {
        checks.push_back(Check::equal(what + ", against its formula",
                                      static_cast<double>(counted),
                                      static_cast<double>(formula)));
    };
    for (const ContextMethod method : all_context_methods()) {
        const Counted counted = count(problem, method, ranks);
        const Sent forward = sent_forward(method, shape);
        const Sent both = sum(forward, sent_backward(method, shape));
        const std::string name = name_of(method);
        table.rows.push_back({name, in_blocks(counted.forward.elements),
                              in_blocks(counted.both.elements),
                              count_text(counted.both.messages)});
        hold("numbers that " + name + " sends forward", counted.forward.elements,
             forward.elements);
        hold("numbers that " + name + " sends in both passes", counted.both.elements,
             both.elements);
        hold("messages that " + name + " sends", counted.both.messages, both.messages);
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

}  // namespace

void RingLesson::bytes(Page& page) {
    const AttentionProblem problem = large();
    const ContextShape shape = problem.shared_out_to(ranks_);
    page.text(fmt::format(
        "Take a size that is trained in earnest: s = {} tokens, batch B = {}, Z = {} "
        "heads of A = {} columns, on N = {} devices. Shapes are enough to count.",
        count_text(problem.tokens), problem.batch, shape.heads, shape.width, ranks_));
    page.predict(
        "Forward, keys make N - 1 hops and values as many. How many numbers does each "
        "device send?",
        static_cast<double>(std::int64_t{2} * (ranks_ - 1) * block_of(shape)), "",
        fmt::format("2 (N-1) B Z (s/N) A = 2 * {} * {} * {} * {} * {}", ranks_ - 1,
                    problem.batch, shape.heads, count_text(problem.tokens / ranks_),
                    shape.width));
    page.text(
        "Backward: values and keys once more round, 2 (N-1) B Z (s/N) A, and two "
        "all-reduces over the gradients of all keys and all values, each 2 (N-1)/N of N "
        "blocks: 6 (N-1) B Z (s/N) A; 8 (N-1) B Z (s/N) A in all (Li et al. 2021, "
        "section 3.2.2). Counted, beside Ring Attention of the next step, and two others "
        "that people weigh it against: gathered keys and values (Llama 3), and Ulysses "
        "(Jacobs et al. 2023), which shares out heads instead of tokens for as long as "
        "it attends:");
    page.quote("gather-attention");
    page.quote("ulysses-attention");
    show_methods(page, problem, ranks_);
    show_shared_weights(page);
}

void RingLesson::show_shared_weights(Page& page) {
    const AttentionProblem problem = large();
    const ContextShape shape = problem.shared_out_to(ranks_);
    const std::int64_t counted = count_tensor_parallel(problem, ranks_);
    page.check(
        Check::equal("numbers that a block sends whose weights are shared out, against 8 "
                     "b s h (N-1)/N",
                     static_cast<double>(counted),
                     static_cast<double>(tensor_parallel_elements(shape))));
    page.text(fmt::format(
        "Those are {} of the same units: as many as Ring Self-Attention's, for attention "
        "and MLP. Where weights are shared out, every device works on all tokens. Where "
        "tokens are, every device has all weights, and once a step their gradients are "
        "added up, 2 (N-1)/N of them, as in data parallelism: that is not counted here. "
        "Ulysses sends 2/N of what a ring does forward, but N must divide the heads. "
        "With g heads of keys and values for a of queries, rings and all-gather send g/a "
        "of this, Ulysses (a + g)/(2a).",
        blocks_text(counted, shape)));
}

namespace {

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

}  // namespace

void RingLesson::show_pencil(Page& page) {
    page.text(
        "A query with six scores 1 3 2 | 5 4 0, whose keys come in two blocks of three, "
        "and values 10 20 30 | 40 50 60. Hold the largest score m so far, l, the sum of "
        "exp(score - m), and o, that of exp(score - m) times value. When a block brings "
        "a larger m', what was added up relative to m has to be relative to m': multiply "
        "l and o by exp(m - m').");
    Table table{{"after", "m", "rescaled by", "l", "o", "o/l"}, {}};
    State state;
    for (int first = 0; first < kCount; first += kBlock) {
        const double before = state.maximum;
        state.take_in(first, /*rescale=*/true);
        table.rows.push_back(
            {fmt::format("block {}", first / kBlock + 1),
             fmt::format("{:g}", state.maximum),
             first == 0 ? ""
                        : fmt::format("e^({:g} - {:g}) = {:.4f}", before, state.maximum,
                                      std::exp(before - state.maximum)),
             fmt::format("{:.4f}", state.sum), fmt::format("{:.4f}", state.y),
             fmt::format("{:.4f}", state.y / state.sum)});
    }
    page.table(table);
    page.check(Check::at_most("o/l against the softmax of all six at once, off by",
                              std::abs(state.y / state.sum - at_once()), 1e-13));
    State wrong;
    for (int first = 0; first < kCount; first += kBlock)
        wrong.take_in(first, /*rescale=*/false);
    page.text(
        fmt::format("Forget to rescale, and it gives {:.4f}: no crash, no NaN, and as "
                    "plausible as {:.4f}.",
                    wrong.y / wrong.sum, at_once()));
}

void RingLesson::online(Page& page) {
    page.text(
        "Ring Self-Attention keeps all scores of its rows, since a softmax divides by a "
        "sum over the whole row. But the sum can be put together block by block (Milakov "
        "& Gimelshein 2018), and the output with it.");
    show_pencil(page);
    if (has_numbers()) {
        State state;
        state.take_in(0, true);
        const RunReport report = run_blocks(*make_cluster(options(), 1), options().dtype);
        const auto& kept = report.ranks.front().kept;
        page.check(Check::at_most(
            "l after the first block on a device, as attend() leaves it, off by",
            std::abs(kept.at("sum_0").at(0) - state.sum), bound()));
        page.check(Check::at_most("its y, relatively off by",
                                  std::abs(kept.at("y").at(0) - at_once()) / at_once(),
                                  bound()));
    }
    page.text(
        "So keys and values can travel together, and a block is forgotten when it has "
        "been attended to: Ring Attention (Liu et al. 2023). attend() takes one block "
        "in; m, l and o stay on the device.");
    page.quote("ring-attention");
    page.text(
        "Backward needs the weights again. What is kept of them is one number a row, m + "
        "log l: a weight is exp(score - that). The blocks travel once more, and what "
        "each device adds to the gradients of a block travels behind it, one hop later, "
        "until it is home.");
    page.quote("ring-attention-backward");
    check_method(page, ContextMethod::ring_attention);
}

}  // namespace lockstep::lessons
