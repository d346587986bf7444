// Judges the solutions of an assignment in this process. The reference must lose nothing.
// Each mistaken copy must lose the points, and get the sentence, that mistakes.txt names.
//
// usage: mistakes SLUG FILES DATA [tell]
//
// FILES has the solutions' files that are not C++ (mistakes.py), DATA is the folder of
// the grader's own data. The seed of sizes and values is 1, or LOCKSTEP_DRAW. With
// `tell`, the program checks nothing. It prints a line of JSON with the messages about
// each mistake, for authors of criteria or mistakes.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/grader/solution.hpp"

namespace lockstep::lessons {

namespace {

/// Returns whether the text contains the parts of `pattern` between "...", in order.
bool fits(const std::string& text, const std::string& pattern) {
    std::size_t place = 0;
    for (std::size_t begin = 0; begin <= pattern.size();) {
        const std::size_t end = std::min(pattern.find("...", begin), pattern.size());
        const std::string part = pattern.substr(begin, end - begin);
        place = text.find(part, place);
        if (place == std::string::npos) return false;
        place += part.size();
        begin = end + 3;
    }
    return true;
}

std::string in_one_line(std::string text) {
    std::ranges::replace(text, '\n', ' ');
    return text;
}

/// A solution's files that are not C++, by name.
using Files = std::map<std::string, std::string>;

/// The judgements of all criteria about a solution.
struct Judged {
    std::vector<std::string> lost;
    std::string said;  ///< the sentence of the first criterion that lost points
    nlohmann::json all = nlohmann::json::array();
};

Judged judge_all(const Assignment& assignment, StudentWork& work,
                 const GradingSide& own) {
    Judged judged;
    for (std::size_t i = 0; i < assignment.criteria.size(); ++i) {
        const Criterion& criterion = assignment.criteria[i];
        const Judgement judgement = judgement_of(assignment, i, Judge(work, own));
        const std::string said =
            in_one_line(judgement.said.empty() ? judgement.measured : judgement.said);
        judged.all.push_back({{"id", criterion.id},
                              {"passed", judgement.mark == Mark::passed},
                              {"asked", judgement.asked},
                              {"measured", judgement.measured},
                              {"said", in_one_line(judgement.said)}});
        if (judgement.mark == Mark::passed) continue;
        if (judged.lost.empty()) judged.said = said;
        judged.lost.push_back(criterion.id);
    }
    std::ranges::sort(judged.lost);
    return judged;
}

/// Returns whether a solution lost the right points and got the right message.
bool check(const Solution& solution, const Judged& judged) {
    std::vector<std::string> expected = solution.loses;
    std::ranges::sort(expected);
    bool right = true;
    if (judged.lost != expected) {
        fmt::print("{}: loses {}\n  expected {}\n", solution.title,
                   fmt::join(judged.lost, ", "), fmt::join(expected, ", "));
        right = false;
    }
    const bool told = solution.says.empty() ? fits(judged.said, solution.expects)
                                            : judged.said.ends_with(solution.says);
    if (!told) {
        fmt::print("{}: the message is: {}\n  expected: {}\n", solution.title,
                   judged.said, solution.says.empty() ? solution.expects : solution.says);
        right = false;
    }
    return right;
}

/// Returns whether criteria name only earlier criteria, so that none waits for itself.
bool check_order(const Assignment& assignment) {
    bool right = true;
    std::vector<std::string> before;
    for (const Criterion& criterion : assignment.criteria) {
        for (const auto* others : {&criterion.needs, &criterion.after})
            for (const std::string& other : *others)
                if (std::ranges::count(before, other) == 0) {
                    fmt::print("{} names {}, which is not an earlier criterion\n",
                               criterion.id, other);
                    right = false;
                }
        before.push_back(criterion.id);
    }
    return right;
}

void tell(const Solution& solution, const Judged& judged) {
    const nlohmann::json line{{"title", solution.title},
                              {"lost", judged.lost},
                              {"said", judged.said},
                              {"criteria", judged.all}};
    fmt::print("{}\n",
               line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

int try_all(const std::string& slug, const std::vector<Files>& files, GradingSide own,
            bool tells) {
    const Assignment& assignment = find_assignment(slug);
    const std::vector<Solution> solutions = assignment.solutions();
    Answers answers(solutions);
    own.answers = &answers;
    bool right = check_order(assignment);
    constexpr std::size_t kFewest = 6;
    if (solutions.size() <= kFewest) {
        fmt::print("only {} mistakes; at least {} are expected\n", solutions.size() - 1,
                   kFewest);
        right = false;
    }
    for (std::size_t i = 0; i < solutions.size(); ++i) {
        const Solution& solution = solutions[i];
        SolutionWork work(solution, sim::CheckLevel::full, files.at(i));
        const Judged judged = judge_all(assignment, work, own);
        if (tells)
            tell(solution, judged);
        else
            right = check(solution, judged) && right;
    }
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

}  // namespace lockstep::lessons

int main(int count, char** words) {
    try {
        using namespace lockstep::lessons;
        if (count < 4) return 2;
        std::setvbuf(stdout, nullptr, _IOLBF, 0);
        const char* const drawn = std::getenv("LOCKSTEP_DRAW");
        const auto files = nlohmann::json::parse(std::ifstream(words[2]));
        return try_all(
            words[1], files.get<std::vector<Files>>(),
            {words[3], std::strtoull(drawn == nullptr ? "1" : drawn, nullptr, 10),
             nullptr},
            count > 4);
    } catch (const std::exception& error) {
        std::fputs(error.what(), stderr);
        return 2;
    }
}
