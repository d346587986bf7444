#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "lessons/05_pipeline_1f1b/stack.hpp"
#include "lessons/runner/curves.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/comm/mesh.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/nn/optimizer.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "src/pipeline/validate.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep::lessons {

namespace {

GptSizes sizes_of(const LessonOptions& options, int ranks, std::int64_t vocabulary) {
    GptSizes sizes;
    sizes.vocabulary = vocabulary;
    sizes.context = options.values.integer("context");
    // Enough for two chunks on each stage; embeddings, norm and head count as layers.
    sizes.layers = options.values.integer("layers", std::max(ranks, 2 * ranks - 4));
    sizes.block.heads = options.values.integer("heads");
    sizes.block.hidden = options.values.integer("hidden", 16 * sizes.block.heads);
    sizes.tied = options.values.integer("tied") == 1;
    require(sizes.block.hidden % sizes.block.heads == 0,
            "--set hidden={}: it must be a multiple of the {} heads", sizes.block.hidden,
            sizes.block.heads);
    require(sizes.layer_count() >= ranks,
            "--set layers={}: with embeddings, norm and head these are {} layers, too "
            "few for {} stages",
            sizes.layers, sizes.layer_count(), ranks);
    return sizes;
}

/// Makes a GPT that can be cut into `ranks` stages of two chunks, and a batch that can be
/// cut into the micro-batches.
std::shared_ptr<const GptTask> make_pipeline_gpt_task(const LessonOptions& options,
                                                      int ranks, int micro_batches) {
    auto task = make_gpt_task(
        options, options.values.integer("batch", micro_batches),
        [&](std::int64_t vocabulary) { return sizes_of(options, ranks, vocabulary); });
    require(task->batch % micro_batches == 0,
            "--set batch={}: it must be a multiple of the {} micro-batches", task->batch,
            micro_batches);
    return task;
}

/// The state that the lesson's experiments share.
struct PipelineLesson final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    PipelineLesson(const LessonOptions& options, Record& record)
        : Lesson(options, record), ranks(options.ranks.value_or(4)) {
        micro_batches = static_cast<int>(
            options.values.integer("micro_batches", std::int64_t{2} * ranks));
        require(micro_batches % ranks == 0,
                "--set micro_batches={}: interleaved schedules need a multiple of {}, "
                "the number of stages",
                micro_batches, ranks);
        task = make_pipeline_gpt_task(options, ranks, micro_batches);
        note("micro_batches", micro_batches);
        note_task(*this, *task, {"layers", "batch"});
    }

    int ranks;
    int micro_batches;
    std::shared_ptr<const GptTask> task;
    std::map<std::string, RunReport> runs;  ///< runs of the stack, by name
    RunReport alone;                        ///< the GPT's run on one device
};

/// The names of the schedules by which the lesson trains.
const std::vector<std::string>& trained() {
    static const std::vector<std::string> names{"naive",       "gpipe", "1f1b",
                                                "interleaved", "zb-h1", "zb-h2"};
    return names;
}

/// Returns a schedule for the lesson's stages. 0 means the lesson's `micro_batches`.
Schedule schedule(const PipelineLesson& lesson, const std::string& name, int chunks = 1,
                  int micro_batches = 0) {
    return make_schedule(
        name,
        {lesson.ranks, micro_batches ? micro_batches : lesson.micro_batches, chunks});
}

/// Runs the schedule over the stack, or returns the earlier run of that name. Forward
/// takes one second, and each half of backward takes one second.
const RunReport& run(PipelineLesson& lesson, const Schedule& schedule,
                     const std::string& name) {
    const auto known = lesson.runs.find(name);
    if (known != lesson.runs.end()) return known->second;
    LessonOptions unit = lesson.options();
    if (unit.has_virtual_time()) unit.cluster = "unit";
    static const std::set<std::string> kDrawn{"gpipe", "1f1b", "zb-h1"};
    const PipelinePlan plan(schedule);
    RunReport report =
        make_cluster(unit, lesson.ranks, /*trace=*/kDrawn.contains(name))
            ->run(stack_program(plan, {lesson.dtype(), lesson.options().seed}));
    lesson.record_run("stack_" + name, report);
    return lesson.runs.emplace(name, std::move(report)).first->second;
}

