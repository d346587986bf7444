#include "src/report/write_diagnosis.hpp"

#include "src/chart/svg.hpp"
#include "src/report/chrome_trace.hpp"
#include "src/report/diagnosis_json.hpp"
#include "src/report/files.hpp"
#include "src/report/timeline.hpp"
#include "src/report/wait_graph.hpp"

namespace lockstep {

void write_diagnosis_files(const std::filesystem::path& folder,
                           const Diagnosis& diagnosis, const RunReport* report) {
    write_text_file(folder / "diagnosis.txt", diagnosis.text());
    write_text_file(folder / "diagnosis.json", diagnosis_json(diagnosis));
    if (diagnosis.waits.empty()) return;
    write_text_file(folder / "wait_for_graph.svg", wait_svg(diagnosis, report));
}

void write_diagnosis(const std::filesystem::path& folder, const FaultError& fault) {
    std::filesystem::create_directories(folder);
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
