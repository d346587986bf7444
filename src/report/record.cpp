#include "src/report/record.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <signal.h>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unistd.h>

#include <fmt/format.h>

#include "src/chart/svg.hpp"
#include "src/core/require.hpp"
#include "src/report/chrome_trace.hpp"
#include "src/report/files.hpp"
#include "src/report/hta_trace.hpp"
#include "src/report/machine.hpp"
#include "src/report/timeline.hpp"
#include "src/report/version.hpp"
#include "src/report/write_diagnosis.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

constexpr std::uint64_t kMostBytes = 16 << 20;

DType dtype_named(const std::string& name) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::bf16})
        if (name == name_of(dtype)) return dtype;
    throw UsageError("dtype " + name);
}

RunOptions options_of(const Json& json) {
    RunOptions options;
    json.at("lockstep").get<std::string>();
    options.lesson = json.at("lesson").get<std::string>();
    options.backend = json.at("backend").get<std::string>();
    options.ranks = json.at("ranks").get<int>();
    options.dtype = dtype_named(json.at("dtype").get<std::string>());
    options.seed = json.at("seed").get<std::uint64_t>();
    options.cluster = json.at("cluster").get<std::string>();
    if (json.contains("check")) options.check = json.at("check").get<std::string>();
    if (json.contains("sum_length"))
        options.sum_length = json.at("sum_length").get<std::int64_t>();
    require(options.sum_length >= 1, "sum_length below 1");
    for (const auto& [key, value] : json.at("settings").members())
        options.settings[key] = value.get<std::string>();
    return options;
}

}  // namespace

std::string run_json(const Record& record, const std::vector<std::string>& files) {
    const RunOptions& options = record.options;
    const Machine machine = this_machine();
    Json runs = Json::array();
    for (const auto& [name, report] : record.runs)
        runs.push_back(name);
    Json json{{"lockstep", kVersion},
              {"lesson", options.lesson},
              {"backend", options.backend},
              {"ranks", options.ranks},
              {"dtype", name_of(options.dtype)},
              {"seed", options.seed},
              {"cluster", options.cluster},
              {"check", options.check},
              {"sum_length", options.sum_length},
              {"settings", Json(options.settings)},
              {"models", Json(record.models)},
              {"runs", runs},
              {"files", files},
              {"machine",
               {{"cpu", machine.cpu},
                {"cores", machine.cores},
                {"system", machine.system},
                {"compiler", machine.compiler}}}};
    if (record.diagnosis) json["stopped_by"] = record.diagnosis->fault;
    if (!options.gpu.empty()) json["machine"]["gpu"] = options.gpu;
    return json.dump(2) + "\n";
}

RunOptions read_run_options(const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / "run.json";
    std::error_code ignored;
    require(std::filesystem::is_directory(folder, ignored),
            [&] { return folder.string() + ": there is no such folder"; });
    require(std::filesystem::exists(path, ignored), [&] {
        return folder.string() +
               ": this folder holds no record of a run: run.json is missing";
    });
    const std::string text = read_text_file(path, kMostBytes);
    try {
        return options_of(Json::parse(text));
    } catch (const JsonError&) {
    } catch (const UsageError&) {
    }
    throw UsageError(path.string() + ": this is not the run.json of a record");
}