constexpr double kForward = 1;   ///< seconds on a stage, in the cluster `unit`
constexpr double kBackward = 2;  ///< both halves
constexpr double kBoth = kForward + kBackward;

/// Times the schedule with the durations of the cluster `unit`.
Timing timed(const Schedule& schedule) {
    return time_schedule(schedule, {{}});
}

void draw(Findings& found, const std::string& name, const Schedule& schedule) {
    found.picture(name, schedule, timed(schedule));
}

std::int64_t messages_of(const RunReport& report) {
    std::int64_t messages = 0;
    for (const RankReport& rank : report.ranks)
        messages += rank.messages_sent();
    return messages;
}

void staircase(PipelineLesson& lesson, Findings& found) {
    found.give({"numbers"_is = lesson.has_numbers(),
                "virtual_time"_is = lesson.has_virtual_time(), "p"_is = lesson.ranks,
                "p_less_1"_is = lesson.ranks - 1, "stack_width"_is = kStackWidth,
                "stack_layers"_is = kStackLayers,
                "stage_share"_is = Figure::part(1, lesson.ranks),
                "waiting_share"_is = Figure::part(lesson.ranks - 1, lesson.ranks),
                "stage_work"_is = Figure::seconds(kBoth),
                "staircase_seconds"_is = Figure::seconds(lesson.ranks * kBoth)});

    const Schedule naive = schedule(lesson, "naive", 1, 1);
    draw(found, "staircase", naive);
    lesson.makespan_equals(found, "staircase_clock", run(lesson, naive, "naive"),
                           lesson.ranks * kBoth);
    found.equal("staircase_share", timed(naive).utilisation(), 1.0 / lesson.ranks);
}

/// Measures GPipe: all forwards, then all backwards.
void gpipe(PipelineLesson& lesson, Findings& found) {
    const int p = lesson.ranks;
    const int m = lesson.micro_batches;
    const Schedule all_forwards = schedule(lesson, "gpipe");
    found.give({"m"_is = m, "rounds"_is = m + p - 1,
                "bubble_part"_is = Figure::part(p - 1, m + p - 1),
                "bubble_over_work"_is = Figure::part(p - 1, m),
                "bubble_twice"_is = Figure::part(2 * (p - 1), m + 2 * (p - 1)),
                "bubble_seconds"_is = Figure::seconds((p - 1) * kBoth)});
    draw(found, "gpipe_picture", all_forwards);
    lesson.makespan_equals(found, "gpipe_clock", run(lesson, all_forwards, "gpipe"),
                           (m + p - 1) * kBoth);
    found.equal("gpipe_bubble", timed(all_forwards).bubble_over_total(),
                static_cast<double>(p - 1) / (m + p - 1));
}

std::int64_t activations(const RunReport& report, int stage) {
    return report.ranks[stage].memory.peak_of(MemoryCategory::activations);
}

/// Gives each stage's bytes; checks them against runs of one and two micro-batches.
void give_ledger(PipelineLesson& lesson, Findings& found, const Schedule& turns) {
    const RunReport& one = run(lesson, schedule(lesson, "gpipe", 1, 1), "gpipe_one");
    const RunReport& two = run(lesson, schedule(lesson, "gpipe", 1, 2), "gpipe_two");
    const RunReport& gpipe = run(lesson, schedule(lesson, "gpipe"), "gpipe");
    const RunReport& report = run(lesson, turns, "1f1b");
    if (!lesson.has_virtual_time()) return;
    const int m = lesson.micro_batches;
    const std::vector<Holdings> held = peak_holdings(turns);
    const std::int64_t boundary = stack_boundary_bytes(lesson.dtype());
    std::int64_t gpipe_off = 0;
    std::int64_t off = 0;
    for (int stage = 0; stage < lesson.ranks; ++stage) {
        const std::int64_t first = activations(one, stage);
        const std::int64_t each = activations(two, stage) - first;
        const int count = held[stage].in_flight;
        const bool next_is_there = stage > 0 && m > count;
        gpipe_off += std::abs(activations(gpipe, stage) - first - (m - 1) * each);
        off += std::abs(activations(report, stage) - first - (count - 1) * each -
                        (next_is_there ? boundary : 0));
        found.row("ledger", {"stage"_is = stage, "each"_is = Figure::memory(each),
                             "gpipe_bytes"_is = Figure::memory(activations(gpipe, stage)),
                             "count"_is = count,
                             "bytes"_is = Figure::memory(activations(report, stage))});
    }
    found.equal("gpipe_ledger", gpipe_off, 0);
    found.equal("ledger_off", off, 0);
}

