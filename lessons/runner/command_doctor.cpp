#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/doctor.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/report/machine.hpp"
#include "src/report/version.hpp"
#include "src/text/json.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

void declare_doctor(CommandLine& line) {
    Command& command = line.add("doctor",
                                "Says what this machine can do, and for what is missing "
                                "what it would give and how to install it.");
    command.flag("--json", kJsonMeaning, command.asks_for<DoctorRequest>().json);
}

namespace {

struct Section {
    std::string title;
    std::vector<Finding> findings;
};

std::int64_t memory_bytes() {
    return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
           ::sysconf(_SC_PAGE_SIZE);
}

std::string machine_text() {
    const Machine machine = this_machine();
    return fmt::format("{} core{} ({}), {:.1f} GB of memory, {}", machine.cores,
                       machine.cores == 1 ? "" : "s", machine.cpu,
                       static_cast<double>(memory_bytes()) / 1e9, machine.system);
}

constexpr int kNames = 18;

/// The name, and beside it the lines of what is to say about it.
std::string entry(const std::string& name, const std::vector<std::string>& paragraphs,
                  int width) {
    std::string text;
    for (const std::string& paragraph : paragraphs)
        for (const std::string& line : wrap(paragraph, width - kNames))
            text.append(pad_right(text.empty() ? "  " + name : "", kNames))
                .append(line + "\n");
    return text;
}

std::string entry(const Finding& finding, int width) {
    if (finding.there) return entry(finding.part, {finding.found}, width);
    std::string text =
        entry(finding.part,
              {"MISSING: " + finding.found, "it would give " + finding.gives}, width);
    // A command stays in one piece.
    if (!finding.install.empty()) text += pad_right("", kNames) + finding.install + "\n";
    return text;
}

std::string doctor_text(const std::vector<Section>& sections,
                        const std::vector<std::string>& backends) {
    const int width = window_columns(STDOUT_FILENO);
    std::string text = fmt::format("Lockstep {}\n", kVersion);
    text += entry("machine", {machine_text()}, width);
    for (const Section& section : sections) {
        text += "\n" + section.title + "\n";
        for (const Finding& finding : section.findings)
            text += entry(finding, width);
    }
    return text +
           fmt::format("\nBackends that work here: {}.\n", fmt::join(backends, ", "));
}

Json finding_json(const Finding& finding) {
    Json json{{"part", finding.part}, {"there", finding.there}, {"found", finding.found}};
    if (finding.there) return json;
    json["gives"] = finding.gives;
    if (!finding.install.empty()) json["install"] = finding.install;
    return json;
}

std::string doctor_json(const std::vector<Section>& sections, const gpu::Survey& survey) {
    const Machine machine = this_machine();
    Json findings = Json::array();
    for (const Section& section : sections)
        for (const Finding& finding : section.findings)
            findings.push_back(finding_json(finding));
    Json gpus = Json::array();
    for (const gpu::GpuInfo& gpu : survey.gpus)
        gpus.push_back({{"name", gpu.name},
                        {"capability", gpu.capability},
                        {"memory_bytes", gpu.memory_bytes},
                        {"peers", gpu.peers}});
    return Json{{"lockstep", kVersion},
                {"machine",
                 {{"cpu", machine.cpu},
                  {"cores", machine.cores},
                  {"memory_bytes", memory_bytes()},
                  {"system", machine.system}}},
                {"backends", usable_backends(survey)},
                {"cuda", survey.cuda},
                {"driver", survey.driver},
                {"nccl", survey.nccl},
                {"gpus", gpus},
                {"findings", findings}}
               .dump(2) +
           "\n";
}

}  // namespace

int run(const DoctorRequest& request) {
    const gpu::Survey survey = gpu::survey();
    const std::vector<Section> sections{{"This program is built with", build_findings()},
                                        {"GPUs", gpu_findings(survey)},
                                        {"Starting processes", launcher_findings()}};
    print(request.json ? doctor_json(sections, survey)
                       : doctor_text(sections, usable_backends(survey)));
    return kSuccess;
}

}  // namespace lockstep::lessons
