#include "lessons/05_ring_self_attention/lesson.hpp"

#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kLeastRanks = 2;
constexpr int kMostRanks = 16;

}  // namespace

RingLesson::RingLesson(const LessonOptions& options, Record& record)
    : Lesson(options, record),
      ranks_(options.ranks.value_or(4)),
      method_(ContextMethod::ring_attention),
      order_(TokenOrder::zigzag) {
    require(ranks_ >= kLeastRanks && ranks_ <= kMostRanks,
            "--ranks {}: this lesson's rings have {} to {} devices{}",
            ranks_, kLeastRanks, kMostRanks, options.gpus_hint());
    std::vector<std::string> methods;
    for (const ContextMethod method : all_context_methods())
        methods.emplace_back(name_of(method));
    method_ =
        context_method(options.word("method", name_of(method_), methods));
    order_ = token_order(options.word("order", name_of(order_),
                                      {"contiguous", "striped", "zigzag"}));
    task_ = make_context_gpt_task(options, ranks_, method_);
    const BlockSizes& block = task_->sizes.block;
    require(
        method_ != ContextMethod::ulysses || block.kv_heads % ranks_ == 0,
        "--set method=ulysses: {} ranks share out the heads of "
        "keys and values, {} here; a multiple of {} is expected",
        ranks_, block.kv_heads, ranks_);
    const auto note = [&](const char* key, std::int64_t value) {
        record.options.settings[key] = std::to_string(value);
    };
    note("heads", block.heads);
    note("kv_heads", block.kv_heads);
    note("hidden", block.hidden);
    note("context", task_->sizes.context);
    // A weight is a sum of a term for each token of each step.
    record.options.sum_length = task_->tokens() * task_->steps;
}

std::vector<Step> RingLesson::steps() {
    const auto step = [this](void (RingLesson::*run)(Page&)) {
        return [this, run](Page& page) { (this->*run)(page); };
    };
    return {{"What is different about attention",
             step(&RingLesson::whole_block)},
            {"Scores, by a ring of keys", step(&RingLesson::scores)},
            {"The output, by a ring of values", step(&RingLesson::output)},
            {"What is sent", step(&RingLesson::bytes)},
            {"Softmax, block by block", step(&RingLesson::online)},
            {"How long a sequence fits", step(&RingLesson::memory)},
            {"Causal attention: who works when", step(&RingLesson::causal)},
            {"When a hop hides", step(&RingLesson::overlap)},
            {"A GPT with a longer context than one device holds",
             step(&RingLesson::train)}};
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
    problem.sizes.heads = (32 + ranks_ - 1) / ranks_ * ranks_;
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
}

void RingLesson::check_core(Page& page, const std::string& variant,
                            const RunReport& shared, bool causal) {
    const RunReport alone =
        run_core(*make_cluster(options(), 1), small(causal));
    double worst = 0;
    for (const char* name : {"y", "dx"}) {
        const HostTensor whole =
            whole_kept(shared, name, TokenOrder::contiguous);
        record().outputs.insert_or_assign(variant + "/" + name, whole);
        const double here =
            relative_difference(whole, alone.ranks.front().kept.at(name));
        if (!(here <= worst)) worst = here;
    }
    page.check(Check::at_most(
        fmt::format("{} against one device: output, and gradients of "
                    "queries, keys and values, largest relative difference",
                    variant),
        worst, bound()));
}

void RingLesson::check_method(Page& page, ContextMethod method) {
    record_small();
    for (const bool causal : {false, true}) {
        const std::string variant =
            std::string(name_of(method)) + (causal ? "_causal" : "");
        const RunReport report = run_method(
            *make_cluster(options(), ranks_), small(causal), method);
        record().runs.emplace_back(variant, report);
        if (has_numbers()) check_core(page, variant, report, causal);
    }
    if (!has_numbers())
        page.text("(Not compared, as this run computes shapes only.)");
}

LessonEntry ring_self_attention_lesson() {
    LessonEntry entry;
    entry.slug = "ring-self-attention";
    entry.title = "A sequence that lies on several devices";
    entry.question =
        "When each device has a part of a sequence's tokens, how does "
        "attention see them all, what does that send and hold, and who "
        "works when?";
    entry.default_ranks = 4;
    entry.settings = {
        {"method",
         "of step 9: ring-self-attention, ring-attention, gather or "
         "ulysses",
         "ring-attention"},
        {"order", "of tokens in step 9: contiguous, striped or zigzag",
         "zigzag"},
        {"layers", "transformer blocks of the GPT", "2"},
        {"heads", "of attention; with ulysses a multiple of the ranks",
         "4"},
        {"kv_heads", "of keys and values; divides the heads", "the heads"},
        {"hidden", "columns between layers; 16 a head", "64"},
        {"context", "tokens of a sequence; a multiple of twice the ranks",
         "256"},
        {"batch", "sequences of a step", "4"},
        {"steps", "of training", "40"},
        {"learning_rate", "of SGD with momentum 0.9", "0.2"},
    };
    entry.takes_text = true;
    entry.make = [](const LessonOptions& options, Record& record) {
        return std::make_unique<RingLesson>(options, record);
    };
    return entry;
}

}  // namespace lockstep::lessons
