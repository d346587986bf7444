#include "lessons/assignments/left_schedule.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/load_schedule.hpp"

namespace lockstep::lessons {

namespace {

const std::string& text_left(Judge& judge, const TaskResult& result,
                             const std::string& name) {
    const auto& texts = result.ranks.at(0).texts;
    const auto text = texts.find(name);
    if (text == texts.end()) judge.ask(false, "a schedule", "none");
    return text->second;
}

Schedule read(Judge& judge, const std::string& text, const AskedSchedule& asked) {
    try {
        Schedule schedule = read_schedule_json(text, "schedule").schedule;
        schedule.file.clear();
        for (auto& list : schedule.work)
            for (Instruction& each : list)
                each.line = 0;
        return schedule;
    } catch (const UsageError& error) {
        judge.ask(false, asked.name + ": a schedule", "", error.what());
        throw;
    }
}

}  // namespace

Schedule left_schedule(Judge& judge, const TaskResult& result,
                       const AskedSchedule& asked) {
    Schedule schedule = read(judge, text_left(judge, result, "schedule"), asked);
    judge.ask(schedule.stages == asked.stages &&
                  schedule.micro_batches == asked.micro_batches && schedule.chunks == 1,
              asked.name + ": a schedule of these sizes, 1 chunk a stage",
              fmt::format("p = {}, m = {}, chunks: {}", schedule.stages,
                          schedule.micro_batches, schedule.chunks));
    int same = 0;
    while (same < asked.stages && schedule.part(same, 0) == same)
        ++same;
    judge.ask(same == asked.stages, asked.name + ": part s on stage s",
              same == asked.stages
                  ? "it is so"
                  : fmt::format("stage {} holds part {}", same, schedule.part(same, 0)));
    return schedule;
}

void ask_made_alike(Judge& judge, const TaskResult& result, const AskedSchedule& asked) {
    const bool same =
        text_left(judge, result, "schedule") == text_left(judge, result, "again");
    judge.ask(same, asked.name + ": the same schedule when asked again",
              same ? "the same" : "another");
}

}  // namespace lockstep::lessons
