#include "lessons/runner/lesson.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/runner/backend.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

std::vector<std::string> slugs() {
    std::vector<std::string> names;
    for (const LessonEntry& lesson : catalogue())
        names.push_back(lesson.slug);
    return names;
}

}  // namespace

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

LessonOptions understood(LessonOptions options, const LessonEntry& lesson) {
    std::vector<Setting> declared = common_settings();
    declared.insert(declared.end(), lesson.settings.begin(), lesson.settings.end());
    options.values = Settings(declared, options.settings);
    options.run = run_settings(options.values);
    require(lesson.takes_text || !options.text, "--text: the lesson {} takes none",
            lesson.slug);
    require(lesson.takes_data || !options.data, "--data: the lesson {} takes none",
            lesson.slug);
    return options;
}

void Lesson::check_values(Page& page, const Check& check) const {
    if (has_numbers())
        page.check(check);
    else
        page.text(fmt::format("({}: not compared, as this run computes shapes only.)",
                              check.name));
}

}  // namespace lockstep::lessons
