#include "lessons/assignments/left_schedule.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep::lessons {

namespace {

const std::string& text_left(Judge& judge, const TaskResult& result,
                             const std::string& name) {
    const auto& texts = result.ranks.at(0).texts;
    const auto text = texts.find(name);
    if (text == texts.end()) judge.ask(false, "a schedule", "none");
    return text->second;
}

Schedule read(const std::string& text) {
    Schedule schedule = read_schedule_json(text, "schedule").schedule;
    schedule.file.clear();
    for (auto& list : schedule.work)
        for (Instruction& each : list)
            each.line = 0;
    return schedule;
}

}  // namespace

Schedule left_schedule(Judge& judge, const TaskRun& run) {
    const std::string& text = text_left(judge, judge.run(run), "schedule");
    Schedule schedule;
    try {
        schedule = read(text);
    } catch (const UsageError& error) {
        judge.ask(false, run.name + ": a schedule", "", error.what());
    }
    if (const auto problem = find_bad_number(schedule))
        judge.ask(false, run.name + ": a schedule", "", problem->sentence);
    const Schedule right = right_schedule(judge, run);
    judge.ask(schedule.stages == right.stages &&
                  schedule.micro_batches == right.micro_batches &&
                  schedule.chunks == right.chunks,
              run.name + ": a schedule of these sizes, 1 chunk a stage",
              fmt::format("p = {}, m = {}, chunks: {}", schedule.stages,
                          schedule.micro_batches, schedule.chunks));
    int same = 0;
    while (same < right.stages && schedule.parts[same] == right.parts[same])
        ++same;
    judge.ask(same == right.stages, run.name + ": part s on stage s",
              same == right.stages
                  ? "it is so"
                  : fmt::format("stage {} holds part {}", same, schedule.part(same, 0)));
    return schedule;
}

Schedule right_schedule(const Judge& judge, const TaskRun& run) {
    return read_left(judge.right(run));
}

Schedule read_left(const TaskResult& result) {
    return read(result.ranks.at(0).texts.at("schedule"));
}

void ask_made_alike(Judge& judge, const TaskRun& run) {
    const TaskResult& result = judge.run(run);
    const bool same =
        text_left(judge, result, "schedule") == text_left(judge, result, "again");
    judge.ask(same, run.name + ": the same schedule when asked again",
              same ? "the same" : "another");
}

}  // namespace lockstep::lessons