/// Compares what stages hold under 1F1B and under GPipe.
void memory(PipelineLesson& lesson, Findings& found) {
    const int p = lesson.ranks;
    const int m = lesson.micro_batches;
    const Schedule turns = schedule(lesson, "1f1b");
    const std::vector<Holdings> held = peak_holdings(turns);
    const int first = held.front().in_flight;
    const int last = held.back().in_flight;
    found.give({"fullest_stage"_is = first > last   ? "first_stage"
                                     : first < last ? "last_stage"
                                                    : "all_stages",
                "held_first"_is = first, "held_behind"_is = p - 1,
                "held_by_gpipe"_is = m});
    const Picoseconds ours = timed(turns).makespan;
    const Picoseconds theirs = timed(schedule(lesson, "gpipe")).makespan;
    found.give("pace", ours < theirs ? "less" : ours > theirs ? "more" : "same");

    const RunReport& report = run(lesson, turns, "1f1b");
    draw(found, "turns_picture", turns);
    found.give({"stack_rows"_is = kStackRows,
                "boundary_elements"_is = kStackRows * kStackWidth,
                "boundary"_is = Figure::memory(stack_boundary_bytes(lesson.dtype())),
                "kept_results"_is =
                    Figure::memory(kStackLayers * stack_boundary_bytes(lesson.dtype())),
                "number_bytes"_is = Figure::bytes(bytes_of(lesson.dtype()))});
    give_ledger(lesson, found, turns);
    lesson.makespan_equals(found, "turns_clock", report, (m + p - 1) * kBoth);
}

/// Returns what an instruction waits for, apart from the stage's previous instruction.
Place needed_by(const Schedule& schedule, const WorkIndex& index, Place place) {
    return is_message(schedule.at(place).kind) ? index.partner(place) : index.need(place);
}

/// Returns a stage's instructions from its first backward up to its third.
std::vector<Place> two_rounds(const Schedule& schedule, int stage) {
    std::vector<Place> places;
    int backwards = 0;
    const auto& list = schedule.of_stage(stage);
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
        const Place place{stage, position};
        const InstructionKind kind = schedule.at(place).kind;
        if (kind == InstructionKind::backward) ++backwards;
        if ((backwards == 1 || backwards == 2) && has_micro_batch(kind))
            places.push_back(place);
    }
    return places;
}

/// Shows a stage's instructions one by one, with its messages.
void steady_state(PipelineLesson& lesson, Findings& found) {
    const int stage = lesson.ranks / 2 - 1;
    const Schedule sent = with_messages(schedule(lesson, "1f1b"));
    const Timing timing = timed(sent);
    const WorkIndex index(sent);
    found.give("shown_stage", stage);
    for (const Place place : two_rounds(sent, stage)) {
        const Instruction& work = sent.at(place);
        const TimeSpan& span = timing.span(place);
        const Place need = needed_by(sent, index, place);
        found.row("instructions",
                  {"instruction"_is = text_of(work), "meaning"_is = name_of(work.kind),
                   "need"_is = need ? text_of(sent.at(need)) : "",
                   "need_stage"_is = need ? std::to_string(need.stage) : "",
                   "begin"_is = Figure::seconds(static_cast<double>(span.start)),
                   "end"_is = Figure::seconds(static_cast<double>(span.end))});
    }
    const int one_way = lesson.micro_batches * (lesson.ranks - 1);
    found.give({"messages"_is = 2 * one_way,
                "messages_of_all"_is = 2 * lesson.micro_batches * lesson.ranks});
    found.equal("messages_sent",
                messages_of(run(lesson, schedule(lesson, "1f1b"), "1f1b")),
                2.0 * one_way);
}

Timing timing_of(int stages, int micro_batches) {
    return timed(make_schedule("1f1b", {stages, micro_batches, 1}));
}

