#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/report/safetensors.hpp"
#include "src/run/diagnosis.hpp"
#include "src/run/run_report.hpp"
#include "src/text/json.hpp"

namespace lockstep {

/// A lesson's comparison of a figure with its expected value or its bound.
struct Check {
    std::string name;
    double figure = 0;
    double bound = 0;
    bool passed = false;    ///< a NaN never passes
    bool equality = false;  ///< true: figure == bound; false: figure <= bound

    /// Passes if figure <= bound; a NaN does not pass.
    static Check at_most(std::string name, double figure, double bound);
    /// Passes if figure == expected; the bound is the expected value.
    static Check equal(std::string name, double figure, double expected);
};

/// The settings that a lesson was run with; they become run.json.
struct RunOptions {
    std::string lesson;
    std::string backend;
    int ranks = 1;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    std::string cluster;
    std::map<std::string, std::string> settings;
    /// The number of terms of the longest sum that an output depends on; `lockstep
    /// compare` derives its bound from it.
    std::int64_t sum_length = 1;
    /// The GPU, if one computed: "name", "driver", "cuda", "nccl".
    std::map<std::string, std::string> gpu;
    std::string check = "cheap";  ///< how much was checked: cheap or full
};

/// Everything that is recorded of a run. A lesson runs programs one after another; `runs`
/// has the report of each program, with a name ("accumulation", "data_parallel").
struct Record {
    RunOptions options;
    NamedTensors inputs;
    NamedTensors outputs;
    std::vector<Check> checks;
    std::vector<std::pair<std::string, RunReport>> runs;
    /// Titles of runs in pictures, by the run's name, if the name says too little. A
    /// title is, for example, "one device, whole batch".
    std::map<std::string, std::string> titles;
    /// How each model is built and trained (src/report/describe.hpp), by the prefix of
    /// its inputs' names. Another program can rebuild the model from run.json.
    std::map<std::string, Json> models;
    /// Also write a trace_rank_K.json for each rank: hta_trace of the traced run with the
    /// most ranks. If several runs have the most ranks, the last of them is used.
    bool hta = false;
    /// The mistake that ended the run early, if there was one. If the report of the
    /// stopped run is known, that report is the last of `runs`, and stopped_run is true.
    std::optional<Diagnosis> diagnosis;
    bool stopped_run = false;

    /// Notes the mistake, and its run's report if there is one.
    void stopped_by(const FaultError& fault);
};

/// Writes run.json, inputs.safetensors, outputs.safetensors and metrics.json into
/// `folder`. If a run was traced, also writes trace.json, timeline.svg and the files that
/// `hta` asks for. If a mistake ended a run, also writes diagnosis.txt, diagnosis.json
/// and, if ranks waited, wait_for_graph.svg.
///
/// The folder is made if it does not exist. If it contains anything other than an earlier
/// record, throws UsageError and touches nothing. Throws std::system_error if the disk is
/// full or the place cannot be written. An earlier record is then still whole: the new
/// record is written in a hidden folder inside `folder`, and replaces the earlier record
/// at the end. `folder` may be a mount point or the working folder.
void write_record(const std::filesystem::path& folder, const Record& record);

/// Throws what write_record would throw about the folder. To find out, writes something
/// there and removes it. Call this before a long run.
void require_record_folder(const std::filesystem::path& folder);

/// Returns what run.json says about a record, as far as other code needs it. Throws
/// UsageError, one sentence, if the folder does not exist or has no record.
RunOptions read_run_options(const std::filesystem::path& folder);

/// Return two files of a record as JSON text. metrics.json has the same bytes for the
/// same run: it has nothing about the host. Times are integer picoseconds; numbers that
/// are not finite are the strings "NaN", "Infinity" and "-Infinity". run.json lists the
/// record's other `files`. The next record in the folder replaces only these files.
std::string run_json(const Record& record, const std::vector<std::string>& files = {});
std::string metrics_json(const Record& record);

}  // namespace lockstep
