#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "gpu/survey.hpp"
#include "lessons/runner/command_line.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "lessons/tools/calibration.hpp"
#include "lessons/tools/cluster_file.hpp"
#include "lessons/tools/stopwatch.hpp"
#include "program/run.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kLargest = 8192;

void declare_measuring(Command& command, CalibrateRequest& request) {
    programs::Options& options = request.measured_on;
    options.backend = "gpu";
    command.option(
        "--backend", "NAME",
        "measure on gpu (default) or nccl; or on sim, the virtual devices of "
        "--cluster, with --set numerics=off",
        choice_into(options.backend, {{"sim", "sim"}, {"nccl", "nccl"}, {"gpu", "gpu"}}));
    command.suggest({"sim", "nccl", "gpu"});
    command.option("--ranks", "N", "measure on N devices; default: all GPUs",
                   whole_into(options.ranks, 1, 1024));
    command.option(
        "--largest", "N",
        fmt::format("extent of the largest product; default {}", kLargest),
        whole_into(request.largest, std::int64_t{1024}, std::int64_t{1} << 15));
    declare_settings(command, options, "`lockstep lesson SLUG --help`");
}

}  // namespace

void declare_calibrate(CommandLine& line) {
    Command& command = line.add(
        "calibrate",
        "Fits a cluster's figures to measurements, and says how far its times are from "
        "measurements that were left out of the fit. Without --from it measures the GPUs "
        "of this machine.");
    auto& request = command.asks_for<CalibrateRequest>();
    request.words = line.words();
    command.repeated("--from", "FILE",
                     "measurements: a CSV file, or what nccl-tests printed; may be "
                     "repeated",
                     [&request](const std::string& option, const std::string& value) {
                         require(!value.empty(), "{}: a path is expected", option);
                         request.files.emplace_back(value);
                     });
    command.repeated("--with", "COLUMN=VALUE",
                     "a column of all rows, whatever the files say, as in ranks=16 "
                     "or verb=all_reduce; may be repeated",
                     setting_into(request.given));
    command.option("--cluster", "NAME|FILE",
                   "the cluster that the fit begins with: " +
                       either(cluster_preset_names()) + ", or a JSON file; default h100",
                   text_into(request.cluster));
    command.suggest(cluster_preset_names());
    command.option("--to", "FILE", "write the cluster to this file, for --cluster",
                   path_into(request.to));
    command.option("--csv", "FILE", "write the measurements to this file, for --from",
                   path_into(request.csv));
    declare_measuring(command, request);
    command.flag("--json", kJsonMeaning, request.json);
    command.finally([&request] {
        require(!request.files.empty() || request.given.empty(), "--with needs --from");
        require(request.files.empty() || !request.csv,
                "--csv needs measurements without --from");
        require(!request.csv || request.csv != request.to,
                "--csv and --to write to one file; two are expected");
        const auto numerics = request.measured_on.settings.find("numerics");
        require(
            !request.files.empty() || request.measured_on.backend != "sim" ||
                (numerics != request.measured_on.settings.end() &&
                 numerics->second == "off"),
            "--backend sim has virtual times; --set numerics=off is expected, so that "
            "nothing else is computed");
    });
}

namespace {

/// Fits the cluster, writes the files, and shows the result.
void fit(const CalibrateRequest& request, const std::vector<Measurement>& rows) {
    const Calibration calibration = calibrated(rows, load_cluster(request.cluster));
    if (request.to) {
        ClusterSpec fitted = calibration.fitted;
        fitted.name = request.to->stem().string();
        naming("--to", *request.to,
               [&](const auto& path) { write_text_file(path, cluster_text(fitted)); });
    }
    if (request.json) return print(calibration_json(calibration));
    Document page = calibration_page(calibration);
    if (request.to)
        page.push_back({Paragraph{
            words_of(fmt::format("The cluster is in {0}; try lockstep cluster {0}.",
                                 printable(request.to->string())))}});
    print_document(page);
    print("\n");
}

/// Measures with the devices of a backend; each rank may be a process of its own.
int measure(const CalibrateRequest& request) {
    // The copies of this process have the same words.
    std::vector<std::string> words{"lockstep"};
    words.insert(words.end(), request.words.begin(), request.words.end());
    if (std::ranges::none_of(words, [](const std::string& word) {
            return word == "--backend" || word.starts_with("--backend=");
        }))
        words.insert(words.begin() + 2, "--backend=gpu");  // behind the command's name
    std::vector<char*> arguments;
    arguments.reserve(words.size());
    for (std::string& word : words)
        arguments.push_back(word.data());
    int count = static_cast<int>(arguments.size());
    const int gpus = static_cast<int>(gpu::survey().gpus.size());
    Launch launch(count, arguments.data(),
                  {.name = "lockstep", .default_ranks = std::max(gpus, 1)});
    require(launch.backend() != "cuda",
            "--backend cuda has the times of the cluster, not of the GPU; a GPU for each "
            "of the --ranks is expected");
    const std::vector<Measurable> plan =
        planned_measurements(launch.ranks(), request.largest.value_or(kLargest));
    return launch.run(measuring(plan), [&](const RunReport& report) {
        if (request.csv)
            naming("--csv", *request.csv, [&](const auto& path) {
                write_text_file(path, measured_csv(plan, report));
            });
        fit(request, measured(plan, report));
    });
}

}  // namespace

int run(const CalibrateRequest& request) {
    constexpr std::uint64_t kMostBytes = 1 << 20;
    const auto check = [&](const char* option, const auto& path) {
        if (!path) return;
        for (const std::filesystem::path& file : request.files)
            require_not_read(option, *path, file, "the measurements");
        require_not_read(option, *path, request.cluster, "the cluster");
    };
    check("--to", request.to);
    check("--csv", request.csv);
    (void)load_cluster(request.cluster);  // before anything is measured
    if (request.files.empty()) return measure(request);
    std::vector<Measurement> rows;
    for (const std::filesystem::path& file : request.files)
        naming("--from", file, [&](const auto& path) {
            for (Measurement& row : read_measurements(read_text_file(path, kMostBytes),
                                                      path.string(), request.given))
                rows.push_back(row);
        });
    fit(request, rows);
    return kSuccess;
}

}  // namespace lockstep::lessons