namespace {

Json time_json(const TimeReport& time) {
    return {{"compute", time.compute}, {"communication", time.communication},
            {"copy", time.copy},       {"waiting", time.waiting},
            {"begin", time.begin},     {"end", time.end}};
}

Json categories_json(const std::array<std::int64_t, kMemoryCategories>& bytes) {
    Json json = Json::object();
    for (int c = 0; c < kMemoryCategories; ++c)
        json[name_of(static_cast<MemoryCategory>(c))] = bytes[c];
    return json;
}

Json memory_json(const MemoryReport& memory) {
    return {{"peak", memory.peak},
            {"at_peak", categories_json(memory.at_peak)},
            {"category_peak", categories_json(memory.category_peak)},
            {"at_end", categories_json(memory.current)}};
}

Json traffic_json(std::vector<Traffic> traffic) {
    std::ranges::stable_sort(traffic, {}, [](const Traffic& each) {
        return std::tie(each.group, each.verb, each.between_nodes);
    });
    Json json = Json::array();
    for (const Traffic& each : traffic) {
        json.push_back({{"group", each.group},
                        {"verb", each.verb},
                        {"link", each.between_nodes ? "between nodes" : "inside node"},
                        {"calls", each.calls},
                        {"messages_sent", each.messages_sent},
                        {"bytes_sent", each.bytes_sent},
                        {"messages_received", each.messages_received},
                        {"bytes_received", each.bytes_received}});
    }
    return json;
}

Json series_json(const std::map<std::string, std::vector<double>>& series) {
    Json json = Json::object();
    for (const auto& [name, values] : series) {
        Json list = Json::array();
        for (const double value : values)
            list.push_back(json_figure(value));
        json[name] = std::move(list);
    }
    return json;
}

Json intended_json(const std::vector<Intended>& intended) {
    Json json = Json::array();
    for (const Intended& meant : intended)
        json.push_back({{"fault", meant.fault},
                        {"why", meant.why},
                        {"name", meant.name},
                        {"at", meant.at.text()}});
    return json;
}

Json host_json(const HostReport& host) {
    return {{"compute_picoseconds", host.compute},
            {"flops", host.flops},
            {"memory_bytes", memory_json(host.memory)},
            {"bytes_to_host", host.bytes_to_host},
            {"bytes_to_device", host.bytes_to_device}};
}

Json run_json(const std::string& name, const RunReport& report) {
    Json ranks = Json::array();
    for (std::size_t r = 0; r < report.ranks.size(); ++r) {
        const RankReport& rank = report.ranks[r];
        ranks.push_back({{"rank", r},
                         {"time_picoseconds", time_json(rank.time)},
                         {"flops", rank.flops},
                         {"memory_bytes", memory_json(rank.memory)},
                         {"host", host_json(rank.host)},
                         {"traffic", traffic_json(rank.traffic)},
                         {"series", series_json(rank.series)},
                         {"intended", intended_json(rank.intended)}});
    }
    return {{"name", name},
            {"makespan_picoseconds", report.makespan()},
            {"roof_picoseconds",
             {{"products", report.roof.products},
              {"memory", report.roof.memory},
              {"links", report.roof.links}}},
            {"bytes_sent", report.bytes_sent()},
            {"messages_sent", report.messages_sent()},
            {"ranks", std::move(ranks)}};
}

Json check_json(const Check& check) {
    return {{"name", check.name},
            {"figure", json_figure(check.figure)},
            {"relation", check.equality ? "equal" : "at most"},
            {"bound", json_figure(check.bound)},
            {"passed", check.passed}};
}

}  // namespace

std::string metrics_json(const Record& record) {
    Json checks = Json::array();
    for (const Check& check : record.checks)
        checks.push_back(check_json(check));
    Json runs = Json::array();
    for (const auto& [name, report] : record.runs)
        runs.push_back(run_json(name, report));
    const Json json{{"checks", std::move(checks)}, {"runs", std::move(runs)}};
    return json.dump(1) + "\n";
}

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 9> kFiles{
    "run.json",      "inputs.safetensors",  "metrics.json",
    "trace.json",    "outputs.safetensors", "timeline.svg",
    "diagnosis.txt", "diagnosis.json",      "wait_for_graph.svg"};
/// A new record is written in a folder with this prefix before it replaces the old one. A
/// note in the folder names the process that made the folder. So a later process can
/// remove the folder of a killed process; it removes no folder without such a note.
constexpr std::string_view kStagingPrefix = ".lockstep-";
constexpr const char* kStagingNote = "made-by-process";

/// Returns the process that made the staging folder; nothing if it is a folder of the
/// user instead.
std::optional<pid_t> maker_of(const fs::path& folder) {
    constexpr std::uint64_t kLongestNote = 32;
    if (!folder.filename().string().starts_with(kStagingPrefix)) return std::nullopt;
    try {
        const std::string note = read_text_file(folder / kStagingNote, kLongestNote);
        pid_t process = 0;
        const char* const end = note.data() + note.size();
        const auto [stopped, error] = std::from_chars(note.data(), end, process);
        if (error == std::errc{} && stopped == end && process > 0) return process;
    } catch (const std::system_error&) {
    } catch (const UsageError&) {
    }
    return std::nullopt;
}

std::string rank_trace_name(int rank) {
    return fmt::format("trace_rank_{}.json", rank);
}

