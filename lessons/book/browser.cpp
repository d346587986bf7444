// Lockstep compiled for browsers (lockstep.js): answers the requests of the book's pages.
// Requests and answers are JSON; "do" is the kind of request. If the caller made a
// mistake, the answer is {"error": "a sentence"}.

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/book/schedule_formulas.hpp"
#include "lessons/page/language.hpp"
#include "lessons/page/prediction.hpp"
#include "lessons/tools/schedule_page.hpp"
#include "src/chart/svg.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/text/json.hpp"
#include "src/text/numbers.hpp"

namespace lockstep::lessons {

namespace {

/// Returns an option's value as text, from a form's field or from a number.
std::string text_in(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Reads the options of `lockstep schedule`, with the same names and the same errors.
/// "work" is a file's content, as CSV.
ScheduleSettings settings_in(const Json& request) {
    ScheduleSettings settings;
    const auto take = [&](const char* key, const char* option, const auto& read) {
        if (request.contains(key)) read(std::string(option), text_in(request.at(key)));
    };
    const auto whole = [](std::optional<int>& into, int most) {
        return [&into, most](const std::string& option, const std::string& text) {
            into = whole_number(option, text, 1, most);
        };
    };
    const auto times = [&settings](const char* name) {
        return [&settings, name](const std::string& option, const std::string& text) {
            settings.times[name] = read_times(option, text);
        };
    };
    const auto memory = [](std::optional<double>& into) {
        return [&into](const std::string& option, const std::string& text) {
            into = read_memory(option, text);
        };
    };
    if (request.contains("name")) settings.name = text_in(request.at("name"));
    take("stages", "--stages", whole(settings.stages, kMostStages));
    take("micro_batches", "--micro-batches",
         whole(settings.micro_batches, kMostMicroBatches));
    take("chunks", "--chunks", whole(settings.chunks, kMostChunks));
    take("forward", "--forward", times("forward"));
    take("backward_input", "--backward-input", times("backward_input"));
    take("backward_weight", "--backward-weight", times("backward_weight"));
    take("comm", "--comm", times("message"));
    take("memory_activation", "--memory-activation", memory(settings.memory_activation));
    take("memory_weight", "--memory-weight", memory(settings.memory_weight));
    if (request.contains("messages") && request.at("messages").get<bool>())
        settings.messages = MessagesAs::planned;
    return settings;
}

/// The page has fields for sizes, so errors in sizes do not name options.
Schedule schedule_in(const Json& request, const ScheduleSettings& settings) {
    if (request.contains("work"))
        return read_schedule_csv(request.at("work").get<std::string>(), settings.name);
    require_known(settings);
    return make_schedule(settings.name, settings.shape());
}

/// Returns the language, "en" or "zh"; English if it is missing.
Language language_in(const Json& request) {
    return language_of_locale(
        request.contains("language") ? request.at("language").get<std::string>() : "");
}

/// Returns a text of a table or a picture in a language.
std::string in(Language language, const std::string& english) {
    return language == Language::chinese ? in_chinese(english) : english;
}

Json json_of(Table table, Language language) {
    const auto translate = [&](std::vector<std::string>& cells) {
        for (std::string& cell : cells)
            cell = in(language, cell);
    };
    translate(table.head);
    for (std::vector<std::string>& row : table.rows)
        translate(row);
    return {{"head", Json(table.head)}, {"rows", Json(table.rows)}};
}

Json json_of(const SvgPart& picture, const std::string& title) {
    return {{"title", title},
            {"width", picture.width},
            {"height", picture.height},
            {"svg", picture.svg}};
}

/// Returns the order of work as text, which can be changed by hand.
Json work_of(const Schedule& schedule) {
    Json stages = Json::array();
    for (const std::vector<Instruction>& list : schedule.work) {
        std::vector<Instruction> work;
        std::copy_if(list.begin(), list.end(), std::back_inserter(work),
                     [](const Instruction& each) { return !is_message(each.kind); });
        stages.push_back(texts_of(work));
    }
    return stages;
}

Json formulas_of(const ScheduleSettings& settings, const ExaminedSchedule& found,
                 Language language) {
    Json formulas = Json::array();
    for (const ScheduleFormula& each : schedule_formulas(settings, found))
        formulas.push_back({{"what", in(language, each.what)},
                            {"text", each.text},
                            {"condition", in(language, each.condition)},
                            {"applies", each.applies},
                            {"value", each.value},
                            {"measured", each.measured},
                            {"equal", each.equal()}});
    return formulas;
}

/// Returns "problem", "place" and "cycle" if the schedule cannot run, else its figures.
Json answer_schedule(const Json& request) {
    const ScheduleSettings settings = settings_in(request);
    const ExaminedSchedule found =
        examined(settings, {schedule_in(request, settings), {}, {}});
    const Schedule& schedule = found.schedule;
    Json answer = {{"stages", schedule.stages},
                   {"micro_batches", schedule.micro_batches},
                   {"work", work_of(schedule)}};
    if (found.problem) {
        const Json problem = Json::parse(problem_json(schedule, *found.problem));
        answer["problem"] = problem.at("problem");
        answer["cycle"] = problem.at("cycle");
        answer["place"] = {{"stage", found.problem->place.stage},
                           {"position", found.problem->place.position}};
        return answer;
    }
    const bool is_all = request.contains("all") && request.at("all").get<bool>();
    if (is_all) answer["timing"] = Json::parse(examined_json(found));
    const Language language = language_in(request);
    Chart chart = found.chart();
    if (language == Language::chinese) chart.translate = in_chinese;
    answer["picture"] = json_of(chart_part(chart), in(language, found.picture.title));
    const Timing& timing = found.timing;
    answer["makespan"] =
        fmt::format("{:.7g}", static_cast<double>(timing.makespan) / found.shown.ticks);
    answer["bubble"] = fmt::format("{:.2f} %", 100 * timing.bubble_over_total());
    answer["whole"] = json_of(bubble_table(found), language);
    answer["by_stage"] = json_of(stage_table(found), language);
    answer["critical_path"] = critical_path_text(found);
    answer["remarks"] = Json(timing_remarks(schedule));
    answer["formulas"] = formulas_of(settings, found, language);
    return answer;
}

/// Returns a page's prediction: what is needed to judge an answer.
Prediction prediction_in(const Json& asked) {
    Prediction prediction;
    if (asked.contains("choices"))
        for (const Json& key : asked.at("choices").elements())
            prediction.choices.push_back({key.get<std::string>(), {}});
    if (prediction.has_choices())
        prediction.right_choice = asked.at("right").get<std::string>();
    else
        prediction.answer = {asked.at("value").get<double>(),
                             unit_called(asked.at("unit").get<std::string>()),
                             asked.at("digits").get<int>()};
    if (asked.contains("hints"))
        for (const Json& each : asked.at("hints").elements()) {
            Hint& hint = prediction.hints.emplace_back();
            if (prediction.has_choices())
                hint.choice = each.at("choice").get<std::string>();
            else
                hint.wrong = each.at("wrong").get<double>();
        }
    return prediction;
}

Json answer_judge(const Json& request) {
    const Prediction prediction = prediction_in(request.at("prediction"));
    const Judgement judged = judge(prediction, request.at("typed").get<std::string>());
    const char* const outcomes[] = {"right", "wrong", "unreadable"};
    const auto hint = judged.hint ? judged.hint - prediction.hints.data() : -1;
    return {{"outcome", outcomes[static_cast<int>(judged.outcome)]},
            {"hint", static_cast<int>(hint)},
            {"remark", judged.remark ? said(language_in(request), judged.remark) : ""}};
}

Json answer_to(const Json& request) {
    const std::string what = request.at("do").get<std::string>();
    if (what == "schedule") return answer_schedule(request);
    if (what == "judge") return answer_judge(request);
    throw UsageError("nobody can do '" + what + "'; there are schedule and judge");
}

}  // namespace

}  // namespace lockstep::lessons

/// Answers one request; the answer is valid until the next request.
extern "C" const char* lockstep_call(const char* request) {
    using namespace lockstep;
    static std::string answer;
    try {
        answer = lessons::answer_to(Json::parse(request)).dump();
    } catch (const std::exception& error) {
        answer = Json{{"error", std::string(error.what())}}.dump();
    }
    return answer.c_str();
}