/// Gives the bubble for several numbers of stages and micro-batches, as a part of the
/// total time and of the ideal time.
void give_bubbles(Findings& found) {
    double widest = 0;
    for (const int stages : {2, 4, 8, 16}) {
        Findings& row = found.row("bubbles", {"stages"_is = stages});
        for (const int m : {1, 4, 8, 16, 64}) {
            const Timing timing = timing_of(stages, m);
            const double lost = timing.bubble_over_total();
            row.give(fmt::format("lost_{}", m), Figure::percent(100 * lost, 1));
            row.give(fmt::format("longer_{}", m),
                     Figure::percent(100 * timing.bubble_over_ideal(), 1));
            const double expected = static_cast<double>(stages - 1) / (m + stages - 1);
            widest = std::max(widest, std::abs(lost - expected));
        }
    }
    found.equal("bubbles_off", widest, 0);
}

void bubble(Findings& found) {
    constexpr int kStages = 8;
    constexpr int kEnough = 9 * (kStages - 1);
    found.give({"enough_stages"_is = kStages, "enough_stages_less_1"_is = kStages - 1,
                "enough"_is = kEnough, "enough_by_stages"_is = 9 * kStages,
                "enough_by_ideal"_is = 10 * (kStages - 1)});
    give_bubbles(found);
    found.at_most("enough_lost", timing_of(kStages, kEnough).bubble_over_total(), 0.1);
}

/// Measures two smaller chunks of the model on each device, in place of one chunk.
void interleaved(PipelineLesson& lesson, Findings& found) {
    const int p = lesson.ranks;
    const int m = lesson.micro_batches;
    constexpr int kChunks = 2;
    const Schedule rounds = schedule(lesson, "interleaved", kChunks);
    const RunReport& report = run(lesson, rounds, "interleaved");
    const std::int64_t plain = messages_of(run(lesson, schedule(lesson, "1f1b"), "1f1b"));
    found.give({"v"_is = kChunks, "parts"_is = kChunks * p,
                "parts_less_1"_is = kChunks * p - 1, "p_and_1"_is = p + 1,
                "chunk_layers"_is = kStackLayers / kChunks,
                "rounds_idle"_is = Figure::seconds((p - 1) * kBoth / kChunks),
                "rounds_messages"_is = 2 * m * (kChunks * p - 1),
                "rounds_messages_apart"_is = 2 * m * kChunks * (p - 1),
                "plain_messages"_is = plain});
    draw(found, "rounds_picture", rounds);
    lesson.makespan_equals(found, "rounds_clock", report, kBoth * (kChunks * m + p - 1));
    found.equal("rounds_bubble", timed(rounds).bubble_over_ideal(),
                static_cast<double>(p - 1) / (kChunks * m));
    found.equal("rounds_messages_sent", messages_of(report), 2.0 * m * (kChunks * p - 1));
    const int held = peak_holdings(rounds).front().in_flight;
    found.give({"rounds_held"_is = held,
                "rounds_worth"_is = Figure::count(static_cast<double>(held) / kChunks)});
}

/// Measures backward in two halves: ZB-H1 and ZB-H2.
void halves(PipelineLesson& lesson, Findings& found) {
    const int p = lesson.ranks;
    const int m = lesson.micro_batches;
    const Schedule h1 = schedule(lesson, "zb-h1");
    found.give({"h1_idle"_is = Figure::seconds(p - 1),
                "h1_idle_unfilled"_is = Figure::seconds(2 * (p - 1))});
    draw(found, "h1_picture", h1);
    lesson.makespan_equals(found, "h1_clock", run(lesson, h1, "zb-h1"),
                           kBoth * m + p - 1);
    const int enough = std::max(m, 2 * p);
    const Schedule h2 = schedule(lesson, "zb-h2", 1, enough);
    found.give({"h2_micro_batches"_is = std::to_string(enough),
                "h2_held"_is = peak_holdings(h2).front().in_flight,
                "h2_ahead"_is = 2 * (p - 1)});
    draw(found, "h2_picture", h2);
    found.equal("h2_idle", Figure::seconds(static_cast<double>(timed(h2).bubble())), 0);
}

