#include "lessons/runner/lesson.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/runner/pages.hpp"
#include "src/core/require.hpp"
#include "src/run/diagnosis.hpp"
#include "src/text/names.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

const LessonEntry& find_lesson(const std::string& slug) {
    const std::vector<LessonEntry>& lessons = catalogue();
    const auto found = std::ranges::find(lessons, slug, &LessonEntry::slug);
    require(found != lessons.end(),
            [&] { return no_such("lesson", slug, lesson_slugs()); });
    return *found;
}

std::vector<std::string> lesson_slugs() {
    std::vector<std::string> slugs;
    for (const LessonEntry& lesson : catalogue())
        slugs.push_back(lesson.slug);
    return slugs;
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

LessonOptions resolved(LessonOptions options, int default_ranks,
                       const std::optional<gpu::Placement>& placement) {
    static_cast<Options&>(options) =
        programs::resolved(options, default_ranks, placement);
    if (options.backend == "nccl" && *options.ranks > 1)
        require_regular_files(options,
                              "every process reads the file, so with --backend nccl it");
    return options;
}

void require_regular_files(const LessonOptions& options, const std::string& reason) {
    for (const auto& [name, path] :
         {std::pair{"--text", options.text}, std::pair{"--data", options.data}}) {
        std::error_code ignored;
        const auto type = path ? std::filesystem::status(*path, ignored).type()
                               : std::filesystem::file_type::none;
        const bool streams = type == std::filesystem::file_type::fifo ||
                             type == std::filesystem::file_type::socket ||
                             type == std::filesystem::file_type::character;
        if (streams)
            throw UsageError(fmt::format("{} {}: {} must be a regular file", name,
                                         printable(path->string()), reason));
    }
}

std::string diagnosis_of(const std::function<void()>& run) {
    constexpr int kColumns = 76;
    try {
        run();
    } catch (const FaultError& fault) {
        return fault.diagnosis().text(kColumns);
    }
    return "";
}

std::unique_ptr<Cluster> make_shapes_only_cluster(int ranks) {
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = 0;
    return make_shapes_only_cluster(ranks, spec);
}

std::unique_ptr<Cluster> make_shapes_only_cluster(int ranks, const ClusterSpec& spec,
                                                  bool trace) {
    sim::ClusterOptions cluster;
    cluster.ranks = ranks;
    cluster.spec = spec;
    cluster.trace = trace;
    cluster.numbers = false;
    cluster.check = sim::CheckLevel::cheap;
    return sim::make_cluster(std::move(cluster));
}

LessonPage page_of(const LessonEntry& lesson, Language language) {
    std::string file = lesson.folder + "/lesson.zh.md";
    if (language != Language::chinese || text_called(file).empty())
        file = lesson.folder + "/lesson.md";
    const std::string_view text = lesson.page.empty() ? text_called(file) : lesson.page;
    return {"lessons/" + file, text};
}

LessonSteps::LessonSteps(const LessonEntry& entry, Lesson& lesson, Language language,
                         Record& record, Solutions solutions)
    : language_(language),
      solutions_(solutions),
      original_(page_of(entry)),
      shown_(page_of(entry, language)),
      found_(original_, record) {
    const std::vector<Experiment>& experiments = lesson.experiments;
    for (const PageSection* section : shown_.steps()) {
        const auto experiment =
            std::ranges::find(experiments, section->name, &Experiment::name);
        require(experiment != experiments.end(),
                "{}: the lesson {} has no experiment called {}",
                shown_.place(section->line), entry.slug, section->name);
        steps_.push_back(
            {section->title, [this, section, &record, run = experiment->run] {
                 run(found_);
                 name_runs(record);
                 return show(*section);
             }});
    }
    require(steps_.size() == experiments.size(),
            "{} has {} steps, but the lesson {} has {} experiments", shown_.file(),
            steps_.size(), entry.slug, experiments.size());
}

void LessonSteps::name_runs(Record& record) const {
    for (const auto& [name, report] : record.runs) {
        const auto title = original_.run_titles().find(name);
        if (title != original_.run_titles().end())
            record.titles[name] =
                filled(title->second, found_, original_, "the title of the run " + name);
    }
}

Document LessonSteps::show(const PageSection& section) const {
    return filled(shown_, section.text, found_, language_, solutions_);
}

Document LessonSteps::end() const {
    Document end;
    for (const PageSection& section : shown_.sections()) {
        if (section.is_step()) continue;
        end.push_back({Heading{2, words_of(section.title)}, section.line});
        for (Block& block : show(section))
            end.push_back(std::move(block));
    }
    return end;
}

std::vector<std::size_t> shown_steps(std::size_t steps) {
    constexpr std::size_t kRows = 8;
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i <= kRows; ++i) {
        const std::size_t step = (steps - 1) * i / kRows;
        if (shown.empty() || shown.back() != step) shown.push_back(step);
    }
    return shown;
}

std::unique_ptr<Cluster> Lesson::virtual_devices(int ranks, bool trace) const {
    LessonOptions here = options_;
    here.backend = "sim";
    return make_cluster(here, ranks, trace);
}

void Lesson::values_at_most(Findings& found, const std::string& name, double difference,
                            double limit, SourceLine at) const {
    if (has_numbers())
        found.at_most(name, difference, limit, at);
    else
        found.not_compared(name, at);
}

void Lesson::values_equal(Findings& found, const std::string& name, std::int64_t figure,
                          std::int64_t expected, SourceLine at) const {
    if (has_numbers())
        found.equal(name, figure, static_cast<double>(expected), at);
    else
        found.not_compared(name, at);
}

void Lesson::makespan_equals(Findings& found, const std::string& name,
                             const RunReport& report, double seconds,
                             SourceLine at) const {
    if (!options_.has_virtual_time()) return;
    found.equal(name,
                Figure::seconds(static_cast<double>(report.makespan()) /
                                static_cast<double>(kSecond)),
                seconds, at);
}

}  // namespace lockstep::lessons
