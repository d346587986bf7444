#include <algorithm>

#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/pipeline_lesson.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep::lessons {

namespace {

std::string need_text(const Schedule& schedule, const WorkIndex& index,
                      Place place) {
    const Instruction& work = schedule.at(place);
    if (is_message(work.kind))
        return fmt::format("stage {}'s {}", index.peer(place),
                           text_of(schedule.at(index.partner(place))));
    const Place need = index.need(place);
    if (!need) return "";
    return need.stage == place.stage
               ? text_of(schedule.at(need))
               : fmt::format("stage {}'s {}", need.stage,
                             text_of(schedule.at(need)));
}

/// A stage's instructions from its first backward to just before its third.
std::vector<Place> two_rounds(const Schedule& schedule, int stage) {
    std::vector<Place> places;
    int backwards = 0;
    const auto& list = schedule.of(stage);
    for (int position = 0; position < static_cast<int>(list.size());
         ++position) {
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
        "A schedule becomes a program when its messages are added: behind "
        "what makes data a send (SA of an activation, SG of a gradient), "
        "and a receive (RA, RG) on the stage that needs it. They run "
        "beside the work: a send holds nobody up, and a receive is posted "
        "early, so that the message can come while the stage still "
        "computes. This is stage {} of {}, from its first backward (B) "
        "on. A stage in the steady state runs a forward (F) and a "
        "backward in turn; each forward is of a micro-batch that came in "
        "later, by as many as are in flight.",
        stage, ranks_));
    const Schedule sent = with_messages(schedule("1f1b"));
    const Timing timing = time_schedule(sent, {{}});
    const WorkIndex index(sent);
    Table table{
        {"instruction", "what it does", "waits for", "begins", "ends"}, {}};
    for (const Place place : two_rounds(sent, stage)) {
        const Instruction& work = sent.at(place);
        const TimeSpan& span = timing.span(place);
        table.rows.push_back({text_of(work), name_of(work.kind),
                              need_text(sent, index, place),
                              fmt::format("{} s", span.start),
                              fmt::format("{} s", span.end)});
    }
    page.table(table);
    page.text(
        "In which order do messages go? All stages must agree, since a "
        "send waits until its receive is there (step 7). Here they go in "
        "the order in which their data is made, over all stages; each "
        "stage's list is its part of that one order. The executor then "
        "has little to decide. It is an interpreter:");
    page.quote("pipeline-executor");
    std::int64_t messages = 0;
    for (const RankReport& rank : run(schedule("1f1b"), "1f1b").ranks)
        messages += rank.messages_sent();
    page.check(Check::equal(
        "messages sent, against 2 m (p - 1): an activation and a gradient "
        "for each micro-batch and boundary",
        static_cast<double>(messages),
        2.0 * micro_batches_ * (ranks_ - 1)));
}

}  // namespace lockstep::lessons
