#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/tools/schedule_page.hpp"
#include "program/ending.hpp"
#include "program/options.hpp"
#include "src/comm/mesh_shape.hpp"
#include "src/nn/gpt_kit.hpp"

namespace lockstep::lessons {

// The requests of the commands. A command line is parsed once, into one request. Only the
// settings of --set are parsed later.

/// Prints help or the version.
struct TextRequest {
    std::string text;
};

struct LessonsRequest {
    std::optional<Language> language;
};

struct HandInRequest {
    std::string slug;
    std::optional<std::filesystem::path> out;
};

struct LessonRequest {
    std::string slug;
    LessonOptions options;
    bool html = false;  ///< shows the lesson as a page in a browser
    /// The words of the command line. With --backend nccl, the program is started again
    /// with these words for each rank.
    std::vector<std::string> words;
};

/// The course as a web site.
struct BookRequest {
    std::filesystem::path folder;
};

/// Compares two records.
struct CompareRequest {
    std::filesystem::path a;
    std::filesystem::path b;
    std::optional<double> bound;
    bool json = false;
};

/// Runs a lesson on two backends, and compares the two records.
struct BackendsRequest {
    std::string slug;
    std::array<std::string, 2> backends;    ///< may be the same
    std::vector<std::string> lesson_words;  ///< options for both, "--ranks=4"
    LessonOptions lesson_options;           ///< the parsed words
    std::optional<double> bound;
    std::optional<std::filesystem::path> out;  ///< the folder to keep the records in
    bool json = false;
};

/// Times and draws a pipeline schedule.
struct ScheduleRequest : ScheduleSettings {
    bool with_messages = false;  ///< the same as --messages-as planned
    bool json = false;
    bool spans = false;
    std::optional<std::filesystem::path> svg;
    std::optional<std::filesystem::path> svg_period;
    std::optional<std::filesystem::path> csv;
    std::optional<std::filesystem::path> pytorch;  ///< in PyTorch's format
};

/// Shows a mesh of devices, and a model that is spread over it.
struct MeshRequest {
    MeshShape shape{{}};
    std::vector<std::vector<std::string>> planes;  ///< the axes of each plane
    std::optional<int> rank;
    std::optional<int> per_node;
    std::optional<std::string> cluster;
    std::optional<GptSizes> model;
    std::optional<int> zero;
    bool sequence = false;
    std::optional<std::string> schedule;
    std::optional<int> chunks;
    std::optional<std::filesystem::path> svg;
    std::optional<std::string> colour;  ///< the axis that sets the colours
    bool json = false;
};

/// Shows a cluster's figures.
struct ClusterRequest {
    std::string cluster;  ///< a preset's name, or the path of a file
    std::optional<int> ranks;
    std::optional<std::filesystem::path> svg;
    bool json = false;
};

/// Fits a cluster's figures to measurements: those in files, or else own ones.
struct CalibrateRequest {
    std::vector<std::filesystem::path> files;
    std::string cluster = "h100";              ///< the cluster that the fit begins with
    std::map<std::string, std::string> given;  ///< columns that the files do not have
    std::optional<std::filesystem::path> to;   ///< for the cluster
    std::optional<std::filesystem::path> csv;  ///< for the measurements
    bool json = false;
    programs::Options measured_on;
    std::optional<std::int64_t> largest;  ///< extent of products
    /// The words of the command line, with which other processes are started.
    std::vector<std::string> words;
};

/// Simulates a service that answers requests. Options override the file.
struct ServeRequest {
    std::vector<std::string> files;  ///< one file; none with --example
    bool example = false;
    /// The text of --model, and the sizes that this text stands for.
    std::optional<std::pair<std::string, GptSizes>> model;
    std::optional<std::vector<MeshShape::Axis>> mesh;
    std::optional<std::string> cluster;
    bool apart = false;
    std::vector<double> rates;   ///< requests per second
    std::optional<int> replica;  ///< the replica to draw
    std::optional<std::filesystem::path> svg;
    bool json = false;
    bool passes = false;
};

/// Shows the page on a kind of mistake.
struct FaultRequest {
    std::string fault;  ///< "F16"
    std::optional<Language> language;
};

/// Shows what a word of the course means; if it is empty, lists all words.
struct WordRequest {
    std::string word;
};

struct AssignmentsRequest {};

/// Makes a student's folder for an assignment.
struct NewAssignmentRequest {
    std::string slug;
    std::filesystem::path folder;
};

/// Makes an autograder for Gradescope.
struct GradescopeRequest {
    std::string slug;
    std::filesystem::path file;
};

struct GradeRequest {
    std::string slug;
    std::vector<std::filesystem::path> submissions;
    std::optional<int> at_once;
    GradeFormat format = GradeFormat::text;
    std::optional<std::filesystem::path> out;
    bool goes_on = false;
    bool require_confinement = false;
    bool show_output = false;
    std::optional<std::int64_t> drawn;
};

struct DoctorRequest {
    bool json = false;
};

/// The requests for the grader, which is a separate program, because lessons do not need
/// its code.
using GraderRequest = std::variant<AssignmentsRequest, NewAssignmentRequest,
                                   GradescopeRequest, GradeRequest>;

using Request =
    std::variant<TextRequest, LessonsRequest, LessonRequest, CompareRequest,
                 BackendsRequest, ScheduleRequest, MeshRequest, ClusterRequest,
                 CalibrateRequest, ServeRequest, FaultRequest, WordRequest, HandInRequest,
                 BookRequest, GraderRequest, DoctorRequest>;

/// Returns the request of a command line. Throws UsageError, which names the option and
/// the value in one sentence. Lessons and settings are looked up later.
Request read_request(const std::vector<std::string>& words);

// Each command prints to standard output and returns an exit status. Errors are thrown.

int run(const TextRequest& request);
int run(const LessonsRequest& request);
int run(const LessonRequest& request);
int run(const HandInRequest& request);
int run(const BookRequest& request);
int run(const CompareRequest& request);
int run(const BackendsRequest& request);
/// Returns kFailed if the schedule deadlocks.
int run(const ScheduleRequest& request);
int run(const MeshRequest& request);
int run(const ClusterRequest& request);
int run(const CalibrateRequest& request);
int run(const ServeRequest& request);
int run(const FaultRequest& request);
int run(const WordRequest& request);
int run(const DoctorRequest& request);

/// Replaces this program by the grader, with the same words.
[[noreturn]] void become_grader(const std::vector<std::string>& words);

/// For main(): calls `carry_out` with the words after the program's name, prints the
/// error if it throws, and returns the exit status.
int run_main(int count, char** words,
             const std::function<int(const std::vector<std::string>& words)>& carry_out);

}  // namespace lockstep::lessons
