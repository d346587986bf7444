#include "lessons/assignments/catalogue.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lessons/runner/lesson.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"

namespace lockstep::lessons {

const std::vector<Assignment>& assignments() {
    static const std::vector<Assignment> all{ring_all_reduce_assignment(),
                                             data_parallel_assignment(),
                                             ddp_buckets_assignment(),
                                             zero_assignment(),
                                             column_row_linear_assignment(),
                                             pipeline_1f1b_assignment(),
                                             two_buffers_assignment(),
                                             ring_attention_assignment(),
                                             ulysses_assignment(),
                                             experts_assignment(),
                                             mesh_assignment(),
                                             decode_assignment(),
                                             debug_the_cluster_assignment()};
    return all;
}

const Assignment& find_assignment(const std::string& slug) {
    const std::vector<Assignment>& all = assignments();
    const auto found = std::ranges::find(all, slug, &Assignment::slug);
    require(found != all.end(), [&] {
        std::vector<std::string> slugs;
        slugs.reserve(all.size());
        for (const Assignment& entry : all)
            slugs.push_back(entry.slug);
        return no_such("assignment", slug, slugs);
    });
    return *found;
}

std::string lesson_step(const std::string& lesson, const std::string& name) {
    static std::map<std::string, LessonPage> pages;
    auto page = pages.find(lesson);
    if (page == pages.end()) {
        const auto entry = std::ranges::find(catalogue(), lesson, &LessonEntry::slug);
        require(entry != catalogue().end(), "there is no lesson {}", lesson);
        page = pages.emplace(lesson, page_of(*entry)).first;
    }
    const auto steps = page->second.steps();
    const auto found = std::ranges::find(steps, name, &PageSection::name);
    require(found != steps.end(), "the lesson {} has no step {}", lesson, name);
    return fmt::format("{}, step {}", lesson, found - steps.begin() + 1);
}

std::vector<Criterion> taught_by(const std::string& lesson,
                                 std::vector<Criterion> criteria) {
    for (Criterion& criterion : criteria)
        criterion.lesson = lesson_step(lesson, criterion.lesson);
    return criteria;
}

std::function<void(Judge&)> each_run(
    const std::vector<Runs>& all, const std::string& task,
    const std::function<void(Judge&, const TaskRun&)>& judge_run) {
    return [=](Judge& judge) {
        for (const Runs& runs : all)
            for (const TaskRun& run : runs(judge, task))
                judge_run(judge, run);
    };
}

}  // namespace lockstep::lessons
