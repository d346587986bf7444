#include "lessons/runner/command.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/report/compare.hpp"

namespace lockstep::lessons {

int compare_runs(const CompareRequest& request) {
    const Comparison comparison = compare_records(request.a, request.b, request.bound);
    std::string text = request.json ? comparison.json() : comparison.text();
    if (!text.ends_with('\n')) text += '\n';
    print(text);
    return comparison.passed() ? kSuccess : kFailed;
}

}  // namespace lockstep::lessons
