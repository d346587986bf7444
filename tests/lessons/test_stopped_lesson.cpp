// A lesson that a mistake stops leaves one JSON document and a record of earlier steps.

#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lessons/runner/command.hpp"
#include "lessons/runner/processes.hpp"
#include "src/run/diagnosis.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;
using Library = nlohmann::json;

namespace {

RunReport run(const Lesson& lesson, bool leaves) {
    return make_cluster(lesson.options(), 4, true)->run([leaves](Rank& rank) {
        const Tensor x = rank.device().zeros({8}, DType::f32);
        if (leaves && rank.index() == 1) return;
        rank.world().all_reduce(x).wait();
    });
}

void fine(Lesson& lesson, Findings& found) {
    lesson.record().runs.emplace_back("fine", run(lesson, false));
    found.equal("one", 1, 1);
}

/// A lesson in which one rank leaves early.
void stops(Lesson& lesson, Findings&) {
    run(lesson, true);
}

LessonEntry stopping() {
    LessonEntry entry;
    entry.slug = "stopping";
    entry.page =
        "# A lesson that stops\n\nDoes it?\n\n## Fine {#fine}\n\n{{check one: one}}\n\n"
        "## Stops {#stops}\n";
    entry.make = lesson_of<Lesson>({{"fine", fine}, {"stops", stops}});
    return entry;
}

std::string text_in(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// While this object lives, standard output and standard error go to files.
class Captured {
  public:
    explicit Captured(const TemporaryFolder& folder) : folder_(folder) {
        for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
            before_[stream] = ::dup(stream);
            const int file = ::open(path(stream).c_str(), O_CREAT | O_WRONLY, 0600);
            ::dup2(file, stream);
            ::close(file);
        }
    }
    ~Captured() {
        for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
            ::dup2(before_[stream], stream);
            ::close(before_[stream]);
        }
    }
    Captured(const Captured&) = delete;
    Captured& operator=(const Captured&) = delete;

    std::filesystem::path path(int stream) const {
        return folder_.path() / std::to_string(stream);
    }

  private:
    const TemporaryFolder& folder_;
    int before_[STDERR_FILENO + 1] = {};
};

struct Said {
    int status = 0;
    std::string output;
    std::string errors;
};

/// Runs a lesson as main() does.
Said run(const LessonOptions& options) {
    const TemporaryFolder folder;
    Said said;
    {
        const Captured captured(folder);
        try {
            said.status = run_steps(stopping(), options, [](auto&) { return true; });
        } catch (...) {
            said.status = report(ending_of_exception());
        }
    }
    said.output = text_in(folder.path() / "1");
    said.errors = text_in(folder.path() / "2");
    return said;
}

}  // namespace

TEST_CASE("a lesson that stops is one JSON document with the diagnosis", "[lessons]") {
    LessonOptions options;
    options.json = true;
    const Said said = run(options);
    CHECK(said.status == kFailed);
    const Library json = Library::parse(said.output);
    CHECK(json.at("lesson") == "stopping");
    CHECK(json.at("passed") == false);
    CHECK(json.at("steps").size() == 1);
    CHECK(json.at("diagnosis").at("fault") == "F07");
    CHECK(json.at("diagnosis").at("waits")[0].at("to") == Library{1});
    CHECK(said.errors.starts_with("F07: "));
}

TEST_CASE("a lesson that stops leaves its record", "[lessons]") {
    for (const bool json : {false, true}) {
        const TemporaryFolder folder;
        LessonOptions options;
        options.json = json;
        options.out = folder.path() / "run";
        const Said said = run(options);
        CHECK(said.status == kFailed);
        const std::filesystem::path& out = *options.out;
        const Library described = Library::parse(text_in(out / "run.json"));
        CHECK(described.at("stopped_by") == "F07");
        CHECK(described.at("runs") == Library{"fine", "stopped"});
        CHECK(text_in(out / "diagnosis.txt").starts_with("F07: "));
        CHECK(Library::parse(text_in(out / "metrics.json")).at("runs").size() == 2);
        for (const char* name :
             {"wait_for_graph.svg", "trace.json", "timeline.svg", "diagnosis.json"})
            CHECK(std::filesystem::exists(out / name));
        const bool tells =
            said.errors.find("record of the stopped run is in") != std::string::npos;
        CHECK(tells != json);
    }
}

TEST_CASE(
    "if the record of a stopped run cannot be written, the mistake is still reported",
    "[lessons]") {
    const TemporaryFolder folder;
    LessonOptions options;
    options.out = folder.path() / "run";
    std::filesystem::create_directory(*options.out);
    const auto steps = [&](std::vector<Step>& all) {
        all[0].run = [&] {
            folder.file("run/thesis.tex", "years");
            return Document();
        };
        return true;
    };
    const TemporaryFolder streams;
    std::string sentence;
    {
        const Captured captured(streams);
        try {
            run_steps(stopping(), options, steps);
        } catch (const FaultError& fault) {
            sentence = fault.what();
        }
    }
    CHECK(sentence.starts_with("F07: "));
    CHECK(text_in(folder.path() / "run" / "thesis.tex") == "years");
    CHECK(text_in(streams.path() / "2").find("could not be recorded") !=
          std::string::npos);
}

TEST_CASE("full checking is asked for, and recorded", "[lessons]") {
    const TemporaryFolder folder;
    LessonOptions options;
    options.json = true;
    options.check = sim::CheckLevel::full;
    options.out = folder.path() / "run";
    const Library json = Library::parse(run(options).output);
    CHECK(json.at("options").at("check") == "full");
    CHECK(Library::parse(text_in(*options.out / "run.json")).at("check") == "full");
}
