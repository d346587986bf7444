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

/// A figure that a lesson held against what it should be.
struct Check {
    std::string name;
    double figure = 0;
    double bound = 0;
    bool passed = false;    ///< a NaN never passes
    bool equality = false;  ///< figure == bound was asked for, not figure <= bound

    /// Passed where figure <= bound; written so that a NaN does not.
    static Check at_most(std::string name, double figure, double bound);
    /// Passed where figure == expected; the bound is then the expected value.
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
    /// Terms of the longest sum behind an output; `lockstep compare` derives its bound
    /// from it.
    std::int64_t sum_length = 1;
    /// The GPU, if one computed: "name", "driver", "cuda", "nccl".
    std::map<std::string, std::string> gpu;
    std::string check = "cheap";  ///< which mistakes were looked for: cheap or full
};

/// Everything that a run leaves. A lesson runs programs one after another; each leaves
/// its report under a name ("accumulation", "data_parallel").
struct Record {
    RunOptions options;
    NamedTensors inputs;
    NamedTensors outputs;
    std::vector<Check> checks;
    std::vector<std::pair<std::string, RunReport>> runs;
    /// Pictures call a run this, by its name, if that says too little: "one device, whole
    /// batch".
    std::map<std::string, std::string> titles;
    /// How each model is built and trained (src/report/describe.hpp), by what the names
    /// of its inputs begin with. Another program rebuilds it from run.json.
    std::map<std::string, Json> models;
    /// Leave a trace_rank_K.json for each rank too: hta_trace of the traced run with the
    /// most ranks, of the last one if several have as many.
    bool hta = false;
    /// The mistake that ended the run before its time; the last of `runs` is then what
    /// the program that made it had left, if that is known.
    std::optional<Diagnosis> diagnosis;
    bool stopped_run = false;

    /// Notes the mistake, and what it carries of its run.
    void stopped_by(const FaultError& fault);
};

/// Writes run.json, inputs.safetensors, outputs.safetensors, metrics.json and, where a
/// run was traced, trace.json, timeline.svg and what `hta` asks for into `folder`; of a
/// run that ended with a mistake also diagnosis.txt, diagnosis.json and, where ranks
/// waited, wait_for_graph.svg.
///
/// The folder is made if it is not there. If it holds anything but an earlier record,
/// UsageError says so and nothing is touched. A full disk or a place that cannot be
/// written throws std::system_error; an earlier record is then still whole: the new one
/// is written beside it, in a hidden folder inside (so that `folder` may be a mount point
/// or the working folder), and takes its place at the end.
void write_record(const std::filesystem::path& folder, const Record& record);

/// Throws what write_record would throw of the folder, which is tried by writing a little
/// there; asked before a long run. Nothing is left.
void require_record_folder(const std::filesystem::path& folder);

/// Returns what run.json says about a record, as far as others need it. Throws
/// UsageError, one sentence, if the folder is not there or holds no record.
RunOptions read_run_options(const std::filesystem::path& folder);

/// The two files of a record as JSON text. metrics.json is the same bytes for the same
/// run: it holds nothing of the host. Times are integer picoseconds; numbers that are not
/// finite are the strings "NaN", "Infinity" and "-Infinity".
/// run.json lists the record's other `files`: of what lies in its folder they alone are
/// replaced by the next record.
std::string run_json(const Record& record, const std::vector<std::string>& files = {});
std::string metrics_json(const Record& record);

}  // namespace lockstep