/// Compares idle times with a paper's, for the durations that the paper gives.
void published(Findings& found) {
    // From the paper's table: 1.5 B model, 8 stages, 24 micro-batches; in
    // thousandths of a millisecond.
    constexpr Durations kMeasured{18'522, 18'086, 9'337, 601};
    Durations no_messages = kMeasured;
    no_messages.message = 0;
    constexpr PipelineShape kShape{8, 24, 1};
    const auto lost = [&](const char* name, const Durations& durations) {
        return time_schedule(make_schedule(name, kShape), {durations})
            .bubble_over_total();
    };
    found.give(
        {"free_messages_bubble"_is = Figure::percent(100 * lost("1f1b", no_messages), 1),
         "free_messages_ideal"_is =
             Figure::part(kShape.stages - 1, kShape.micro_batches)});
    double widest = 0;
    const std::map<std::string, double> theirs{
        {"1f1b", 0.2431}, {"zb-h1", 0.1585}, {"zb-h2", 0.1083}};
    for (const auto& [name, published] : theirs) {
        const double ours = lost(name.c_str(), kMeasured);
        widest = std::max(widest, std::abs(ours - published));
        found.row("published",
                  {"schedule"_is = name, "theirs"_is = Figure::decimals(published, 4),
                   "ours"_is = Figure::decimals(ours, 4)});
    }
    found.at_most("published_off", widest, 5e-5);
}

/// Returns the diagnosis of the virtual devices; it is empty if the plan runs.
std::string diagnosis_of_plan(const PipelinePlan& plan, const StackOptions& options) {
    return diagnosis_of([&] {
        make_shapes_only_cluster(plan.schedule().stages)
            ->run(stack_program(plan, options));
    });
}

/// Returns an interleaved schedule with two common mistakes: each stage runs ahead as
/// plain 1F1B over p v stages would, and backwards take chunks in the order of forwards.
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

/// Returns a stage's list before its second backward: "RA0 F0 B0 …".
std::string begin_of(const Schedule& schedule, int stage) {
    std::string list;
    int backwards = 0;
    for (const Instruction& work : schedule.of_stage(stage)) {
        if (work.kind == InstructionKind::backward && ++backwards > 1) break;
        list += (list.empty() ? "" : " ") + text_of(work);
    }
    return list + " …";
}

/// Tries two orders of messages; one hangs. Also tries an order of work that hangs.
void deadlock(PipelineLesson& lesson, Findings& found) {
    const StackOptions stack{lesson.dtype(), lesson.options().seed};
    const Schedule in_place = with_messages_in_place(schedule(lesson, "1f1b"));
    const Schedule agreed = with_messages(schedule(lesson, "1f1b"));
    found.give({"upper_stage"_is = lesson.ranks - 2, "lower_stage"_is = lesson.ranks - 1,
                "in_place.upper"_is = begin_of(in_place, lesson.ranks - 2),
                "in_place.lower"_is = begin_of(in_place, lesson.ranks - 1),
                "agreed.upper"_is = begin_of(agreed, lesson.ranks - 2),
                "agreed.lower"_is = begin_of(agreed, lesson.ranks - 1)});
    const auto problem = find_problem(in_place);
    const std::string said = diagnosis_of_plan(PipelinePlan::unchecked(in_place), stack);
    const std::string silence =
        diagnosis_of_plan(PipelinePlan(schedule(lesson, "1f1b")), stack);
    found.give("order_that_hangs", !said.empty() && !silence.empty() ? "both_orders"
                                   : !said.empty()                   ? "order_a"
                                   : !silence.empty()                ? "order_b"
                                                                     : "no_order");

    found.give("validator_says", problem ? problem->sentence : "–");
    found.equal("circle", problem ? problem->cycle.size() : 0, 2);
    found.give("f14", said);
    found.equal("class_f14", said.starts_with("F14") ? 1 : 0, 1);
    found.equal("mended", silence.empty() ? 0 : 1, 0);
    const auto refused = find_problem(interleaved_with_slips({2, 4, 2}));
    found.give("slips_refused", refused ? refused->sentence : "–");
    found.equal("slips", refused && !refused->cycle.empty() ? 1 : 0, 1);
}

/// Returns the number of tensors that differ in any bit.
int different(const std::map<std::string, HostTensor>& a,
              const std::map<std::string, HostTensor>& b) {
    int count = 0;
    for (const auto& [name, tensor] : a) {
        const auto found = b.find(name);
        if (found == b.end() || found->second != tensor) ++count;
    }
    return count + static_cast<int>(b.size() > a.size());
}

/// Returns the number of tensors whose copies on several ranks differ.
int differing_copies(const RunReport& report) {
    std::map<std::string, const HostTensor*> first;
    std::set<std::string> differing;
    for (const RankReport& rank : report.ranks)
        for (const auto& [name, tensor] : rank.kept) {
            const auto [it, added] = first.emplace(name, &tensor);
            if (!added && *it->second != tensor) differing.insert(name);
        }
    return static_cast<int>(differing.size());
}

/// Returns the page's name of a run's losses: "loss_zb_h1".
std::string loss_name(std::string name) {
    std::ranges::replace(name, '-', '_');
    return "loss_" + name;
}

/// Compares a run with one device, bit by bit if that is possible.
void check_bits(const PipelineLesson& lesson, Findings& row, const RunReport& report,
                int replicas) {
    if (replicas > 1 || lesson.task->sizes.tied)
        row.equal("copies", differing_copies(report), 0);
    // On a GPU, the library chooses the order of additions by shape and by card.
    if (replicas == 1 && !lesson.task->sizes.tied && lesson.options().backend == "sim")
        row.equal(
            "bits",
            different(kept_under(lesson.alone, "grad/"), kept_under(report, "grad/")) +
                different(kept_under(lesson.alone, ""), kept_under(report, "")),
            0);
}

/// Trains on `cluster`, which has a rank for each stage of each replica. Each replica has
/// the schedule's number of micro-batches. Keeps what train() keeps.
RunReport train_gpt_pipeline(Cluster& cluster, const PipelinePlan& plan,
                             const GptTask& task, int replicas,
                             const Advance& advance = {}) {
    const Schedule& schedule = plan.schedule();
    const int share = schedule.micro_batches;
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"pp", schedule.stages}, {"dp", replicas}});
        Communicator& line = mesh["pp"];
        const GptStage stage = make_gpt_stage(task.init(device), task.sizes, schedule,
                                              line.rank(), cut_gpt(task.sizes, schedule));
        Pipeline pipeline(device, line, plan, stage.modules(),
                          gpt_boundary(task.sizes, task.dtype));
        if (replicas > 1) pipeline.reduce_over(mesh["dp"]);
        const auto tied = tie_gpt(pipeline, stage, schedule, line);
        const auto optimizer = make_optimizer<Sgd>(stage.parameters(), task.optimizer());
        const auto step = [&](int i) {
            const auto batches = upload_batches(
                device, task, i, mesh.coordinate("dp") * share, share, share * replicas);
            Tensor loss = pipeline.run(cross_entropy_loss, batches);
            const PhaseScope phase(device, Phase::update);
            optimizer->step();
            return loss;
        };
        train(rank, stage.parameters(), task.steps, step, advance);
    });
}

