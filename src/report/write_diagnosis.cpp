#include "src/report/write_diagnosis.hpp"

#include "src/chart/svg.hpp"
#include "src/report/chrome_trace.hpp"
#include "src/report/files.hpp"
#include "src/report/timeline.hpp"
#include "src/report/wait_graph.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

Json file_json(const SourceLine& at) {
    if (at.line <= 0) return nullptr;
    const std::string text = at.text();
    return text.substr(0, text.rfind(':'));
}

Json line_json(const SourceLine& at) {
    return at.line > 0 ? Json(at.line) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

Json parties_json(const std::vector<Diagnosis::Party>& parties) {
    Json json = Json::array();
    for (const Diagnosis::Party& party : parties)
        json.push_back(
            {{"ranks", party.ranks},
             {"operation", party.operation},
             {"differs", text_or_null(party.differs)},
             {"file", file_json(party.at)},
             {"line", line_json(party.at)},
             {"inside",
              text_or_null(party.inside.line > 0 ? party.inside.text() : std::string())},
             {"history", party.history}});
    return json;
}

Json waits_json(const std::vector<Diagnosis::Wait>& waits) {
    Json json = Json::array();
    for (const Diagnosis::Wait& wait : waits)
        json.push_back({{"from", wait.from},
                        {"to", wait.to},
                        {"operation", wait.operation},
                        {"file", file_json(wait.at)},
                        {"line", line_json(wait.at)}});
    return json;
}

Json communicator_json(const Diagnosis& diagnosis) {
    if (diagnosis.communicator.empty()) return nullptr;
    return {
        {"name", diagnosis.communicator},
        {"ranks", diagnosis.members},
        {"sequence", diagnosis.sequence >= 0 ? Json(diagnosis.sequence) : Json(nullptr)}};
}

}  // namespace

std::string diagnosis_json(const Diagnosis& diagnosis) {
    const Json json{
        {"fault", text_or_null(diagnosis.fault)},
        {"title", diagnosis.title},
        {"sentence", diagnosis.sentence},
        {"cause", text_or_null(diagnosis.cause)},
        {"page", text_or_null(diagnosis.page)},
        {"communicator", communicator_json(diagnosis)},
        {"time_picoseconds", diagnosis.time >= 0 ? Json(diagnosis.time) : Json(nullptr)},
        {"parties", parties_json(diagnosis.parties)},
        {"others", parties_json(diagnosis.others)},
        {"details", diagnosis.details},
        {"waits", waits_json(diagnosis.waits)}};
    return json.dump(1) + "\n";
}

void write_diagnosis_files(const std::filesystem::path& folder,
                           const Diagnosis& diagnosis, const RunReport* report) {
    write_text_file(folder / "diagnosis.txt", diagnosis.text());
    write_text_file(folder / "diagnosis.json", diagnosis_json(diagnosis));
    if (diagnosis.waits.empty()) return;
    write_text_file(folder / "wait_for_graph.svg", wait_svg(diagnosis, report));
}

void write_diagnosis(const std::filesystem::path& folder, const FaultError& fault) {
    std::filesystem::create_directories(folder);
    // Files of an earlier diagnosis would seem to belong to this one. Other files stay.
    if (std::filesystem::exists(folder / "diagnosis.json"))
        for (const char* name : {"wait_for_graph.svg", "trace.json", "timeline.svg"})
            std::filesystem::remove(folder / name);
    const RunReport* const report = fault.report().get();
    write_diagnosis_files(folder, fault.diagnosis(), report);
    if (report == nullptr || report->trace.empty()) return;
    write_text_file(folder / "trace.json", chrome_trace({{"stopped", *report}}));
    write_text_file(folder / "timeline.svg",
                    chart_svg(timeline_chart(*report, "up to the stop")));
}

}  // namespace lockstep
