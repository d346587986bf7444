#include "lessons/assignments/catalogue.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

const std::vector<Assignment>& assignments() {
    static const std::vector<Assignment> all{
        ring_all_reduce_assignment(),   data_parallel_assignment(),
        column_row_linear_assignment(), pipeline_1f1b_assignment(),
        ring_attention_assignment(),    debug_the_cluster_assignment()};
    return all;
}

const Assignment& find_assignment(const std::string& slug) {
    const std::vector<Assignment>& all = assignments();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Assignment& entry) {
        return entry.slug == slug;
    });
    require(found != all.end(), [&] {
        std::vector<std::string> slugs;
        for (const Assignment& entry : all)
            slugs.push_back(entry.slug);
        std::string hint = did_you_mean(slug, slugs);
        if (hint.empty())
            hint = fmt::format("; the assignments are {}", fmt::join(slugs, ", "));
        return fmt::format("there is no assignment '{}'{}", printable(slug), hint);
    });
    return *found;
}

}  // namespace lockstep::lessons
