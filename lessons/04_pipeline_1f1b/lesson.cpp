#include "lessons/04_pipeline_1f1b/lesson.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/gpt_pipeline.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/picture.hpp"
#include "src/pipeline/validate.hpp"
#include "src/pipeline/walk.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kLeastRanks = 2;
constexpr int kMostRanks = 16;

}  // namespace

PipelineLesson::PipelineLesson(const LessonOptions& options, Record& record)
    : Lesson(options, record), ranks_(options.ranks.value_or(4)) {
    micro_batches_ = static_cast<int>(
        options.values.integer("micro_batches", std::int64_t{2} * ranks_));
    require(micro_batches_ % ranks_ == 0,
            "--set micro_batches={}: interleaved schedules take them in rounds of the "
            "stages, so that it must be a multiple of {}",
            micro_batches_, ranks_);
    task_ = make_pipeline_gpt_task(options, ranks_, micro_batches_);
    note("micro_batches", micro_batches_);
    note("layers", task_->sizes.layers);
    note("batch", task_->batch);
    // A weight is a sum of a term for each token of each step.
    record.options.sum_length = task_->tokens() * task_->steps;
}

std::vector<Step> PipelineLesson::steps() {
    return {step("Layers on devices", &PipelineLesson::staircase),
            step("Micro-batches: GPipe", &PipelineLesson::gpipe),
            step("What a stage has to hold: 1F1B", &PipelineLesson::memory),
            step("The steady state, line by line", &PipelineLesson::steady_state),
            step("The bubble, and its two denominators", &PipelineLesson::bubble),
            step("Smaller bubbles, and what they cost", &PipelineLesson::split),
            step("A schedule that hangs", &PipelineLesson::deadlock),
            step("A GPT on real text, by every schedule", &PipelineLesson::train)};
}

Schedule PipelineLesson::schedule(const std::string& name, int chunks,
                                  int micro_batches) const {
    return make_schedule(
        name, {ranks_, micro_batches ? micro_batches : micro_batches_, chunks});
}

const RunReport& PipelineLesson::run(const Schedule& schedule, const std::string& name) {
    const auto known = runs_.find(name);
    if (known != runs_.end()) return known->second;
    LessonOptions unit = options();
    if (unit.has_virtual_time()) unit.cluster = "unit";
    const std::map<std::string, std::string> drawn{
        {"gpipe", "GPipe"}, {"1f1b", "1F1B"}, {"zb-h1", "ZB-H1"}};
    const auto title = drawn.find(name);
    const PipelinePlan plan(schedule);
    RunReport report = make_cluster(unit, ranks_, /*trace=*/title != drawn.end())
                           ->run(stack_program(plan, {options().dtype, options().seed}));
    record().runs.emplace_back("stack_" + name, report);
    if (title != drawn.end()) record().titles["stack_" + name] = title->second;
    return runs_.emplace(name, std::move(report)).first->second;
}

void PipelineLesson::show(Page& page, const Schedule& schedule) {
    const Timing timing = time_schedule(schedule, {{}});
    page.chart(schedule_chart(schedule, timing, {}));
}

void PipelineLesson::check_clock(Page& page, const RunReport& report,
                                 const std::string& formula, double seconds) {
    if (!options().has_virtual_time()) {
        page.text("(On GPUs times are measured, and equal no formula.)");
        return;
    }
    page.check(Check::equal(
        fmt::format("seconds on the virtual clock, against {}", formula),
        static_cast<double>(report.makespan()) / static_cast<double>(kSecond), seconds));
}

