#include "lessons/runner/lesson.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/runner/backend.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"

namespace lockstep::lessons {

const LessonEntry& find_lesson(const std::string& slug) {
    const std::vector<LessonEntry>& lessons = catalogue();
    const auto found = std::ranges::find(lessons, slug, &LessonEntry::slug);
    require(found != lessons.end(), [&] {
        std::vector<std::string> slugs;
        slugs.reserve(lessons.size());
        for (const LessonEntry& lesson : lessons)
            slugs.push_back(lesson.slug);
        return no_such("lesson", slug, slugs);
    });
    return *found;
}

void require_ranks(const LessonEntry& lesson, const LessonOptions& options) {
    const int ranks = options.ranks.value_or(lesson.default_ranks);
    require(ranks >= lesson.least_ranks && ranks <= lesson.most_ranks,
            "--ranks {}: a whole number from {} to {} is expected{}", ranks,
            lesson.least_ranks, lesson.most_ranks, options.gpus_hint());
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
