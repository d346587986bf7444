// A lesson's experiments give all names that its page uses, and the page uses them all.

#include <regex>
#include <set>

#include <fmt/format.h>

#include "lessons/page/terminal_text.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/pages.hpp"
#include "src/text/wrap.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;

namespace {

using Settings = std::map<std::string, std::string>;

struct Variant {
    Settings settings;
    std::optional<int> ranks;
    DType dtype = DType::f32;
};

/// Returns a few runs of a lesson, which together show every branch of its page that
/// virtual devices can show. They are few because one run of a large lesson takes ten
/// seconds.
std::vector<Variant> variants_of(const LessonEntry& lesson) {
    Settings brief;
    for (const Setting& setting : lesson.settings)
        if (setting.key == "steps") brief["steps"] = "2";
    Settings shapes = brief;
    shapes["numerics"] = "off";
    std::vector<Variant> variants{{brief, {}}, {shapes, 2, DType::bf16}};
    // All lessons except these are short, and their pages depend on the number of ranks.
    if (lesson.slug != "zero" && lesson.slug != "mesh" && lesson.slug != "inference")
        variants.push_back({brief, 2, DType::f64});
    if (lesson.slug == "gradient-accumulation") {
        Settings enough;
        enough["rows"] = "4";
        variants.push_back({enough, {}});
        variants.push_back({brief, {}, DType::bf16});
    }
    if (lesson.slug == "tensor-parallel-block") {
        const Settings enough{{"batch", "1"}, {"layers", "1"}, {"steps", "100"}};
        variants.push_back({enough, {}});
    }
    if (lesson.slug == "experts") {
        const Settings enough{{"layers", "1"}, {"steps", "60"}};
        variants.push_back({enough, {}});
    }
    return variants;
}

/// Also fills the Chinese page, in 80 columns.
void check_chinese_page(const LessonEntry& lesson, const Findings& found) {
    const LessonPage page = page_of(lesson, Language::chinese);
    constexpr int kColumns = 80;
    const TextLook look{kColumns, false, Language::chinese};
    for (const PageSection& section : page.sections())
        for (const std::string& line :
             lines_of(filled(page, section.text, found, Language::chinese), look)) {
            INFO(page.title() << ", " << section.title << ": " << line);
            CHECK(columns_of(line) <= kColumns);
        }
}

/// Returns each name to which a run gives a value, with the line of code that does it.
std::map<std::string, std::string> given_by(const LessonEntry& lesson) {
    std::map<std::string, std::string> given;
    for (const Variant& variant : variants_of(lesson)) {
        LessonOptions options;
        options.settings = variant.settings;
        options.ranks = variant.ranks;
        options.dtype = variant.dtype;
        options = resolved(understood(options, lesson), lesson.default_ranks, {});
        Record record;
        record.options.ranks = options.ranks.value_or(lesson.default_ranks);
        record.options.dtype = options.dtype;
        const auto made = lesson.make(options, record);
        LessonSteps steps(lesson, *made, Language::english, record);
        for (const Step& step : steps.steps())
            step.run();
        check_chinese_page(lesson, steps.found());
        given.merge(steps.found().names());
    }
    return given;
}

/// Returns the names on a page, with the line of each name.
std::map<std::string, int> used_on(std::string_view page) {
    static const std::regex place(R"((?:^|[^{])\{([A-Za-z][A-Za-z0-9_.]*)\??\})");
    static const std::regex directive(
        R"(\{\{(check|output|picture|predict|if|each|hint) (?:not )?([A-Za-z][A-Za-z0-9_.]*))");
    static const std::regex option(R"(\{\{option (\w+))");
    std::map<std::string, int> used;
    std::set<std::string> options;
    int number = 0;
    for (const std::string& line : split_lines(page)) {
        ++number;
        const std::sregex_iterator end;
        for (std::sregex_iterator at(line.begin(), line.end(), place); at != end; ++at) {
            std::string name = (*at)[1];
            if (name.ends_with(".bound")) name.resize(name.size() - 6);
            used.emplace(name, number);
        }
        for (std::sregex_iterator at(line.begin(), line.end(), directive); at != end;
             ++at)
            used.emplace((*at)[2], number);
        for (std::sregex_iterator at(line.begin(), line.end(), option); at != end; ++at)
            options.insert((*at)[1]);
    }
    for (const std::string& key : options)
        used.erase(key);
    return used;
}

/// Names that get a value only in runs on GPUs, which may add in another order.
const std::set<std::string> kOnGpus{"ring_sums"};

}  // namespace

TEST_CASE("experiments give all names on a page, and no others", "[lessons][slow]") {
    for (const LessonEntry& lesson : catalogue()) {
        const std::string file = lesson.folder + "/lesson.md";
        const std::map<std::string, int> used = used_on(text_called(file));
        const std::map<std::string, std::string> given = given_by(lesson);
        std::set<std::string> short_names;  // names within a row
        for (const auto& [name, at] : given)
            short_names.insert(name.substr(name.rfind('.') + 1));
        for (const auto& [name, line] : used) {
            INFO(fmt::format("lessons/{}:{}: nothing gives {}", file, line, name));
            CHECK((given.contains(name) || short_names.contains(name) ||
                   kOnGpus.contains(name)));
        }
        // A line of an experiment may give several names; the page must use one of them.
        std::map<std::string, bool> is_used;
        for (const auto& [name, at] : given) {
            const auto below = used.lower_bound(name + ".");
            const bool here =
                used.contains(name) || used.contains(name.substr(name.rfind('.') + 1)) ||
                (below != used.end() && below->first.starts_with(name + "."));
            is_used[at] |= here;
        }
        for (const auto& [line, here] : is_used) {
            INFO(fmt::format("{} gives nothing that is on lessons/{}", line, file));
            CHECK(here);
        }
    }
}
