#include "lessons/assignments/debug_the_cluster/grading/criteria.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/debug_the_cluster/grading/mended.hpp"
#include "lessons/assignments/debug_the_cluster/handout/causes.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/grader/kit.hpp"
#include "src/core/require.hpp"
#include "src/course/found_mistake.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace {

constexpr const char* kSlug = "debug-the-cluster";
constexpr const char* kAnswers = "answers.json";
/// Of run.cpp, by which answers say which ranks.
constexpr int kRanks = 4;

/// One program's mistake. Where several answers are right, all of them.
struct Mistake {
    std::string program;
    std::vector<std::set<int>> ranks;
    std::vector<std::string> lines;  ///< the text of each, which the program has once
    std::string cause;
    std::string lesson;
};

const std::set<int> kAll{0, 1, 2, 3};

const std::vector<Mistake> kMistakes{
    {"filter",
     {{2}},
     {"if (x.elements() == 0) continue;  // all were too long"},
     "other_path",
     "gradient-accumulation, step 2"},
    // With fewer micro-batches than stages before the last.
    {"pipeline",
     {{1, 2, 3}},
     {"const int ahead = std::min(last, micro_batches) - stage;"},
     "wrong_schedule",
     "pipeline-1f1b, step 3"},
    // Whoever gathers the first layer may wait for it, too.
    {"prefetch",
     {kAll},
     {"if (layer > 0) arriving.wait();", "Work arriving = gather(0);"},
     "not_arrived",
     "ring-self-attention, step 8"},
    {"evaluate",
     {kAll},
     {"device.scale(loss, 1.0 / static_cast<double>(own.count * rank.size()));"},
     "wrong_mean",
     "gradient-accumulation, step 3"},
    // One rank may count what all hold; or none, and each adds it afterwards.
    {"clip",
     {{1, 2, 3}, kAll},
     {"count(replicated);", "rank.world().all_reduce(squares).wait();"},
     "summed_again",
     "tensor-parallel-block, step 4"},
    {"accumulate",
     {kAll},
     {"rank.world().all_reduce(parts[i], Reduction::mean).wait();"},
     "too_often",
     "gradient-accumulation, step 2"}};

/// The number of the line in the program as it is handed out.
std::int64_t number_of(const std::string& line, const std::string& file) {
    constexpr std::uint64_t kLargest = 1 << 20;
    std::istringstream text(read_text_file(Kit::find().handout(kSlug) / file, kLargest));
    std::int64_t number = 0, found = 0;
    std::string read;
    while (std::getline(text, read)) {
        ++number;
        const std::size_t begin = std::min(read.find_first_not_of(' '), read.size());
        if (read.substr(begin) != line) continue;
        if (found != 0) throw std::logic_error(file + " has twice: " + line);
        found = number;
    }
    if (found == 0) throw std::logic_error(file + " has not: " + line);
    return found;
}

bool is_right(const FoundMistake& found, const Mistake& mistake) {
    const auto is_line = [&](const std::string& line) {
        return number_of(line, mistake.program + ".cpp") == found.line;
    };
    return std::count(mistake.ranks.begin(), mistake.ranks.end(), found.ranks) > 0 &&
           std::any_of(mistake.lines.begin(), mistake.lines.end(), is_line) &&
           found.cause == mistake.cause;
}

/// Which of the three is wrong is not said: one would be tried after another.
void judge_found(Judge& judge, const Mistake& mistake) {
    const std::string asked =
        fmt::format("the ranks, the line and the cause of {}.cpp's mistake, all three",
                    mistake.program);
    std::optional<FoundMistake> found;
    try {
        found = read_found_mistake(judge.file(kAnswers), kAnswers, mistake.program,
                                   kRanks, kCauses);
    } catch (const UsageError& wrong) {
        throw Judge::No{Mark::failed, asked, "", wrong.what()};
    }
    if (!found)
        throw Judge::No{Mark::not_written, asked, "",
                        fmt::format("ranks, line and cause of {}.cpp's mistake into {}",
                                    mistake.program, kAnswers)};
    judge.ask(is_right(*found, mistake), asked,
              fmt::format("ranks {}, line {}, {}", fmt::join(found->ranks, ", "),
                          found->line, found->cause),
              "at least one of the three is not right");
}

}  // namespace

Assignment debug_the_cluster_assignment() {
    Assignment assignment{
        kSlug,
        "Debug the cluster",
        "Six broken distributed programs: name the ranks, the line and the cause of each "
        "mistake, then mend it.",
        {"programs.hpp", "stage.hpp", "adapters.cpp", kAnswers},
        {}};
    const std::map<std::string, void (*)(Judge&)> mended{
        {"filter", judge_filter},     {"pipeline", judge_pipeline},
        {"prefetch", judge_prefetch}, {"evaluate", judge_evaluate},
        {"clip", judge_clip},         {"accumulate", judge_accumulate}};
    int number = 0;
    for (const Mistake& mistake : kMistakes) {
        const std::string id = fmt::format("a6.{}", ++number);
        const std::string file = mistake.program + ".cpp";
        assignment.files.push_back(file);
        assignment.criteria.push_back(
            {id + "-found", fmt::format("the mistake of {} is named", file), 6,
             mistake.lesson, [&mistake](Judge& judge) { judge_found(judge, mistake); }});
        assignment.criteria.push_back(
            {id + "-mended",
             fmt::format("{} computes and sends what it should, at no more cost", file),
             10, mistake.lesson, mended.at(mistake.program)});
    }
    assignment.criteria.push_back({"a6.7-all",
                                   "all six run in one program, one after another", 4,
                                   "gradient-accumulation, step 2", judge_all});
    return assignment;
}

}  // namespace lockstep::lessons