/// Trains by one schedule, and records the run.
std::vector<double> train_by(PipelineLesson& lesson, Findings& found,
                             const Schedule& schedule, int replicas,
                             const std::string& variant) {
    const Advance advance = advancing(variant, lesson.task->steps);
    const bool alone = schedule.stages == 1;
    const int ranks = schedule.stages * replicas;
    const auto cluster = lesson.devices(ranks);
    const RunReport report =
        alone ? train_gpt_alone(*cluster, *lesson.task, schedule.micro_batches, advance)
              : train_gpt_pipeline(*cluster, PipelinePlan(schedule), *lesson.task,
                                   replicas, advance);
    lesson.record_run(variant, report);
    std::vector<double> curve = losses_of(report);
    if (!lesson.has_numbers()) return curve;
    record_training(lesson.record(), variant, alone, curve, report);
    if (alone) {
        lesson.alone = report;
    } else {
        Findings& row = found.row("trainings", {"variant"_is = variant});
        check_bits(lesson, row, report, replicas);
    }
    return curve;
}

/// Gives time and memory of the training runs, which are the last in the record.
void give_costs(PipelineLesson& lesson, Findings& found,
                const std::vector<std::string>& names) {
    std::map<std::string, Picoseconds> times;
    const auto& runs = lesson.record().runs;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const RunReport& report = runs[runs.size() - names.size() + i].second;
        const Picoseconds time = report.makespan() / lesson.task->steps;
        times[names[i]] = report.makespan();
        found.row("costs", {"schedule"_is = names[i], "time"_is = Figure::time(time),
                            "held"_is = Figure::memory(report.most_held()),
                            "sent"_is = report.messages_sent() / lesson.task->steps});
    }
    std::string fastest = "naive";
    for (const std::string& name : trained())
        if (times.contains(name) && times[name] < times[fastest]) fastest = name;
    found.give({"fastest"_is = fastest,
                "rounds_too_slow"_is = times.contains("interleaved") &&
                                       times["interleaved"] >= times["1f1b"]});
}

