#include <nlohmann/json.hpp>

#include "lessons/runner/command.hpp"
#include "src/report/diagnosis_json.hpp"

namespace lockstep::lessons {

namespace {

using Json = nlohmann::ordered_json;

Json options_json(const LessonOptions& options, const RunOptions& run) {
    Json json{{"backend", run.backend},
              {"ranks", run.ranks},
              {"dtype", std::string(name_of(run.dtype))},
              {"seed", run.seed},
              {"cluster", run.cluster},
              {"check", run.check},
              {"settings", Json::object()}};
    for (const auto& [key, value] : run.settings)
        json["settings"][key] = value;
    if (options.step) json["step"] = *options.step;
    if (options.text) json["text"] = options.text->string();
    if (options.data) json["data"] = options.data->string();
    return json;
}

}  // namespace

std::string lesson_json(const LessonEntry& lesson, const LessonOptions& options,
                        const std::vector<Step>& steps,
                        const std::vector<std::size_t>& checks_after,
                        const Record& record) {
    const Json metrics = Json::parse(metrics_json(record));
    Json steps_run = Json::array();
    auto next = metrics.at("checks").begin();
    for (std::size_t index = 0, done = 0; index < checks_after.size(); ++index) {
        Json checks = Json::array();
        for (; done < checks_after[index]; ++done)
            checks.push_back(*next++);
        steps_run.push_back({{"number", index + 1},
                             {"title", steps[index].title},
                             {"checks", std::move(checks)}});
    }
    Json document{{"lesson", lesson.slug},
                  {"title", lesson.title},
                  {"options", options_json(options, record.options)},
                  {"passed", all_passed(record)},
                  {"steps", std::move(steps_run)},
                  {"metrics", metrics}};
    if (record.diagnosis) {
        document["passed"] = false;
        document["diagnosis"] = Json::parse(diagnosis_json(*record.diagnosis));
    }
    if (options.out) document["record"] = options.out->string();
    return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::lessons