LessonEntry pipeline_1f1b_lesson() {
    LessonEntry entry;
    entry.slug = "pipeline-1f1b";
    entry.title = "A pipeline of devices, and the bubble in it";
    entry.question =
        "When a model's layers lie on several devices, in which order should these work, "
        "what does each have to hold, and why do some orders hang?";
    entry.default_ranks = 4;
    entry.least_ranks = kLeastRanks;
    entry.most_ranks = kMostRanks;
    entry.settings = {
        {"micro_batches", "of a step; a multiple of the ranks", Whole{1, 256},
         "twice the ranks"},
        {"layers", "transformer blocks of the GPT", Whole{1, 64},
         "as many as the ranks, or what two chunks a stage need"},
        {"heads", "of attention", Whole{1, 64, 4}},
        {"hidden", "columns between layers; 16 a head", Whole{1, 1024}, "64"},
        {"context", "tokens of a sequence", Whole{1, 1024, 32}},
        {"batch", "sequences of a step; a multiple of the micro-batches", Whole{1, 1024},
         "one a micro-batch"},
        {"steps", "of training", Whole{1, 100'000, 40}},
        {"learning_rate", "of SGD with momentum 0.9", Real{0, 1e6, 0.2}},
        {"tied", "1: the GPT's head reads its table of characters", Whole{0, 1, 0}},
    };
    entry.takes_text = true;
    entry.make = make_lesson<PipelineLesson>;
    return entry;
}

namespace {

constexpr double kForward = 1;   ///< seconds of a stage, in the cluster `unit`
constexpr double kBackward = 2;  ///< both halves

}  // namespace

void PipelineLesson::staircase(Page& page) {
    page.text(fmt::format(
        "A model that is too large for one device can be cut between its layers: the "
        "first device computes the first layers and sends what comes out to the second, "
        "and so on to the last of p = {}, which knows the loss. Then gradients travel "
        "back the same way. Each device is a stage. To see the time by itself, let every "
        "stage have as many equal layers as the others, let forward take 1 s, backward 2 "
        "s (half of it for the gradient of its input, half for that of its weights), and "
        "let messages be free: the cluster called unit.",
        ranks_));
    page.predict(fmt::format("One batch goes through {} stages, forward and back. What "
                             "part of the time does each device work?",
                             ranks_),
                 100.0 / ranks_, "%",
                 fmt::format("it works 3 s of p (1 s + 2 s) = {} s: 1/p = 1/{}",
                             3 * ranks_, ranks_));
    const Schedule naive = schedule("naive", 1, 1);
    const RunReport& report = run(naive, "naive");
    show(page, naive);
    check_clock(page, report, "p (t_f + t_b)", ranks_ * (kForward + kBackward));
    page.check(
        Check::equal("part of the time that devices work, by the timer, against 1/p",
                     time_schedule(naive, {{}}).utilisation(), 1.0 / ranks_));
    page.text(
        "A staircase up and a staircase down, and nobody works beside anybody else: p "
        "devices, and the speed of one. What they gained is memory. This is how a model "
        "runs that somebody has merely put on several devices, layer by layer. As a "
        "schedule, which says in which order each stage works:");
    page.quote("naive-schedule");
}

void PipelineLesson::gpipe(Page& page) {
    const int p = ranks_;
    const int m = micro_batches_;
    page.text(fmt::format(
        "Cut the batch into m micro-batches, as gradient accumulation does. Now stage 0 "
        "can begin the second while stage 1 has the first. GPipe (Huang et al. 2019) "
        "runs all forwards, then all backwards, and steps once at the end: the gradients "
        "are those of the whole batch. (A second is now the time of one micro-batch.)"));
    page.quote("gpipe-schedule");
    page.predict(
        fmt::format(
            "{} micro-batches through {} stages. Each stage has m (1 s + 2 s) of work, "
            "but the last one's first forward begins after p - 1 others, and at the end "
            "it waits as long for backwards. What part of the time is idle?",
            m, p),
        100.0 * (p - 1) / (m + p - 1), "%",
        fmt::format("(p - 1)/(m + p - 1) = {}/{}", p - 1, m + p - 1));
    const Schedule all_forwards = schedule("gpipe");
    const RunReport& report = run(all_forwards, "gpipe");
    show(page, all_forwards);
    check_clock(page, report, "(m + p - 1)(t_f + t_b)",
                (m + p - 1) * (kForward + kBackward));
    page.check(
        Check::equal("idle part of the time, by the timer, against (p - 1)/(m + p - 1)",
                     time_schedule(all_forwards, {{}}).bubble_over_total(),
                     static_cast<double>(p - 1) / (m + p - 1)));
    page.text(
        "The hatched corners are the bubble. The times are derived, not declared: each "
        "instruction begins when its stage is free and its data is there, and the same "
        "program that gave the numbers ran on the virtual clock. This is what each "
        "device runs; in which order, the plan says:");
    page.quote("pipeline-program");
}

namespace {

std::int64_t activations(const RunReport& report, int stage) {
    return report.ranks[stage]
        .memory.category_peak[static_cast<std::size_t>(MemoryCategory::activations)];
}

}  // namespace

/// Peaks of each stage, against those of one micro-batch and of two.
void PipelineLesson::show_ledger(Page& page, const Schedule& turns) {
    const RunReport& one = run(schedule("gpipe", 1, 1), "gpipe_one");
    const RunReport& two = run(schedule("gpipe", 1, 2), "gpipe_two");
    const RunReport& gpipe = run(schedule("gpipe"), "gpipe");
    const RunReport& report = run(turns, "1f1b");
    if (!options().has_virtual_time()) {
        page.text(
            "(On GPUs memory is freed when the device gets to it, so that peaks vary; on "
            "virtual devices they are exact.)");
        return;
    }
    const int m = micro_batches_;
    Table table{{"stage", "a micro-batch", "GPipe holds", "activations", "1F1B holds",
                 "activations"},
                {}};
    const std::vector<Holdings> held = peak_holdings(turns);
    const std::int64_t boundary = stack_boundary_bytes(options().dtype);
    std::int64_t gpipe_off = 0;
    std::int64_t off = 0;
    for (int stage = 0; stage < ranks_; ++stage) {
        const std::int64_t first = activations(one, stage);
        const std::int64_t each = activations(two, stage) - first;
        const int count = held[stage].in_flight;
        const bool next_is_there = stage > 0 && m > count;
        gpipe_off += std::abs(activations(gpipe, stage) - first - (m - 1) * each);
        off += std::abs(activations(report, stage) - first - (count - 1) * each -
                        (next_is_there ? boundary : 0));
        table.rows.push_back({std::to_string(stage), bytes_text(each), std::to_string(m),
                              bytes_text(activations(gpipe, stage)),
                              std::to_string(count),
                              bytes_text(activations(report, stage))});
    }
    page.text(
        "The ledger counts every byte. A stage's activations with one micro-batch and "
        "with two differ by what each micro-batch costs; what the first one costs beyond "
        "that is on its way, or needed while backward runs. All else follows.");
    page.table(table);
    page.check(Check::equal(
        "bytes by which GPipe's peaks differ from the first micro-batch's and m - 1 more",
        static_cast<double>(gpipe_off), 0));
    page.check(
        Check::equal("bytes by which 1F1B's peaks differ from those of min(p - s, m) "
                     "micro-batches and, behind stage 0, the next one's input",
                     static_cast<double>(off), 0));
}

void PipelineLesson::memory(Page& page) {
    const int p = ranks_;
    const int m = micro_batches_;
    page.text(
        fmt::format("In GPipe every stage has run all {} forwards before its first "
                    "backward, and keeps what each of them saved. But the last stage "
                    "could turn back at once: it needs nobody. 1F1B (one forward, one "
                    "backward) does so. A stage runs ahead by one forward for each stage "
                    "behind it, then alternates, so that it never holds more than that.",
                    m));
    page.quote("1f1b-schedule");
    page.predict(
        fmt::format(
            "How many micro-batches does stage 0 hold at most, with p = {} and m = {}?",
            p, m),
        std::min(p, m), "", fmt::format("min(p - s, m) = min({} - 0, {})", p, m));
    const Schedule turns = schedule("1f1b");
    const RunReport& report = run(turns, "1f1b");
    show(page, turns);

    show_ledger(page, turns);
    page.text(
        fmt::format("On every stage but the first, {} more are held where another "
                    "micro-batch is still to come: its input arrives while the stage "
                    "still computes, which is what hides the message.",
                    bytes_text(stack_boundary_bytes(options().dtype))));
    page.text(
        "And the time? It is often said that 1F1B is faster. Look at the first stage: it "
        "still waits for its first backward until p - 1 forwards and p - 1 backwards are "
        "done elsewhere. The idle time has moved to the middle, no more.");
    check_clock(page, report, "GPipe's (m + p - 1)(t_f + t_b)", (m + p - 1) * 3.0);
}

namespace {

std::string need_text(const Schedule& schedule, const WorkIndex& index, Place place) {
    const Instruction& work = schedule.at(place);
    if (is_message(work.kind))
        return fmt::format("stage {}'s {}", index.peer(place),
                           text_of(schedule.at(index.partner(place))));
    const Place need = index.need(place);
    if (!need) return "";
    return need.stage == place.stage
               ? text_of(schedule.at(need))
               : fmt::format("stage {}'s {}", need.stage, text_of(schedule.at(need)));
}

/// A stage's instructions from its first backward to just before its third.
std::vector<Place> two_rounds(const Schedule& schedule, int stage) {
    std::vector<Place> places;
    int backwards = 0;
    const auto& list = schedule.of(stage);
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
        const Place place{stage, position};
        const InstructionKind kind = schedule.at(place).kind;
        if (kind == InstructionKind::backward) ++backwards;
        if ((backwards == 1 || backwards == 2) && has_micro_batch(kind))
            places.push_back(place);
    }
    return places;
}

}  // namespace

void PipelineLesson::steady_state(Page& page) {
    const int stage = ranks_ / 2 - 1;
    page.text(fmt::format(
        "A schedule becomes a program when its messages are added: behind what makes "
        "data a send (SA of an activation, SG of a gradient), and a receive (RA, RG) on "
        "the stage that needs it. They run beside the work: a send holds nobody up, and "
        "a receive is posted early, so that the message can come while the stage still "
        "computes. This is stage {} of {}, from its first backward (B) on. A stage in "
        "the steady state runs a forward (F) and a backward in turn; each forward is of "
        "a micro-batch that came in later, by as many as are in flight.",
        stage, ranks_));
    const Schedule sent = with_messages(schedule("1f1b"));
    const Timing timing = time_schedule(sent, {{}});
    const WorkIndex index(sent);
    Table table{{"instruction", "what it does", "waits for", "begins", "ends"}, {}};
    for (const Place place : two_rounds(sent, stage)) {
        const Instruction& work = sent.at(place);
        const TimeSpan& span = timing.span(place);
        table.rows.push_back(
            {text_of(work), name_of(work.kind), need_text(sent, index, place),
             fmt::format("{} s", span.start), fmt::format("{} s", span.end)});
    }
    page.table(table);
    page.text(
        "In which order do messages go? All stages must agree, since a send waits until "
        "its receive is there (step 7). Here they go in the order in which their data is "
        "made, over all stages; each stage's list is its part of that one order. The "
        "executor then has little to decide. It is an interpreter:");
    page.quote("pipeline-executor");
    std::int64_t messages = 0;
    for (const RankReport& rank : run(schedule("1f1b"), "1f1b").ranks)
        messages += rank.messages_sent();
    page.check(
        Check::equal("messages sent, against 2 m (p - 1): an activation and a gradient "
                     "for each micro-batch and boundary",
                     static_cast<double>(messages), 2.0 * micro_batches_ * (ranks_ - 1)));
}

namespace {

Timing timing_of(int stages, int micro_batches) {
    return time_schedule(make_schedule("1f1b", {stages, micro_batches, 1}), {{}});
}

/// Shows the bubble for several numbers of stages and micro-batches, over
/// both denominators.
void show_bubbles(Page& page) {
    Table table{{"stages", "m = 1", "m = 4", "m = 8", "m = 16", "m = 64", "of the"}, {}};
    double widest = 0;
    for (const int stages : {2, 4, 8, 16}) {
        std::vector<std::string> total{std::to_string(stages)};
        std::vector<std::string> ideal{""};
        for (const int m : {1, 4, 8, 16, 64}) {
            const Timing timing = timing_of(stages, m);
            total.push_back(fmt::format("{:.1f} %", 100 * timing.bubble_over_total()));
            ideal.push_back(fmt::format("{:.1f} %", 100 * timing.bubble_over_ideal()));
            const double expected = static_cast<double>(stages - 1) / (m + stages - 1);
            widest = std::max(widest, std::abs(timing.bubble_over_total() - expected));
        }
        total.emplace_back("whole");
        ideal.emplace_back("ideal");
        table.rows.push_back(std::move(total));
        table.rows.push_back(std::move(ideal));
    }
    page.table(table);
    page.check(Check::equal("largest difference of the timer's from (p - 1)/(m + p - 1)",
                            widest, 0));
}

}  // namespace

void PipelineLesson::bubble(Page& page) {
    page.text(
        "The bubble is (p - 1)(t_f + t_b), however many micro-batches there are: so it "
        "weighs less, the more there are. Two numbers are in use for it. GPipe, Chimera "
        "and Zero Bubble divide by the whole time, and get (p - 1)/(m + p - 1): the part "
        "of the time that is lost. Narayanan et al. 2021 (Megatron-LM, SC21) divide by "
        "the ideal time, and get (p - 1)/m: how much longer it takes than without a "
        "bubble. Of p = 8 and m = 8 one paper says 47 %, the other 88 %, and they mean "
        "the same pipeline. Always say which.");
    show_bubbles(page);
    constexpr int kStages = 8;
    constexpr int kEnough = 9 * (kStages - 1);
    page.predict(
        fmt::format("How many micro-batches do {} stages need, so that at most a tenth "
                    "of the whole time is lost?",
                    kStages),
        kEnough, "",
        fmt::format("(p - 1)/(m + p - 1) <= 1/10: m >= 9 (p - 1) = 9 * {}", kStages - 1));
    page.check(Check::at_most(fmt::format("lost part with m = {}, by the timer", kEnough),
                              timing_of(kStages, kEnough).bubble_over_total(), 0.1));
    page.text(
        "Micro-batches cannot be cut at will: each is a matrix product, and a small one "
        "keeps a GPU no busier than a large bubble does; and the batch itself is bounded "
        "by what training bears. So the bubble is worth attacking as such. (lockstep "
        "schedule 1f1b --stages 8 --micro-batches 24 tries others.)");
}

namespace {

std::int64_t messages_of(const RunReport& report) {
    std::int64_t messages = 0;
    for (const RankReport& rank : report.ranks)
        messages += rank.messages_sent();
    return messages;
}

}  // namespace

void PipelineLesson::show_interleaved(Page& page) {
    const int p = ranks_;
    const int m = micro_batches_;
    constexpr int kChunks = 2;
    page.text(fmt::format(
        "Give each device {} smaller chunks of the model in place of one large one. Cut "
        "into {} parts, device 0 has parts 0 and {}, device 1 parts 1 and {}, and so on: "
        "a micro-batch goes round the devices {} times. The corners of the picture are "
        "as many forwards and backwards as before, but of chunks, so that they take 1/v "
        "of the time (Narayanan et al. 2021).",
        kChunks, kChunks * p, p, p + 1, kChunks));
    page.quote("interleaved-schedule");
    const Schedule rounds = schedule("interleaved", kChunks);
    const RunReport& report = run(rounds, "interleaved");
    const RunReport& plain = run(schedule("1f1b"), "1f1b");
    show(page, rounds);
    page.text(
        "(A unit of time is a chunk's now, half of a stage's; letters in lower case are "
        "of chunk 1.)");
    check_clock(page, report, "3 (v m + p - 1) chunk's seconds",
                3.0 * (kChunks * m + p - 1));
    page.check(Check::equal("bubble over ideal time, by the timer, against (p - 1)/(v m)",
                            time_schedule(rounds, {{}}).bubble_over_ideal(),
                            static_cast<double>(p - 1) / (kChunks * m)));
    page.check(Check::equal("messages sent, against 2 m (v p - 1)",
                            static_cast<double>(messages_of(report)),
                            2.0 * m * (kChunks * p - 1)));
    const int held = peak_holdings(rounds).front().in_flight;
    page.text(fmt::format(
        "The price: {} messages instead of {}, and memory. Stage 0 holds {} chunks, that "
        "is {:.4g} micro-batches' worth of a stage, where 1F1B holds {}: 1 + (p - 1)/(p "
        "v) times as much where m is large. Interleaving saves time, not memory.",
        messages_of(report), messages_of(plain), held,
        static_cast<double>(held) / kChunks, std::min(p, m)));
}

void PipelineLesson::show_split_backward(Page& page) {
    const int p = ranks_;
    const int m = micro_batches_;
    page.text(
        "The other way: of backward's two halves, the stage before waits for the "
        "gradient of the input only. The weights' gradient can be computed at any time "
        "until the step, for instance when there is nothing else to do. Zero Bubble (Qi "
        "et al. 2023) splits each backward (B) into I and W, and lets the Ws fill the "
        "corners. Its first schedule, ZB-H1, holds no more than 1F1B does on stage 0:");
    page.quote("split-backward");
    page.predict(fmt::format("With t_f = t_i = t_w = 1 s and p = {}: how long is a stage "
                             "idle with ZB-H1, where 1F1B's is idle for {} s?",
                             p, 3 * (p - 1)),
                 p - 1, "s",
                 fmt::format("(p - 1)(t_f + t_i - t_w) = {} * (1 + 1 - 1)", p - 1));
    const Schedule halves = schedule("zb-h1");
    const RunReport& report = run(halves, "zb-h1");
    show(page, halves);
    check_clock(page, report, "3 m + (p - 1)(t_f + t_i - t_w)", 3.0 * m + p - 1);
    const int enough = std::max(m, 2 * p);
    const Timing far = time_schedule(schedule("zb-h2", 1, enough), {{}});
    page.text(
        "ZB-H2 runs twice as far ahead, 2 p - 1 micro-batches on stage 0. Where all "
        "three take the same time, and there are 2 p - 1 micro-batches or more, it "
        "closes the bubble altogether: each stage works from its first forward to its "
        "last W without a pause. (Its stages begin and end in a slant, so that the next "
        "step's corner fits into this one's; the time counted is each stage's own.)");
    page.check(Check::equal(
        fmt::format(
            "idle seconds of the stage that takes longest with ZB-H2, {} micro-batches",
            enough),
        static_cast<double>(far.bubble()), 0));
}

void PipelineLesson::show_published(Page& page) {
    // Table of the 1.5 B model, 8 stages and 24 micro-batches, in
    // milliseconds, in thousandths.
    constexpr StageDurations kMeasured{18'522, 18'086, 9'337, 601};
    struct Row {
        const char* name;
        double published;
    };
    page.text(
        "Published figures can be had the same way. Qi et al. give the times that they "
        "measured for a model of 1.5 B parameters on 8 stages with 24 micro-batches (t_f "
        "18.522, t_i 18.086, t_w 9.337, a message 0.601 ms), and the idle part of the "
        "time that follows for each schedule, as their planner reckons it. Our timer "
        "knows the same times and nothing else:");
    Table table{{"schedule", "theirs", "ours"}, {}};
    double widest = 0;
    for (const Row& row :
         {Row{"1f1b", 0.2431}, Row{"zb-h1", 0.1585}, Row{"zb-h2", 0.1083}}) {
        const double ours =
            time_schedule(make_schedule(row.name, {8, 24, 1}), {kMeasured})
                .bubble_over_total();
        widest = std::max(widest, std::abs(ours - row.published));
        table.rows.push_back({row.name, fmt::format("{:.4f}", row.published),
                              fmt::format("{:.4f}", ours)});
    }
    page.table(table);
    page.check(
        Check::at_most("largest difference from the published figures", widest, 5e-5));
}

void PipelineLesson::split(Page& page) {
    show_interleaved(page);
    show_split_backward(page);
    show_published(page);
}

namespace {

/// Returns the diagnosis of the virtual devices; it is empty if the plan runs.
std::string diagnosis_of(const PipelinePlan& plan, const StackOptions& options) {
    try {
        make_shapes_only_cluster(plan.schedule().stages)
            ->run(stack_program(plan, options));
    } catch (const FaultError& fault) {
        constexpr int kColumns = 76;
        return fault.diagnosis().text(kColumns);
    }
    return "";
}

/// Interleaved, with two slips that are easily made: each stage runs ahead as plain 1F1B
/// over p v stages would, and backwards take the chunks in the same order as forwards.
Schedule interleaved_with_slips(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("interleaved with slips", shape);
    const int round = shape.stages * shape.chunks;
    const int turns = shape.micro_batches * shape.chunks;
    const auto turn = [&](InstructionKind kind, int k) {
        return Instruction{kind, k / round * shape.stages + k % shape.stages,
                           k % round / shape.stages};
    };
    for (int stage = 0; stage < shape.stages; ++stage) {
        auto& work = schedule.work[stage];
        const int ahead = round - 1 - stage;
        for (int k = 0; k < turns + ahead; ++k) {
            if (k < turns) work.push_back(turn(InstructionKind::forward, k));
            if (k >= ahead) work.push_back(turn(InstructionKind::backward, k - ahead));
        }
    }
    return schedule;
}

}  // namespace

void PipelineLesson::deadlock(Page& page) {
    page.text(
        "Write 1F1B's messages down as one would at first: each send right behind what "
        "makes its data, each receive right before what needs it. Every stage's list "
        "looks right by itself. But a send waits until its receive is there, and a "
        "stage's messages go one after another.");
    const Schedule broken = with_messages_in_place(schedule("1f1b"));
    const auto problem = find_problem(broken);
    page.text("The validator, which only follows the lists, says:");
    page.text(problem ? problem->sentence : "no problem");
    page.check(Check::equal("stages that wait for one another in a circle",
                            problem ? static_cast<double>(problem->cycle.size()) : 0, 2));
    page.text(
        "On real GPUs this job hangs until somebody kills it. (PyTorch's pull request "
        "126419 is about one of many: a 1F1B that ran on its author's machine and hung "
        "elsewhere, until a send and a receive went together.) On virtual devices it "
        "ends at once, with who waits for whom:");
    const std::string said =
        diagnosis_of(PipelinePlan::unchecked(broken), {options().dtype, options().seed});
    page.verbatim(said);
    page.check(
        Check::equal("the checker's class is F14", said.starts_with("F14") ? 1 : 0, 1));
    page.text(
        "Three mends are in use. Put what neighbours send to each other at the same time "
        "into one group, as Megatron-LM does; then the two pass each other. Or give each "
        "direction a communicator of its own, and hope that the GPU has room for both. "
        "Or let all stages agree on one order of messages, as with_messages() does: the "
        "first message of all that are still to come can then always go. With it the "
        "same schedule runs:");
    const PipelinePlan mended(schedule("1f1b"));
    const std::string silence = diagnosis_of(mended, {options().dtype, options().seed});
    page.check(Check::equal("mistakes that the checker finds after mending",
                            silence.empty() ? 0 : 1, 0));
    page.text(
        "Orders of work can be wrong without any message. Take an interleaved schedule "
        "of 2 stages, 4 micro-batches and 2 chunks, with two slips that are easily made "
        "and easily drawn: each stage runs ahead as plain 1F1B over four stages would, "
        "and backwards take the chunks in the same order as forwards. It is refused "
        "before anything begins:");
    const auto refused = find_problem(interleaved_with_slips({2, 4, 2}));
    page.text(refused ? refused->sentence : "no problem");
    page.check(Check::equal("it is refused for a deadlock",
                            refused && !refused->cycle.empty() ? 1 : 0, 1));
}

}  // namespace lockstep::lessons