bool is_record_file(const std::string& name) {
    return std::ranges::find(kFiles, name) != kFiles.end() ||
           (name.starts_with("trace_rank_") &&
            name == rank_trace_name(std::atoi(name.c_str() + 11)));
}

/// Returns the names of the record's files in the folder, run.json first.
std::vector<std::string> record_files(const fs::path& folder) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (is_record_file(name)) names.push_back(name);
    }
    std::partition(names.begin(), names.end(),
                   [](const std::string& name) { return name == kFiles[0]; });
    return names;
}

/// A folder inside the record's folder. The destructor removes it with its contents.
class Staging {
  public:
    explicit Staging(const fs::path& folder)
        : made_folder_(fs::create_directories(folder)), folder_(folder) {
        try {
            remove_abandoned();
            std::string name = (folder / kStagingPrefix).string() + "XXXXXX";
            if (mkdtemp(name.data()) == nullptr)
                throw std::system_error(errno, std::generic_category());
            path_ = name;
            write_text_file(path_ / kStagingNote, std::to_string(getpid()));
        } catch (...) {
            remove();
            throw;
        }
    }
    ~Staging() { remove(); }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    const fs::path& path() const { return path_; }

  private:
    /// Removes staging folders whose process has ended. A folder with this process's own
    /// number is left from an earlier process that had the same number.
    void remove_abandoned() const {
        for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
            const std::optional<pid_t> maker = maker_of(entry.path());
            if (maker && (*maker == getpid() || (kill(*maker, 0) != 0 && errno == ESRCH)))
                fs::remove_all(entry.path());
        }
    }

    /// Also removes the record's folder if it was made for this record and is empty.
    void remove() const noexcept {
        std::error_code ignored;
        if (!path_.empty()) fs::remove_all(path_, ignored);
        if (made_folder_) fs::remove(folder_, ignored);
    }

    bool made_folder_;
    fs::path folder_;
    fs::path path_;
};

/// Tries whether the folder can be made. Makes it inside a staging folder in the nearest
/// existing folder, so that other programs do not see it appear and disappear.
void try_to_make(const fs::path& folder) {
    fs::path existing = fs::absolute(folder);
    std::vector<fs::path> missing;
    for (; !fs::exists(existing); existing = existing.parent_path()) {
        require(!fs::is_symlink(existing), "{}: {} is a link whose target does not exist",
                folder.string(), existing.string());
        missing.push_back(existing.filename());
    }
    if (!fs::is_directory(existing))
        throw std::system_error(std::make_error_code(std::errc::not_a_directory));
    try {
        const Staging trial(existing);
        fs::path inside = trial.path();
        std::ranges::reverse(missing);
        for (const fs::path& name : missing)
            if (name != "..") fs::create_directories(inside /= name);
    } catch (const std::system_error& error) {
        // The system reports this error in /proc, where nothing can be made.
        require(error.code() != std::errc::no_such_file_or_directory,
                "{}: nothing can be written in {}", folder.string(), existing.string());
        throw;
    }
}

/// Writes a trace per rank for the traced run with the most ranks (the last such run).
void write_rank_traces(const fs::path& folder, const Record& record) {
    const RunReport* largest = nullptr;
    for (const auto& [name, run] : record.runs) {
        if (run.trace.empty()) continue;
        if (largest == nullptr || run.ranks.size() >= largest->ranks.size())
            largest = &run;
    }
    const int ranks = largest == nullptr ? 0 : static_cast<int>(largest->ranks.size());
    for (int rank = 0; rank < ranks; ++rank)
        write_text_file(folder / rank_trace_name(rank), hta_trace(*largest, rank));
}

/// A run without a title gets its name, in words.
std::vector<TitledRun> titled_runs(const Record& record) {
    std::vector<TitledRun> titled;
    for (const auto& [name, run] : record.runs) {
        const auto title = record.titles.find(name);
        std::string words = title == record.titles.end() ? name : title->second;
        std::ranges::replace(words, '_', ' ');
        titled.push_back({std::move(words), run});
    }
    return titled;
}

