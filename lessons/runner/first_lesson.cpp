// The first lesson as a program of its own. It is made of half of the sources, so a
// reader can begin before the other half is built.

#include <any>

#include "lessons/runner/command_line.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

LessonEntry gradient_accumulation_lesson();

const std::vector<LessonEntry>& catalogue() {
    static const std::vector<LessonEntry> lessons = [] {
        // The end of the first lesson names this lesson, which only lockstep can run.
        LessonEntry next;
        next.slug = "data-parallel";
        next.folder = "02_data_parallel";
        return std::vector{gradient_accumulation_lesson(), next};
    }();
    return lessons;
}

int show_in_browser(const LessonEntry&, const LessonOptions&) {
    throw UsageError("--html: this program has no book; lockstep has it");
}

}  // namespace lockstep::lessons

int main(int count, char** words) {
    using namespace lockstep;
    using namespace lockstep::lessons;
    return run_main(count, words, [](const auto& arguments) {
        CommandLine line = command_line(arguments);
        declare_lesson(line);
        const CommandLine::Asked asked = line.read();
        if (asked.command == nullptr) return run(TextRequest{asked.text});
        const auto request = std::any_cast<LessonRequest>(asked.command->request());
        require(request.slug == catalogue().front().slug,
                "this program has the lesson {} only; lockstep has all",
                catalogue().front().slug);
        return run(request);
    });
}
