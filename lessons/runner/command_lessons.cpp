#include <algorithm>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/command.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/utf8.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

std::vector<std::string> slugs() {
    std::vector<std::string> names;
    for (const LessonEntry& lesson : catalogue())
        names.push_back(lesson.slug);
    return names;
}

}  // namespace

int list_lessons() {
    constexpr int kIndent = 4;
    const int width = std::min(window_columns(STDOUT_FILENO), 100);
    std::string text;
    for (const LessonEntry& lesson : catalogue()) {
        text += lesson.slug + "\n";
        for (const std::string* paragraph : {&lesson.title, &lesson.question})
            for (const std::string& line : wrap(*paragraph, width - kIndent))
                text += pad_right("", kIndent) + line + "\n";
    }
    print(text);
    return kSuccess;
}

const LessonEntry& find_lesson(const std::string& slug) {
    const std::vector<LessonEntry>& lessons = catalogue();
    const auto found = std::find_if(lessons.begin(), lessons.end(),
                                    [&](const LessonEntry& l) { return l.slug == slug; });
    require(found != lessons.end(), [&] {
        std::string hint = did_you_mean(slug, slugs());
        if (hint.empty())
            hint = fmt::format("; the lessons are {}", fmt::join(slugs(), ", "));
        return fmt::format("there is no lesson '{}'{}", printable(slug), hint);
    });
    return *found;
}

}  // namespace lockstep::lessons