void write_files(const fs::path& folder, const Record& record) {
    write_safetensors(folder / "inputs.safetensors", record.inputs);
    write_safetensors(folder / "outputs.safetensors", record.outputs);
    write_text_file(folder / "metrics.json", metrics_json(record));
    if (record.diagnosis) {
        const bool left = record.stopped_run && !record.runs.empty();
        write_diagnosis_files(folder, *record.diagnosis,
                              left ? &record.runs.back().second : nullptr);
    }
    const bool traced = std::ranges::any_of(
        record.runs, [](const auto& run) { return !run.second.trace.empty(); });
    if (traced) {
        write_text_file(folder / "trace.json", chrome_trace(record.runs));
        write_text_file(folder / "timeline.svg",
                        chart_svg(timeline_chart(titled_runs(record))));
        if (record.hta) write_rank_traces(folder, record);
    }
    std::vector<std::string> files = record_files(folder);
    std::ranges::sort(files);
    write_text_file(folder / "run.json", run_json(record, files));
}

/// Moves files back if possible; a file that cannot be moved stays where it is.
void move_back(const fs::path& earlier, const fs::path& folder,
               const std::vector<std::string>& names) noexcept {
    std::error_code ignored;
    for (const std::string& name : names)
        if (fs::exists(earlier / name, ignored))
            fs::rename(earlier / name, folder / name, ignored);
}

/// run.json is removed first and added last: without it, a mixture of two records does
/// not look like a record.
void swap_in(const fs::path& folder, const fs::path& staging) {
    const fs::path earlier = staging / "earlier";
    fs::create_directory(earlier);
    const std::vector<std::string> old_names = record_files(folder);
    std::vector<std::string> new_names = record_files(staging);
    std::ranges::reverse(new_names);
    try {
        for (const std::string& name : old_names)
            fs::rename(folder / name, earlier / name);
    } catch (...) {
        move_back(earlier, folder, old_names);
        throw;
    }
    try {
        for (const std::string& name : new_names)
            fs::rename(staging / name, folder / name);
    } catch (...) {
        std::error_code ignored;
        for (const std::string& name : new_names)
            fs::remove(folder / name, ignored);
        move_back(earlier, folder, old_names);
        throw;
    }
}

/// Reports an error inside the folder as an error of the folder, since the user did not
/// name anything inside it.
template <typename Action>
void naming(const fs::path& folder, Action&& action) {
    try {
        action();
    } catch (const std::system_error& error) {
        throw std::system_error(error.code(), folder.string());
    }
}

/// Returns the files that the record in the folder lists. A record without a list is from
/// an earlier version: then all files with a record's names belong to it.
std::vector<std::string> files_of_record(const fs::path& folder) {
    read_run_options(folder);
    const Json json = Json::parse(read_text_file(folder / "run.json", kMostBytes));
    std::vector<std::string> files{"run.json"};
    if (!json.contains("files")) return record_files(folder);
    for (const Json& file : json.at("files").elements())
        files.push_back(file.get<std::string>());
    return files;
}

void check_folder(const fs::path& folder) {
    require(!folder.empty(), "the folder for the record has no name");
    if (!fs::exists(folder)) return;
    require(fs::is_directory(folder),
            [&] { return folder.string() + ": this exists and is not a folder"; });
    const auto require_ours = [&](const std::string& name, bool is_ours) {
        require(is_ours,
                "{}: this folder has {}, which is not part of a record; nothing was "
                "overwritten; name another folder",
                folder.string(), name);
    };
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        if (maker_of(entry.path())) continue;
        names.push_back(entry.path().filename().string());
        require_ours(names.back(),
                     is_record_file(names.back()) && entry.is_regular_file());
    }
    if (names.empty()) return;
    const std::vector<std::string> ours = files_of_record(folder);
    for (const std::string& name : names)
        require_ours(name, std::ranges::find(ours, name) != ours.end());
}

}  // namespace

Check Check::at_most(std::string name, double figure, double bound) {
    return {std::move(name), figure, bound, figure <= bound, false};
}

Check Check::equal(std::string name, double figure, double expected) {
    return {std::move(name), figure, expected, figure == expected, true};
}

void Record::stopped_by(const FaultError& fault) {
    diagnosis = fault.diagnosis();
    stopped_run = fault.report() != nullptr;
    if (stopped_run) runs.emplace_back("stopped", *fault.report());
}

void require_record_folder(const fs::path& folder) {
    naming(folder, [&] {
        check_folder(folder);
        try_to_make(folder);
    });
}

void write_record(const fs::path& folder, const Record& record) {
    naming(folder, [&] {
        check_folder(folder);
        const Staging staging(folder);
        write_files(staging.path(), record);
        swap_in(folder, staging.path());
    });
}

}  // namespace lockstep
