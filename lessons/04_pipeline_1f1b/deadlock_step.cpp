#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/pipeline_lesson.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/validate.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::lessons {

namespace {

/// What the virtual devices say of the plan; empty where it runs.
std::string diagnosis_of(const PipelinePlan& plan,
                         const StackOptions& options) {
    try {
        make_shapes_only_cluster(plan.schedule().stages)
            ->run(stack_program(plan, options));
    } catch (const FaultError& fault) {
        constexpr int kColumns = 76;
        return fault.diagnosis().text(kColumns);
    }
    return "";
}

/// Interleaved, with two slips that are easily made: each stage runs ahead
/// as plain 1F1B over p v stages would, and backwards take the chunks in
/// the same order as forwards.
Schedule interleaved_with_slips(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("interleaved with slips", shape);
    const int round = shape.stages * shape.chunks;
    const int turns = shape.micro_batches * shape.chunks;
    const auto turn = [&](InstructionKind kind, int k) {
        return Instruction{kind,
                           k / round * shape.stages + k % shape.stages,
                           k % round / shape.stages};
    };
    for (int stage = 0; stage < shape.stages; ++stage) {
        auto& work = schedule.work[stage];
        const int ahead = round - 1 - stage;
        for (int k = 0; k < turns + ahead; ++k) {
            if (k < turns)
                work.push_back(turn(InstructionKind::forward, k));
            if (k >= ahead)
                work.push_back(turn(InstructionKind::backward, k - ahead));
        }
    }
    return schedule;
}

}  // namespace

void PipelineLesson::deadlock(Page& page) {
    page.text(
        "Write 1F1B's messages down as one would at first: each send "
        "right behind what makes its data, each receive right before what "
        "needs it. Every stage's list looks right by itself. But a send "
        "waits until its receive is there, and a stage's messages go one "
        "after another.");
    const Schedule broken = with_messages_in_place(schedule("1f1b"));
    const auto problem = find_problem(broken);
    page.text("The validator, which only follows the lists, says:");
    page.text(problem ? problem->sentence : "no problem");
    page.check(Check::equal(
        "stages that wait for one another in a circle",
        problem ? static_cast<double>(problem->cycle.size()) : 0, 2));
    page.text(
        "On real GPUs this job hangs until somebody kills it. (PyTorch's "
        "pull request 126419 is about one of many: a 1F1B that ran on its "
        "author's machine and hung elsewhere, until a send and a receive "
        "went together.) On virtual devices it ends at once, with who "
        "waits for whom:");
    const std::string said = diagnosis_of(
        PipelinePlan::unchecked(broken), {options().dtype, options().seed});
    page.verbatim(said);
    page.check(Check::equal("the checker's class is F14",
                            said.starts_with("F14") ? 1 : 0, 1));
    page.text(
        "Three mends are in use. Put what neighbours send to each other "
        "at the same time into one group, as Megatron-LM does; then the "
        "two pass each other. Or give each direction a communicator of "
        "its own, and hope that the GPU has room for both. Or let all "
        "stages agree on one order of messages, as with_messages() does: "
        "the first message of all that are still to come can then always "
        "go. With it the same schedule runs:");
    const PipelinePlan mended(schedule("1f1b"));
    const std::string silence =
        diagnosis_of(mended, {options().dtype, options().seed});
    page.check(Check::equal("mistakes that the checker finds after mending",
                            silence.empty() ? 0 : 1, 0));
    page.text(
        "Orders of work can be wrong without any message. Take an "
        "interleaved schedule of 2 stages, 4 micro-batches and 2 chunks, "
        "with two slips that are easily made and easily drawn: each stage "
        "runs ahead as plain 1F1B over four stages would, and backwards "
        "take the chunks in the same order as forwards. It is refused "
        "before anything begins:");
    const auto refused = find_problem(interleaved_with_slips({2, 4, 2}));
    page.text(refused ? refused->sentence : "no problem");
    page.check(Check::equal("it is refused for a deadlock",
                            refused && !refused->cycle.empty() ? 1 : 0, 1));
}

}  // namespace lockstep::lessons