/// Trains a GPT on real text, by every schedule.
void train(PipelineLesson& lesson, Findings& found) {
    const GptSizes& sizes = lesson.task->sizes;
    found.give({"cluster"_is = lesson.options().cluster, "blocks"_is = sizes.layers,
                "hidden"_is = sizes.block.hidden, "heads"_is = sizes.block.heads,
                "context"_is = sizes.context, "vocabulary"_is = sizes.vocabulary,
                "sequences"_is = lesson.task->batch,
                "training_steps"_is = lesson.task->steps,
                "learning_rate"_is = Figure::count(lesson.task->learning_rate),
                "layer_count"_is = sizes.layer_count()});
    record_gpt_inputs(lesson.record(), *lesson.task);

    std::vector<std::string> names;
    Curves curves;
    const auto add_curve = [&](const std::string& name, const Schedule& schedule,
                               int replicas, const std::string& variant) {
        names.push_back(name);
        curves.add(loss_name(name), train_by(lesson, found, schedule, replicas, variant));
    };
    add_curve("alone", make_schedule("gpipe", {1, lesson.micro_batches, 1}), 1, "gpt_1");
    for (const std::string& name : trained()) {
        const int chunks = name == "interleaved" ? 2 : 1;
        if (chunks * lesson.ranks > sizes.layer_count()) continue;
        add_curve(name, schedule(lesson, name, chunks), 1, name);
    }
    const bool twice = lesson.ranks % 2 == 0 && lesson.ranks > 2;
    if (twice)
        add_curve("replicas",
                  make_schedule("1f1b", {lesson.ranks / 2, lesson.micro_batches / 2, 1}),
                  2, "1f1b_replicas");
    found.give({"two_pipelines"_is = twice, "half_p"_is = lesson.ranks / 2,
                "same_bits"_is = !sizes.tied && lesson.options().backend == "sim"});
    if (lesson.has_numbers()) curves.give(found, "curves");
    if (lesson.has_virtual_time()) give_costs(lesson, found, names);
    const int stores =
        static_cast<int>(sizes.layers) * block_stores(1) + 2 * lesson.micro_batches;
    lesson.values_at_most(found, "one_curve", curves.widest_gap(),
                          loss_bound(lesson.dtype(), stores, curves.losses.front()));
}

}  // namespace

LessonEntry pipeline_1f1b_lesson() {
    LessonEntry entry;
    entry.slug = "pipeline-1f1b";
    entry.folder = "05_pipeline_1f1b";
    entry.least_ranks = 2;
    entry.most_ranks = 16;
    entry.settings = {
        {"micro_batches", "of a step; a multiple of the ranks", Whole{1, 256},
         "twice the ranks"},
        {"layers", "transformer blocks of the GPT", Whole{1, 64},
         "the ranks, or more if two chunks per stage need more"},
        {"heads", "of attention", Whole{1, 64, 4}},
        {"hidden", "columns between layers; 16 a head", Whole{1, 1024}, "64"},
        {"context", "tokens of a sequence", Whole{1, 1024, 32}},
        {"batch", "sequences of a step; a multiple of the micro-batches", Whole{1, 1024},
         "one a micro-batch"},
        {"steps", "of training", Whole{1, 100'000, 40}},
        {"learning_rate", "of SGD with momentum 0.9", Real{0, 1e6, 0.2}},
        {"tied", "1: the GPT's output head is tied to its embedding table",
         Whole{0, 1, 0}},
    };
    entry.takes_text = true;
    entry.make = lesson_of<PipelineLesson>({{"staircase", staircase},
                                            {"gpipe", gpipe},
                                            {"memory", memory},
                                            {"steady_state", steady_state},
                                            {"bubble", bubble},
                                            {"interleaved", interleaved},
                                            {"halves", halves},
                                            {"published", published},
                                            {"deadlock", deadlock},
                                            {"train", train}});
    return entry;
}

}  // namespace lockstep::lessons
